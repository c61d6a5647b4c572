"""Which endpoints serve on IPVS: conditions, hints, affinity.

Test names begin with the number of the behaviour in the service proxy's specification.
"""

import pytest

from lab import wait_until
from proxy_world import NODE_A, PROTOCOLS
from test_serviceproxy_selection import (  # noqa: F401
    PORT,
    sticky,
    test_row_25_terminating_serves_locally_when_nobody_local_is_ready,
    test_row_25_terminating_serves_when_nobody_is_ready,
    test_row_26_not_ready_does_not_serve,
    test_row_27_hints_of_those_that_are_not_ready_do_not_count,
    test_row_27_node_hints,
    test_row_27_node_hints_come_before_zone_hints,
    test_row_27_zone_hints,
    test_row_28_clients_are_told_apart,
    test_row_29_affinity_to_one_that_is_gone_is_chosen_again,
)

def remembered(proxy, address):
    """{client: seconds it is still remembered} at a server's address, as ipvsadm lists it: the entry
    of a client's port 0."""
    found = {}
    for line in proxy.host.out("ipvsadm", "-Lnc").splitlines():
        words = line.split()
        if len(words) < 6 or words[0] not in ("TCP", "UDP"):
            continue
        client, _, port = words[3].rpartition(":")
        if port == "0" and words[4].rpartition(":")[0].strip("[]") == address:
            minutes, seconds = words[1].split(":")
            found[client.strip("[]")] = int(minutes) * 60 + int(seconds)
    return found


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_row_28_affinity(proxy, family, proto):
    """By the client's address, refreshed by each new connection."""
    svc = sticky(proxy, "a1", "a2", "b1", seconds=100)
    address, source = svc.ip(family), proxy.lab.pod("a3").address(family)
    assert len(set(proxy.pods_of("a3", proto, address, 80, 7))) == 1
    assert proxy.kernel().server(proto, address, 80).persistent == 100
    wait_until(lambda: remembered(proxy, address)[source] < 99, 5, "a second to pass",
               interval=0.2)
    proxy.served("a3", proto, address, 80, ["a1", "a2", "b1"])
    assert 99 <= remembered(proxy, address)[source] <= 100


def test_row_28_a_client_is_forgotten(proxy, family):
    """When its time is over and no connection of it is left; UDP is over after a second here."""
    proxy.host.run("ipvsadm", "--set", "0", "0", "1")
    try:
        svc = sticky(proxy, "a1", "a2", seconds=2)
        source = proxy.lab.pod("a3").address(family)
        first = proxy.served("a3", "udp", svc.ip(family), 80, ["a1", "a2"]).pod
        proxy.served("a3", "udp", svc.ip(family), 80, first)
        assert source in remembered(proxy, svc.ip(family))
        wait_until(lambda: source not in remembered(proxy, svc.ip(family)), 6,
                   "the client to be forgotten", interval=0.2)
        proxy.served("a3", "udp", svc.ip(family), 80, ({"a1", "a2"} - {first}).pop())
    finally:
        proxy.host.run("ipvsadm", "--set", "0", "0", "300")


def test_row_28_default_time_and_another_later(proxy, family):
    """And none: the server's flag goes with it."""
    svc = proxy.service("a1", "a2", sessionAffinity="ClientIP")
    pod = proxy.served("a3", "tcp", svc.ip(family), 80, ["a1", "a2"]).pod
    assert proxy.kernel().server("tcp", svc.ip(family), 80).persistent == 10800
    svc.put(sessionAffinityConfig={"clientIP": {"timeoutSeconds": 60}})
    proxy.settle()
    assert proxy.kernel().server("tcp", svc.ip(family), 80).persistent == 60
    assert set(proxy.pods_of("a3", "tcp", svc.ip(family), 80, 5)) == {pod}
    svc.put(sessionAffinity="None", sessionAffinityConfig=None)
    proxy.settle()
    assert proxy.kernel().server("tcp", svc.ip(family), 80).persistent == 0
    assert set(proxy.pods_of("a3", "tcp", svc.ip(family), 80, 10)) == {"a1", "a2"}


def test_row_30_affinity_is_each_servers_own(proxy, family):
    """A client keeps to one endpoint on each address, to whichever that is."""
    svc = sticky(proxy, "a1", "a2", "b1", seconds=100, node_port=PORT, external=True)
    for source in ("a3", "client", "node-a"):
        for address, port in ((svc.ip(family), 80), (svc.external(family), 80),
                              (NODE_A[family], PORT)):
            pods = set(proxy.pods_of(source, "tcp", address, port, 5))
            assert len(pods) == 1, (source, address, pods)


def test_row_30_affinity_of_external_local(proxy, family):
    svc = sticky(proxy, "a1", "a2", "b1", "b2", seconds=100, node_port=PORT,
                 externalTrafficPolicy="Local")
    outside = set(proxy.pods_of("client", "tcp", NODE_A[family], PORT, 10))
    assert len(outside) == 1 and outside <= {"a1", "a2"}
    proxy.endpoints(svc, "b1", "b2")
    proxy.dropped("client", "tcp", NODE_A[family], PORT)
    inside = set(proxy.pods_of("a3", "tcp", NODE_A[family], PORT, 10))
    assert len(inside) == 1 and inside <= {"b1", "b2"}
