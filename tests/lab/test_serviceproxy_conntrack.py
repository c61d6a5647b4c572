"""Connections that are there already: which follow a change, which must not.

Test names begin with the number of the behaviour in the service proxy's specification.
"""

import contextlib
import time

import pytest

from lab import wait_until
from lab.probe import open_socket
from lab.segment import send_stray_segment
from lab.witness import witness
from proxy_world import CLIENT, NODE_A, OTHER

pytestmark = pytest.mark.folder_only("the objects mean the same wherever they come from")

PORT = 30080
SOURCE_PORT = 4001
# Who dials which of a Service's addresses.
WAYS = {"pod": ("a3", "cluster"), "node": ("node-a", "cluster"), "node-port": ("client", "node"),
        "external": ("client", "external")}


@contextlib.contextmanager
def flow(proxy, svc, family, way):
    """A running UDP flow from one port, 100 packets a second; ended however the test ends."""
    source, kind = WAYS[way]
    address, port = {"cluster": (svc.ip(family), 80), "external": (svc.external(family), 80),
                     "node": (NODE_A[family], PORT)}[kind]
    stream = proxy.lab.stream("udp", address, port, source=source, source_port=SOURCE_PORT)
    try:
        yield stream
    finally:
        if stream.child.poll() is None:
            stream.stop()


@pytest.mark.parametrize("way", list(WAYS))
def test_row_33_udp_follows_when_its_endpoint_is_replaced(proxy, family, way):
    svc = proxy.service("a1", node_port=PORT, external=True)
    with flow(proxy, svc, family, way) as stream:
        stream.wait_answer()
        proxy.endpoints(svc, "b1", settle=False)
        stream.wait_pod("b1")
        assert stream.stop().pods == ["a1", "b1"]


@pytest.mark.parametrize("way", list(WAYS))
def test_row_33_udp_follows_when_its_endpoint_is_removed(proxy, family, way):
    """The other endpoint stays, and so does the flow that is served by it."""
    svc = proxy.service("a1", "b1", node_port=PORT, external=True)
    with flow(proxy, svc, family, way) as stream:
        stream.wait_answer()
        first = stream.pod_changes[0][1]
        left = {"a1": "b1", "b1": "a1"}[first]
        proxy.endpoints(svc, left, settle=False)
        stream.wait_pod(left)
        proxy.endpoints(svc, "a1", "b1", "a2")
        assert stream.stop().pods == [first, left]


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("before", ["no-service", "no-endpoints"])
def test_row_34_udp_is_served_once_there_is_an_endpoint(proxy, family, way, before):
    svc = proxy.service(node_port=PORT, external=True)
    if before == "no-service":
        svc.delete()
        proxy.settle()
    with flow(proxy, svc, family, way) as stream:
        if before == "no-service" and way != "pod" and way != "node":
            wait_until(lambda: proxy.entries("-p", "udp", "-f", f"ipv{family}",
                                             "--orig-port-src", str(SOURCE_PORT)),
                       5, "the flow to have an entry that leads nowhere")
        if before == "no-service":
            svc.put()
        proxy.endpoints(svc, "a1", settle=False)
        stream.wait_pod("a1")


@pytest.fixture
def lasting(proxy):
    """What conntrack knows of UDP goes by nothing but a deletion."""
    key = "net.netfilter.nf_conntrack_udp_timeout"
    before = proxy.host.sysctl(key)
    proxy.host.sysctl(key, 3600)
    yield
    proxy.host.sysctl(key, before)


def ports_of(proxy, family, proto="udp"):
    """Source ports of the flows conntrack knows on node-a."""
    return {next(word for word in entry if word.startswith("sport="))[6:]
            for entry in proxy.entries("-p", proto, "-f", f"ipv{family}")}


def only_stale_udp_entries_are_deleted(proxy, family):
    """Returns the source ports of TCP to a Service that has gone since."""
    svc = proxy.service("a1", "a2", node_port=PORT)
    kept = proxy.service("a1")
    with proxy.serving("other", "other", 80):
        to = {}     # {source port: pod}, 40 flows each
        for port in range(5000, 5040):
            to[port] = proxy.served("a3", "udp", svc.ip(family), 80, ["a1", "a2"],
                                    source_port=port).pod
        for port in range(5100, 5140):
            to[port] = proxy.served("client", "udp", NODE_A[family], PORT, ["a1", "a2"],
                                    source_port=port).pod
        for port in range(5200, 5240):
            to[port] = proxy.served("a3", "udp", kept.ip(family), 80, "a1", source_port=port).pod
        for port in range(5300, 5340):      # nobody's service, though it is to the pod that goes
            proxy.served("a3", "udp", proxy.lab.pod("a1").address(family), 8080, "a1",
                         source_port=port)
            proxy.served("client", "udp", OTHER[family], 80, "other", source_port=port + 100)
        tcp = {str(proxy.served("a3", "tcp", svc.ip(family), 80, ["a1", "a2"]).source_port)
               for _ in range(20)}
    before = ports_of(proxy, family)
    stale = {str(port) for port, pod in to.items() if pod == "a1" and port < 5200}
    assert 20 < len(stale) < 60 and stale < before
    proxy.endpoints(svc, "a2")
    wait_until(lambda: ports_of(proxy, family) == before - stale, 5,
               lambda: f"{sorted(stale)} and no other to be gone; gone are "
                       f"{sorted(before - ports_of(proxy, family))}")
    svc.delete()
    proxy.settle()
    stale = {str(port) for port in to if port < 5200}
    wait_until(lambda: ports_of(proxy, family) == before - stale, 5,
               "the entries of a Service that is gone to be gone")
    return tcp


