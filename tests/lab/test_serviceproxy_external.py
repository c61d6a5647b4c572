"""Node ports, external IPs and load balancer addresses: who gets in, and as whom.

Test names begin with the number of the behaviour in the service proxy's specification.
"""

import pytest

from lab import wait_until
from proxy_world import (BALANCER, CLIENT, CLIENT_2, FLAGS, LOOPBACK, NODE_A, NODE_B, OTHER,
                         PROTOCOLS, SECOND)

pytestmark = pytest.mark.folder_only("the objects mean the same wherever they come from")

PORT = 30080


@pytest.mark.parametrize("pod", ["a1", "b1"])
def test_row_06_node_port_is_masqueraded(proxy, family, pod):
    proxy.service(pod, node_port=PORT)
    for proto in PROTOCOLS:
        proxy.served("client", proto, NODE_A[family], PORT, pod, proxy.addresses())
        proxy.served("a2", proto, NODE_A[family], PORT, pod, proxy.addresses())
        proxy.served("node-a", proto, NODE_A[family], PORT, pod, proxy.addresses())


@pytest.mark.parametrize("flags", [(), ("--nodeport-addresses", "primary")],
                         ids=["unset", "primary"])
def test_row_07_node_ports_answer_on_the_primary_address(proxy, family, flags):
    if flags:
        proxy.restart(*FLAGS, *flags)
    proxy.service("a1", node_port=PORT)
    for proto in PROTOCOLS:
        proxy.served("client", proto, NODE_A[family], PORT, "a1")
        proxy.refused("client", proto, SECOND[family], PORT)
        proxy.refused("node-a", proto, LOOPBACK[family], PORT)


def test_row_07_node_ports_answer_on_addresses_of_the_ranges(proxy, family):
    proxy.restart(*FLAGS, "--nodeport-addresses", "192.0.2.0/24,2001:db8:2::/64,127.0.0.0/8,::1/128")
    proxy.service("a1", node_port=PORT)
    for proto in PROTOCOLS:
        proxy.served("client", proto, SECOND[family], PORT, "a1")
        proxy.refused("client", proto, NODE_A[family], PORT)
        proxy.refused("node-a", proto, LOOPBACK[family], PORT)


def test_row_07_an_address_that_comes_and_goes(proxy, family):
    """Ranges mean the addresses the node has now."""
    proxy.restart(*FLAGS, "--nodeport-addresses", "192.0.2.0/24,2001:db8:2::/64")
    proxy.service("a1", node_port=PORT)
    late = {4: "192.0.2.99/24", 6: "2001:db8:2::99/64"}[family]
    proxy.host.ip(f"addr add {late} dev enp2s0" + (" nodad" if family == 6 else ""))
    try:
        proxy.wait_served("client", "tcp", late.split("/")[0], PORT, "a1")
    finally:
        proxy.host.ip(f"addr del {late} dev enp2s0")
    wait_until(lambda: not any(late.split("/")[0] in element
                               for element in proxy.elements(f"service{family}")), 5,
               "the address to be forgotten")
    proxy.served("client", "tcp", SECOND[family], PORT, "a1")


def test_row_08_node_port_of_another_host_passes(proxy, family):
    proxy.service("a1", node_port=PORT)
    with proxy.serving("other", "other", PORT):
        for proto in PROTOCOLS:
            proxy.served("client", proto, OTHER[family], PORT, "other", CLIENT[family])
            proxy.served("node-a", proto, OTHER[family], PORT, "other")


def everywhere(svc, family):
    """The addresses that are the external policy's."""
    return ((NODE_A[family], PORT), (svc.external(family), 80))


def local_service(proxy, *pods, **options):
    return proxy.service(*pods, node_port=PORT, lb=True, externalTrafficPolicy="Local", **options)


