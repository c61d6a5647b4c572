"""What is dialled at a held address arrives at the Service's pods, on whichever node they run.

Every test runs with both overlays.
"""

import collections

import pytest

from lab import wait_until
from lab.witness import witness
from lb_world import ALL_PODS, CLIENT, HELD, PROTOCOLS, SPARE

NEAR_AND_FAR = ("a1", "b1", "c1")


def far_addresses(lb):
    """By which a pod may know node a when it masquerades."""
    return lb.addresses(lb.a)


@pytest.mark.parametrize("pod", NEAR_AND_FAR)
def test_the_pod_sees_the_client_and_the_answer_is_from_where_it_dialled(lb, pod):
    svc = lb.service(pod)
    for proto in PROTOCOLS:
        lb.served("client", proto, HELD, svc.port, pod, CLIENT)


@pytest.mark.parametrize("pod", NEAR_AND_FAR)
def test_the_holders_firewall_does_not_matter(lb, pod):
    svc = lb.service(pod)
    lb.lab.firewall(lb.a)
    try:
        for proto in PROTOCOLS:
            lb.served("client", proto, HELD, svc.port, pod, CLIENT)
            # It stays shut for all else.
            found = lb.dial("client", proto, HELD, 4999, timeout=0.3)
            assert found.error == "timeout", found
    finally:
        lb.lab.firewall(lb.a, on=False)


def test_an_address_of_a_node_whose_firewall_drops_new_connections(lb):
    """Node b holds: its own pod, and one of node a, which tells a second holder from the first."""
    with lb.having("b"):
        lb.lab.firewall(lb.b)
        try:
            lb.lead(lb.b)
            near, far = lb.service("b1", address=SPARE), lb.service("a1", address=SPARE)
            also = lb.service("b1")
            for proto in PROTOCOLS:
                lb.wait_served("client", proto, SPARE, near.port, "b1")
                lb.wait_served("client", proto, SPARE, far.port, "a1")
                lb.served("client", proto, SPARE, near.port, "b1", CLIENT)
                lb.served("client", proto, SPARE, far.port, "a1", CLIENT)
                lb.served("client", proto, HELD, also.port, "b1", CLIENT)
        finally:
            lb.lab.firewall(lb.b, lb.lab.topology.hosts[lb.b].firewall)


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_endpoints_everywhere_are_chosen_alike(lb, proto):
    """Chi-square over five pods of three nodes; 23.5 is exceeded once in 10,000 fair draws."""
    svc = lb.service(*ALL_PODS)
    draws = 400
    found = collections.Counter(lb.pods_of("client", proto, HELD, svc.port, draws))
    expected = draws / len(ALL_PODS)
    chi_square = sum((found[pod] - expected) ** 2 / expected for pod in ALL_PODS)
    assert set(found) == set(ALL_PODS) and chi_square < 23.5, found


@pytest.mark.parametrize("pod", NEAR_AND_FAR)
@pytest.mark.parametrize("proto", PROTOCOLS)
def test_much_in_both_directions(lb, proto, pod):
    """More than one segment, and datagrams as long as the way takes: no packet may be lost to its size."""
    svc = lb.service(pod)
    size = 2_000_000 if proto == "tcp" else 1200
    found = lb.dial("client", proto, HELD, svc.port, size=size, timeout=30)
    assert found.answered and (found.pod, found.peer) == (pod, CLIENT), found


def test_a_long_datagram_is_fragmented_and_arrives(lb):
    svc = lb.service("b1")
    found = lb.dial("client", "udp", HELD, svc.port, size=4000, may_fragment=True)
    assert found.answered and found.peer == CLIENT, found


@pytest.mark.parametrize("pod", NEAR_AND_FAR)
def test_from_a_pod_of_the_holder(lb, pod):
    svc = lb.service(pod)
    own = lb.lab.pod("a2").address()
    for proto in PROTOCOLS:
        lb.served("a2", proto, HELD, svc.port, pod, own)


@pytest.mark.parametrize("pod", NEAR_AND_FAR)
def test_from_the_holder_itself(lb, pod):
    svc = lb.service(pod)
    for proto in PROTOCOLS:
        lb.served(lb.a, proto, HELD, svc.port, pod, lb.addresses(lb.a))


