"""Node ports, external IPs and load balancers on IPVS: the nftables mode's tests where both do the
same, and what differs.

Test names begin with the number of the behaviour in the service proxy's specification.
"""

import json

import pytest

from ipvs_world import LINK
from proxy_world import CLIENT, FLAGS, LOOPBACK, NODE_A, NODE_B, PROTOCOLS, SECOND
from test_serviceproxy_external import (  # noqa: F401
    PORT,
    everywhere,
    local_service,
    test_one_service_by_all_its_addresses_at_once,
    test_row_06_node_port_is_masqueraded,
    test_row_07_node_ports_answer_on_addresses_of_the_ranges,
    test_row_08_node_port_of_another_host_passes,
    test_row_09_external_local_keeps_the_source,
    test_row_10_external_local_with_none_local_is_dropped,
    test_row_10_then_one_is_local,
    test_row_16_external_ips,
    test_row_16_policy_changes_while_it_serves,
    test_row_19_ip_mode_of_a_load_balancer,
    test_row_20_dropped_before_translation,
    test_row_20_ranges_change,
    test_row_20_source_ranges,
    test_row_20_the_address_itself_is_allowed_when_the_node_is,
    test_row_20_the_range_of_the_other_family_alone_allows_nobody_here,
    test_row_21_source_ranges_hold_for_the_node_itself,
    test_row_22_services_share_an_address,
    test_row_23_the_same_address_and_port_twice,
    test_row_23_the_same_node_port_twice,
)


def test_row_07_node_ports_answer_on_every_address_but_loopback(proxy, family):
    proxy.service("a1", node_port=PORT)
    for proto in PROTOCOLS:
        for address in (NODE_A, SECOND):
            proxy.served("client", proto, address[family], PORT, "a1")
        proxy.refused("node-a", proto, LOOPBACK[family], PORT)


def test_row_07_primary(proxy, family):
    proxy.restart(*FLAGS, "--nodeport-addresses", "primary")
    proxy.service("a1", node_port=PORT)
    proxy.served("client", "tcp", NODE_A[family], PORT, "a1")
    proxy.refused("client", "tcp", SECOND[family], PORT)


@pytest.mark.parametrize("words", [
    lambda a, b: ["--node-address", f"{a},{b}"],
    lambda a, b: ["--node-address", a, "--node-address", b]], ids=["by-comma", "repeated"])
def test_row_07_node_address_says_which(proxy, words):
    proxy.restart(*FLAGS, *words(SECOND[4], SECOND[6]))
    proxy.service("a1", node_port=PORT)
    for family in (4, 6):
        proxy.served("client", "tcp", SECOND[family], PORT, "a1")
        proxy.refused("client", "tcp", NODE_A[family], PORT)


def test_row_07_an_address_that_comes_and_goes(proxy, family):
    """All addresses are those the node has now."""
    proxy.service("a1", node_port=PORT)
    late = {4: "192.0.2.99/24", 6: "2001:db8:2::99/64"}[family]
    address = late.split("/")[0]
    proxy.host.ip(f"addr add {late} dev enp2s0" + (" nodad" if family == 6 else ""))
    try:
        proxy.wait_served("client", "tcp", address, PORT, "a1")
    finally:
        proxy.host.ip(f"addr del {late} dev enp2s0")
    proxy.wait_kernel(lambda kernel: not kernel.server("tcp", address, PORT),
                      "the address to be forgotten")
    proxy.served("client", "tcp", SECOND[family], PORT, "a1")


def test_row_11_external_local_with_none_local_from_inside_reaches_others(proxy, family):
    svc = local_service(proxy, "b1")
    for address, port in everywhere(svc, family):
        for proto in PROTOCOLS:
            for source in ("a2", "node-a"):
                proxy.served(source, proto, address, port, "b1")
            proxy.dropped("client", proto, address, port)


def test_row_11_external_local_with_one_local_is_that_one_from_inside_too(proxy, family):
    """A server of IPVS has the same endpoints whoever dials it."""
    svc = local_service(proxy, "a1", "b1")
    for address, port in everywhere(svc, family):
        for source in ("a2", "node-a", "client"):
            assert set(proxy.pods_of(source, "tcp", address, port, 8)) == {"a1"}


def bound(proxy):
    return proxy.kernel().bound


def test_row_17_external_ip_of_this_node_stays_its_own(proxy, family):
    def others():
        listed = json.loads(proxy.host.out("ip", "-j", "addr"))
        return [link["addr_info"] for link in listed if link["ifname"] != LINK]

    before = others()
    svc = proxy.service("b1", external=SECOND)
    with proxy.serving("own", "node-a", 22):
        assert others() == before and SECOND[family] not in bound(proxy)
        assert svc.ip(family) in bound(proxy)
        proxy.served("client", "tcp", SECOND[family], 80, "b1")
        proxy.served("client", "tcp", SECOND[family], 22, "own", CLIENT[family])
        proxy.served("a1", "tcp", SECOND[family], 22, "own")
    proxy.clear()
    proxy.settle()
    assert others() == before
    assert not proxy.kernel().server("tcp", SECOND[family], 80)


def test_row_17_an_address_that_is_bound_becomes_the_nodes_and_no_more(proxy, family):
    """An interface that gets it has it alone; when it loses it, it is bound again."""
    svc = proxy.service("a1", external=True)
    vip = svc.external(family)
    assert vip in bound(proxy)
    proxy.host.ip(f"addr add {vip}/{32 if family == 4 else 128} dev enp2s0"
                  + (" nodad" if family == 6 else ""))
    try:
        proxy.wait_kernel(lambda kernel: vip not in kernel.bound, "it to be unbound")
        proxy.served("client", "tcp", vip, 80, "a1")
    finally:
        proxy.host.ip(f"addr del {vip}/{32 if family == 4 else 128} dev enp2s0")
    proxy.wait_kernel(lambda kernel: vip in kernel.bound, "it to be bound again")
    proxy.served("client", "tcp", vip, 80, "a1")


def test_row_18_external_ip_of_another_node_leaves_it_in_reach(proxy, family):
    """It is not bound: this node would take all that is meant for the other."""
    proxy.service("a1", external=NODE_B)
    with proxy.serving("own", "node-b", 22):
        for source in ("node-a", "a2", "client"):
            for proto in PROTOCOLS:
                proxy.served(source, proto, NODE_B[family], 22, "own")
        assert NODE_B[family] not in bound(proxy)


def test_row_24_no_node_ports_allocated(proxy, family):
    svc = proxy.service("a1", lb=True, allocateLoadBalancerNodePorts=False)
    proxy.served("client", "tcp", svc.external(family), 80, "a1")
    kernel = proxy.kernel()
    assert not [key for key in kernel.servers if key[1].endswith(":0")]
    assert not [key for key in kernel.servers if key[1].rpartition(":")[0].strip("[]")
                in proxy.addresses()]
    assert not kernel.elements("NODE-PORT-TCP", family)
