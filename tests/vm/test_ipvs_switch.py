"""Row 48: from one mode to the other on a node with traffic.

It needs a kernel with IPVS and nftables, which Debian's user-mode-linux is not; on one that has both:

  SECOND_KERNEL=/path/to/linux lab/secondkernel/run /usr/bin/python3 -m pytest -q tests/vm/test_ipvs_switch.py
"""

import pytest

from ipvs_world import FLAGS, without_barrier
from lab.hammer import Hammer
from proxy_world import NODE_A

pytestmark = pytest.mark.nftables

PORT = 30080
NFT = ("--proxy-mode", "nft", *FLAGS)


@pytest.fixture
def ways(proxy):
    """Who dials what, of a Service with endpoints on both nodes."""
    svc = proxy.service("a1", "b1", node_port=PORT, external=True)
    return [(source, address, port) for family in (4, 6) for source, address, port in (
        ("a3", svc.ip(family), 80), ("client", NODE_A[family], PORT),
        ("client", svc.external(family), 80))]


def silence(connects):
    """Seconds from the first to the last new connection that did not stand at once."""
    assert len(connects) > 20
    wrong = [connect for connect in connects if connect.error or connect.again]
    return max(c.ended for c in wrong) - min(c.began for c in wrong) if wrong else 0.0


def switched(proxy, ways, *flags):
    """Hammers and streams on all ways while the agent ends and starts with other flags."""
    streams = [proxy.lab.stream("tcp", address, port, source=source, push=True).wait_answer()
               for source, address, port in ways]
    hammers = [Hammer(proxy.place(source).ns, address, port, pause=0.01)
               for source, address, port in ways]
    assert proxy.agent.stop() == 0
    proxy.start(*flags)
    for source, address, port in ways:
        proxy.wait_served(source, "tcp", address, port)
    silences = {hammer.dialled: silence(hammer.stop()) for hammer in hammers}
    assert max(silences.values()) <= 1, silences
    return [stream.stop() for stream in streams]


def tables(proxy):
    return proxy.host.out("nft", "list", "tables").split("\n")


def test_row_48_from_nftables_to_ipvs_and_back(proxy, ways):
    """At most a second without new connections; what the other mode had goes. Connections of before
    live on by conntrack from nftables to IPVS; the other way they are reset."""
    proxy.restart(*NFT)
    assert "table inet portolan" in tables(proxy)
    assert without_barrier(proxy.kernel().servers) == {} and not proxy.kernel().bound
    reports = switched(proxy, ways, *FLAGS)
    assert all(report.nothing_lost for report in reports), reports
    assert "table inet portolan" not in tables(proxy)
    assert without_barrier(proxy.kernel().servers) and proxy.kernel().bound
    reports = switched(proxy, ways, *NFT)
    assert {report.ended for report in reports} == {"ConnectionResetError"}, reports    # at once
    kernel = proxy.kernel()
    assert "table inet portolan" in tables(proxy)
    assert kernel.servers == {} and kernel.sets == {} and kernel.bound is None
    assert not [rule for rule in sum(kernel.rules.values(), []) if "KUBE-" in rule]