@pytest.mark.parametrize("pod", ["a1", "b1", "b2", "c1"])
def test_from_another_node(lb, pod):
    """Also when the pod is the dialling node's own: it must not meet its own address from outside."""
    svc = lb.service(pod, address=lb.mode.inside)
    for proto in PROTOCOLS:
        peers = lb.addresses(lb.a if pod.startswith("b") else lb.b)
        lb.served(lb.b, proto, lb.mode.inside, svc.port, pod, peers)


@pytest.mark.parametrize("pod", ["a1", "b1", "c1"])
def test_from_a_pod_of_another_node(lb, pod):
    """Its node masquerades what leaves the pod network: the CNI's doing, not ours."""
    svc = lb.service(pod, address=lb.mode.inside)
    peers = {lb.lab.pod("b2").address()} | lb.addresses(lb.b) | lb.addresses(lb.a)
    for proto in PROTOCOLS:
        lb.served("b2", proto, lb.mode.inside, svc.port, pod, peers)


@pytest.mark.parametrize("pod", NEAR_AND_FAR)
def test_a_pod_that_dials_its_own_service(lb, pod):
    svc = lb.service(pod, address=lb.mode.inside)
    for proto in PROTOCOLS:
        lb.served(pod, proto, lb.mode.inside, svc.port, pod)


@pytest.mark.parametrize("letter", ["a", "b"])
def test_a_pod_in_the_network_of_a_node(lb, letter):
    """Its address is the node's own: the holder's, or another's."""
    own = lb.lab.host_network_pod("own", lb.mode.nodes[letter], ports=[9090], bound=True)
    try:
        svc = lb.service()
        lb.endpoints(svc, "own", ports=[(proto, proto.upper(), 9090) for proto in PROTOCOLS])
        for proto in PROTOCOLS:
            lb.served("client", proto, HELD, svc.port, "own", CLIENT)
            lb.served("a1", proto, HELD, svc.port, "own")
        assert own.address() == lb.lab.internal_ip(lb.mode.nodes[letter])
    finally:
        lb.lab.remove_host_network_pod("own")


def test_two_services_on_one_address(lb):
    one, two = lb.service("a1"), lb.service("b1")
    for proto in PROTOCOLS:
        lb.served("client", proto, HELD, one.port, "a1", CLIENT)
        lb.served("client", proto, HELD, two.port, "b1", CLIENT)


def test_one_client_port_dials_two_holders_at_once(lb):
    """The pod's node tells the connections apart by their holders alone."""
    with lb.having("b"):
        lb.lead(lb.b)
        here, there = lb.service("c1"), lb.service("c1", address=SPARE)
        for proto in PROTOCOLS:
            lb.wait_served("client", proto, SPARE, there.port, "c1")
            for address, svc in ((HELD, here), (SPARE, there)):
                lb.served("client", proto, address, svc.port, "c1", CLIENT, source_port=40001)


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_other_ports_of_the_address_are_the_nodes_own(lb, proto):
    svc = lb.service("b1")
    with lb.serving("own", lb.a, 2222):
        lb.served("client", proto, HELD, 2222, "own", CLIENT)
        lb.served(lb.a, proto, HELD, 2222, "own")
        lb.served("a1", proto, HELD, 2222, "own")
    lb.refused("client", proto, HELD, 2222)
    # Without the Service its port is the node's own as well.
    lb.delete(svc)
    lb.settle()
    with lb.serving("own", lb.a, svc.port):
        lb.served("client", proto, HELD, svc.port, "own", CLIENT)


def test_answers_pass_the_holder_and_no_other_way(lb):
    """Those of pods elsewhere come back over the overlay."""
    svc = lb.service("b1")
    with witness(lb.node("a"), "prerouting", -400,
                 back=f'iifname "{lb.mode.device}" ip saddr {lb.lab.pod("b1").address()} '
                      f"ip daddr {CLIENT}") as holder:
        for proto in PROTOCOLS:
            lb.served("client", proto, HELD, svc.port, "b1", CLIENT)
            before = holder["back"]
            assert before > 0


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_a_stream_both_ways_loses_nothing(lb, proto):
    svc = lb.service("c1")
    stream = lb.lab.stream(proto, HELD, svc.port, push=True).wait_answer()
    wait_until(lambda: len(lb.node("c").conntrack("-p", proto)) > 0, 5, "the connection's entry")
    report = stream.stop()
    assert report.nothing_lost and report.peers == [CLIENT], report