def test_row_09_external_local_keeps_the_source(proxy, family):
    svc = local_service(proxy, "a1", "b1")
    for address, port in everywhere(svc, family):
        for proto in PROTOCOLS:
            for _ in range(8):
                proxy.served("client", proto, address, port, "a1", CLIENT[family])
    # Inside the cluster it means nothing.
    assert set(proxy.pods_of("a2", "tcp", svc.ip(family), 80, 30)) == {"a1", "b1"}


def test_row_10_external_local_with_none_local_is_dropped(proxy, family):
    svc = local_service(proxy, "b1")
    for address, port in everywhere(svc, family):
        for proto in PROTOCOLS:
            proxy.dropped("client", proto, address, port)


def test_row_10_then_one_is_local(proxy, family):
    svc = local_service(proxy, "b1")
    proxy.endpoints(svc, "b1", "a1")
    for address, port in everywhere(svc, family):
        proxy.served("client", "tcp", address, port, "a1", CLIENT[family])
    proxy.endpoints(svc, "b1")
    for address, port in everywhere(svc, family):
        proxy.dropped("client", "tcp", address, port)
    proxy.endpoints(svc)
    for address, port in everywhere(svc, family):
        proxy.refused("client", "tcp", address, port)


@pytest.mark.parametrize("pods", [("b1",), ("a1", "b1")], ids=["none-local", "one-local"])
def test_row_11_external_local_from_inside_reaches_all(proxy, family, pods):
    svc = local_service(proxy, *pods)
    pod = proxy.lab.pod("a2").address(family)
    for address, port in everywhere(svc, family):
        for proto in PROTOCOLS:
            found = {proxy.served("a2", proto, address, port, pods, pod).pod for _ in range(20)}
            assert found == set(pods)
            found = {proxy.served("node-a", proto, address, port, pods, proxy.addresses()).pod
                     for _ in range(20)}
            assert found == set(pods)


@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_row_16_external_ips(proxy, family, policy):
    svc = proxy.service("a1", external=True, externalTrafficPolicy=policy)
    peer = {"Cluster": proxy.addresses(), "Local": CLIENT[family]}[policy]
    for proto in PROTOCOLS:
        proxy.served("client", proto, svc.external(family), 80, "a1", peer)
        proxy.served("a2", proto, svc.external(family), 80, "a1")
        proxy.served("node-a", proto, svc.external(family), 80, "a1")
    svc.put(externalIPs=None)
    proxy.settle()
    for proto in PROTOCOLS:
        assert not proxy.dial("client", proto, svc.external(family), 80, timeout=0.3).answered


def test_row_16_policy_changes_while_it_serves(proxy, family):
    svc = proxy.service("a1", external=True)
    for _ in range(3):
        for policy, peer in (("Local", CLIENT[family]), ("Cluster", proxy.addresses())):
            svc.put(externalTrafficPolicy=policy)
            proxy.settle()
            proxy.served("client", "tcp", svc.external(family), 80, "a1", peer)


def test_row_17_external_ip_of_this_node_stays_its_own(proxy, family):
    before = proxy.host.out("ip", "-o", "addr")
    proxy.service("b1", external=SECOND)
    with proxy.serving("own", "node-a", 22):
        assert proxy.host.out("ip", "-o", "addr") == before
        proxy.served("client", "tcp", SECOND[family], 80, "b1")
        proxy.served("client", "tcp", SECOND[family], 22, "own", CLIENT[family])
        proxy.served("a1", "tcp", SECOND[family], 22, "own")
    proxy.clear()
    proxy.settle()
    assert proxy.host.out("ip", "-o", "addr") == before


def test_row_18_external_ip_of_another_node_leaves_it_in_reach(proxy, family):
    proxy.service("a1", external=NODE_B)
    with proxy.serving("own", "node-b", 22):
        for source in ("node-a", "a2", "client"):
            for proto in PROTOCOLS:
                proxy.served(source, proto, NODE_B[family], 22, "own")
        proxy.served("node-a", "tcp", NODE_B[family], 80, "a1")
        assert NODE_B[family] not in proxy.addresses()