def test_row_35_only_stale_udp_entries_are_deleted(proxy, lasting, family):
    tcp = only_stale_udp_entries_are_deleted(proxy, family)
    assert tcp <= ports_of(proxy, family, "tcp")


def test_row_35_nothing_is_deleted_when_nothing_changes(proxy, lasting, family):
    """Neither by an audit nor at a restart, which may even find fewer endpoints than serve."""
    svc = proxy.service("a1", "a2", node_port=PORT)
    for port in range(5000, 5020):
        proxy.served("a3", "udp", svc.ip(family), 80, ["a1", "a2"], source_port=port)
        proxy.served("client", "udp", NODE_A[family], PORT, ["a1", "a2"], source_port=port)
    before = ports_of(proxy, family)
    watcher = proxy.host.popen("conntrack", "-E", "-e", "DESTROY", "-p", "udp")
    try:
        svc.put(publishNotReadyAddresses=True)
        proxy.endpoints(svc, "a2", "a1")
        proxy.restart(*proxy.flags)
        proxy.agent.kill()
        proxy.start(*proxy.flags)
        time.sleep(0.3)     # nothing may happen for a while
    finally:
        watcher.terminate()
    assert not [line for line in watcher.communicate()[0].splitlines() if "sport=50" in line]
    assert ports_of(proxy, family) >= before


def test_row_35_a_change_while_the_agent_was_away(proxy, lasting, family):
    svc = proxy.service("a1", "a2")
    to = {port: proxy.served("a3", "udp", svc.ip(family), 80, ["a1", "a2"], source_port=port).pod
          for port in range(5000, 5020)}
    before = ports_of(proxy, family)
    assert proxy.agent.stop() == 0
    proxy.endpoints(svc, "a2", settle=False)
    proxy.start(*proxy.flags)
    stale = {str(port) for port, pod in to.items() if pod == "a1"}
    wait_until(lambda: not ports_of(proxy, family) & stale, 5, "stale entries to be gone")
    assert ports_of(proxy, family) >= before - stale


@pytest.mark.parametrize("way", list(WAYS))
def test_row_36_tcp_outlives_its_endpoint_and_its_service(proxy, family, way):
    svc = proxy.service("a1", node_port=PORT, external=True)
    source, kind = WAYS[way]
    address, port = {"cluster": (svc.ip(family), 80), "external": (svc.external(family), 80),
                     "node": (NODE_A[family], PORT)}[kind]
    stream = proxy.lab.stream("tcp", address, port, source=source, push=True).wait_answer()
    proxy.endpoints(svc, "a2")
    proxy.served(source, "tcp", address, port, "a2")
    proxy.endpoints(svc)
    proxy.refused(source, "tcp", address, port)
    svc.delete()
    proxy.settle()
    report = stream.stop()
    assert report.nothing_lost and report.pods == ["a1"], report


def test_row_37_invalid_packets_pass(proxy, family):
    """The node forwards an out-of-window segment as if there were no service proxy."""
    proxy.service("a1")
    mark = 4242
    with proxy.serving("other", "other", 80), \
         witness(proxy.host, "prerouting", -150, invalid=f"ct state invalid tcp urgptr {mark}") as here, \
         witness(proxy.lab.host("other"), "prerouting", -400,
                 stray=f"tcp urgptr {mark}") as there, \
         open_socket(proxy.lab.host("client").ns, "tcp", OTHER[family],
                     CLIENT[family]) as sock:
        sock.settimeout(10)
        sock.connect((OTHER[family], 80))
        sock.recv(200)
        wait_until(lambda: send_stray_segment(proxy.lab.host("client").ns, sock.getsockname()[:2],
                                              (OTHER[family], 80), mark) or here["invalid"],
                   5, "conntrack to call one invalid")
        wait_until(lambda: there["stray"] >= here["invalid"], 5, "it to arrive all the same")
        sock.sendall(b"on")
        assert sock.recv(2) == b"on"
    rules = proxy.host.out("nft", "list", "table", "inet", "portolan")
    assert "invalid" not in rules