@pytest.mark.parametrize("mode", [None, "VIP", "Proxy"])
def test_row_19_ip_mode_of_a_load_balancer(proxy, family, mode):
    proxy.service("a1", lb=BALANCER, lb_mode=mode)
    by = "balancer" if mode == "Proxy" else "a1"
    with proxy.serving("balancer", "other", 80):
        for proto in PROTOCOLS:
            for source in ("a2", "node-a", "client"):
                proxy.served(source, proto, BALANCER[family], 80, by)


def ranged(proxy, *ranges, **options):
    """Blanks around a range and ranges of the other family are of no consequence."""
    return proxy.service("a1", node_port=PORT, lb=True, loadBalancerSourceRanges=list(ranges),
                         **options)


def test_row_20_source_ranges(proxy, family):
    svc = ranged(proxy, " 198.51.100.7/32 ", "2001:db8:51::7/128 ", "203.0.113.200/32")
    for proto in PROTOCOLS:
        proxy.served("client", proto, svc.external(family), 80, "a1", proxy.addresses(),
                     source_address=CLIENT[family])
        proxy.dropped("client", proto, svc.external(family), 80,
                      source_address=CLIENT_2[family])
        for source in (CLIENT[family], CLIENT_2[family]):       # not for node ports
            proxy.served("client", proto, NODE_A[family], PORT, "a1", source_address=source)
        proxy.served("a2", proto, svc.ip(family), 80, "a1")     # nor for the cluster IP


def test_row_20_dropped_before_translation(proxy, family):
    svc = ranged(proxy, "198.51.100.7/32", "2001:db8:51::7/128")
    proxy.dropped("client", "udp", svc.external(family), 80, source_address=CLIENT_2[family])
    assert not proxy.entries("-f", f"ipv{family}", "--orig-dst", svc.external(family))


def test_row_20_the_range_of_the_other_family_alone_allows_nobody_here(proxy, family):
    other = {4: "2001:db8:51::/64", 6: "198.51.100.0/24"}[family]
    svc = ranged(proxy, other)
    proxy.served("client", "tcp", svc.external(10 - family), 80, "a1")


def test_row_20_ranges_change(proxy, family):
    svc = ranged(proxy, "198.51.100.7/32", "2001:db8:51::7/128")
    svc.put(loadBalancerSourceRanges=["198.51.100.8/32", "2001:db8:51::8/128"])
    proxy.settle()
    proxy.dropped("client", "tcp", svc.external(family), 80, source_address=CLIENT[family])
    proxy.served("client", "tcp", svc.external(family), 80, "a1", source_address=CLIENT_2[family])
    svc.put(loadBalancerSourceRanges=None)
    proxy.settle()
    for source in (CLIENT, CLIENT_2):
        proxy.served("client", "tcp", svc.external(family), 80, "a1",
                     source_address=source[family])


def test_row_20_the_address_itself_is_allowed_when_the_node_is(proxy, family):
    svc = ranged(proxy, "203.0.113.0/25", "2001:db8:113::/64")
    vip = svc.external(family)
    proxy.host.ip(f"addr add {vip} dev lo" + (" nodad" if family == 6 else ""))
    try:
        for proto in PROTOCOLS:
            proxy.served("node-a", proto, vip, 80, "a1", source_address=vip)
        svc.put(loadBalancerSourceRanges=["198.51.100.7/32", "2001:db8:51::7/128"])
        proxy.settle()
        proxy.dropped("node-a", "tcp", vip, 80, source_address=vip)
    finally:
        proxy.host.ip(f"addr del {vip} dev lo")


def test_row_21_source_ranges_hold_for_the_node_itself(proxy, family):
    svc = ranged(proxy, "198.51.100.7/32", "2001:db8:51::7/128")
    for proto in PROTOCOLS:
        proxy.dropped("node-a", proto, svc.external(family), 80)
    svc.put(loadBalancerSourceRanges=["203.0.113.0/25", "2001:db8:113::/64"])
    proxy.settle()
    for proto in PROTOCOLS:
        proxy.served("node-a", proto, svc.external(family), 80, "a1")
        proxy.dropped("client", proto, svc.external(family), 80)


def test_row_22_services_share_an_address(proxy, family):
    one = proxy.service("a1", lb=True, settle=False)
    shared = {family: one.external(family) for family in (4, 6)}
    two = proxy.service("a2", lb=shared, ports=(("tcp", "TCP", 81, 8080), ("udp", "UDP", 81, 8080)))
    for proto in PROTOCOLS:
        proxy.served("client", proto, one.external(family), 80, "a1")
        proxy.served("client", proto, one.external(family), 81, "a2")
    stream = proxy.lab.stream("tcp", one.external(family), 81).wait_answer()
    one.delete()
    proxy.settle()
    for proto in PROTOCOLS:
        assert not proxy.dial("client", proto, one.external(family), 80, timeout=0.3).answered
        proxy.served("client", proto, one.external(family), 81, "a2")
    assert stream.stop().nothing_lost
    assert two.ingress


def test_row_23_the_same_address_and_port_twice(proxy, family):
    """The older Service has it; when it goes the younger gets it; the log says so once."""
    older = proxy.service("a1", external=True, settle=False)
    shared = {family: older.external(family) for family in (4, 6)}
    younger = proxy.service("a2", external=shared)
    for proto in PROTOCOLS:
        assert set(proxy.pods_of("client", proto, older.external(family), 80)) == {"a1"}
        proxy.served("a3", proto, younger.ip(family), 80, "a2")
    proxy.agent.wait_log(f'object=apps/{younger.name} field="spec.externalIPs" '
                         f'value="{older.external(family)}"')
    older.put(sessionAffinity="None")       # a change of either moves nothing
    proxy.settle()
    assert set(proxy.pods_of("client", "tcp", older.external(family), 80)) == {"a1"}
    older.delete()
    proxy.settle()
    for proto in PROTOCOLS:
        assert set(proxy.pods_of("client", proto, older.external(family), 80)) == {"a2"}


def test_row_23_the_same_node_port_twice(proxy, family):
    older = proxy.service("a1", node_port=PORT)
    proxy.service("a2", node_port=PORT)
    assert set(proxy.pods_of("client", "tcp", NODE_A[family], PORT)) == {"a1"}
    older.delete()
    proxy.settle()
    assert set(proxy.pods_of("client", "tcp", NODE_A[family], PORT)) == {"a2"}


def test_row_24_no_node_ports_allocated(proxy, family):
    svc = proxy.service("a1", lb=True, allocateLoadBalancerNodePorts=False)
    proxy.served("client", "tcp", svc.external(family), 80, "a1")
    elements = proxy.elements(f"service{family}") + proxy.elements(f"endpoint{family}")
    assert elements and not [element for element in elements if element[2] == 0]
    assert not [element for element in elements if element[0] == NODE_A[family]]


def test_one_service_by_all_its_addresses_at_once(proxy, family):
    """A policy, ranges and kinds of address do not get in each other's way."""
    svc = proxy.service("a1", "b1", node_port=PORT, lb=True, settle=False,
                        externalTrafficPolicy="Local",
                        loadBalancerSourceRanges=["198.51.100.7/32", "2001:db8:51::7/128"])
    extra = {4: "198.18.0.251", 6: "2001:db8:18::fb"}
    svc.put(externalIPs=list(extra.values()))
    proxy.settle()
    for proto in PROTOCOLS:
        for address, port in ((NODE_A[family], PORT), (extra[family], 80)):
            for source in (CLIENT[family], CLIENT_2[family]):
                proxy.served("client", proto, address, port, "a1", source, source_address=source)
        proxy.served("client", proto, svc.external(family), 80, "a1", CLIENT[family])
        proxy.dropped("client", proto, svc.external(family), 80, source_address=CLIENT_2[family])
        for source in ("a2", "node-a"):
            proxy.served(source, proto, svc.ip(family), 80, ["a1", "b1"])
