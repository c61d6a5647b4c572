"""Which of a Service's pods are chosen, and who may dial it. Every test runs with both overlays."""

import time

import pytest

from lab import wait_until
from lb_world import ALL_PODS, CLIENT, HELD, PROTOCOLS

UNREADY = {"conditions": {"ready": False}}


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_affinity_keeps_a_client_at_its_pod(lb, proto):
    svc = lb.service(*ALL_PODS, sessionAffinity="ClientIP")
    for source in ("client", "a2", lb.a):
        pod = lb.dial(source, proto, HELD, svc.port).pod
        assert set(lb.pods_of(source, proto, HELD, svc.port, 20)) == {pod}


def test_affinity_ends_with_the_pod_and_with_its_timeout(lb):
    svc = lb.service("b1", "c1", sessionAffinity="ClientIP")
    first = lb.dial("client", "tcp", HELD, svc.port).pod
    other = {"b1": "c1", "c1": "b1"}[first]
    lb.endpoints(svc, other)
    assert set(lb.pods_of("client", "tcp", HELD, svc.port, 5)) == {other}
    lb.endpoints(svc, "b1", "c1")
    assert set(lb.pods_of("client", "tcp", HELD, svc.port, 5)) == {other}
    svc.put(sessionAffinityConfig={"clientIP": {"timeoutSeconds": 1}})
    lb.settle()
    found = set()
    for _ in range(20):     # the same pod each time once in 500,000 runs
        found.add(lb.dial("client", "tcp", HELD, svc.port).pod)
        if found == {"b1", "c1"}:
            return
        time.sleep(1.2)     # every connection begins the time anew: it runs out only in between
    raise AssertionError(f"none but {found} after the time was over")


def test_policy_local_takes_pods_of_the_holder_alone(lb):
    svc = lb.service("a1", "b1", "c1", externalTrafficPolicy="Local")
    for proto in PROTOCOLS:
        assert set(lb.pods_of("client", proto, HELD, svc.port, 12)) == {"a1"}
        lb.served("client", proto, HELD, svc.port, "a1", CLIENT)
    lb.endpoints(svc, "b1", "c1")
    for proto in PROTOCOLS:
        lb.refused("client", proto, HELD, svc.port)
    svc.put(externalTrafficPolicy="Cluster")
    lb.settle()
    assert set(lb.pods_of("client", "tcp", HELD, svc.port, 30)) == {"b1", "c1"}


def test_source_ranges_drop_others(lb):
    svc = lb.service("a1", "b1", loadBalancerSourceRanges=["192.0.2.128/25", "198.51.100.0/30"])
    for proto in PROTOCOLS:
        lb.dropped("client", proto, HELD, svc.port)
    svc.put(loadBalancerSourceRanges=["192.0.2.128/25", "198.51.100.4/30"])
    lb.settle()
    for proto in PROTOCOLS:
        lb.served("client", proto, HELD, svc.port, ["a1", "b1"], CLIENT)
    svc.put(loadBalancerSourceRanges=None)
    lb.settle()
    for proto in PROTOCOLS:
        lb.served("client", proto, HELD, svc.port, ["a1", "b1"], CLIENT)


@pytest.mark.parametrize("firewall", [False, True], ids=["open", "firewall"])
@pytest.mark.parametrize("pods", [(), (("a1", UNREADY), ("b1", UNREADY))], ids=["none", "unready"])
def test_without_a_ready_endpoint_it_refuses_at_once(lb, pods, firewall):
    svc = lb.service(*pods)
    lb.lab.firewall(lb.a, firewall)
    try:
        for proto in PROTOCOLS:
            lb.refused("client", proto, HELD, svc.port)
            lb.refused("a2", proto, HELD, svc.port)
        lb.endpoints(svc, "b1")
        for proto in PROTOCOLS:
            lb.served("client", proto, HELD, svc.port, "b1", CLIENT)
    finally:
        lb.lab.firewall(lb.a, on=False)


def test_it_refuses_though_something_of_the_nodes_listens(lb):
    svc = lb.service()
    with lb.serving("own", lb.a, svc.port):
        for proto in PROTOCOLS:
            lb.refused("client", proto, HELD, svc.port)


def test_a_pod_that_says_nothing_of_being_ready_is_ready(lb):
    svc = lb.service(("b1", {"conditions": {}}))
    lb.served("client", "tcp", HELD, svc.port, "b1", CLIENT)


@pytest.mark.parametrize("first, then", [("a1", "b1"), ("b1", "a1"), ("b1", "c1"), ("b1", "b2")])
def test_a_udp_client_with_one_socket_follows(lb, first, then):
    svc = lb.service(first)
    stream = lb.lab.stream("udp", HELD, svc.port).wait_answer()
    lb.endpoints(svc, then, settle=False)
    stream.wait_pod(then)
    report = stream.stop()
    assert report.pods == [first, then] and report.peers == [CLIENT], report
    assert report.longest_gap < 1, report


def test_a_udp_client_is_refused_and_served_again(lb):
    svc = lb.service("b1")
    stream = lb.lab.stream("udp", HELD, svc.port).wait_answer()
    lb.endpoints(svc)
    for proto in PROTOCOLS:
        lb.refused("client", proto, HELD, svc.port)
    time.sleep(0.2)     # the stream sends so long without an answer
    lb.endpoints(svc, "c1", settle=False)
    stream.wait_pod("c1")
    report = stream.stop()
    assert report.pods == ["b1", "c1"] and report.refused > 0, report


def test_tcp_connections_outlive_a_change_of_endpoints(lb):
    svc = lb.service("b1")
    stream = lb.lab.stream("tcp", HELD, svc.port, push=True).wait_answer()
    lb.endpoints(svc, "c1")
    lb.served("client", "tcp", HELD, svc.port, "c1", CLIENT)
    report = stream.stop()
    assert report.nothing_lost and report.pods == ["b1"], report


def test_the_status_shows_the_address(lb):
    svc = lb.service("b1")
    wait_until(lambda: lb.ingress(svc) == [{"ip": HELD, "ipMode": "Proxy"}], 5,
               lambda: f"the address in the status: {lb.ingress(svc)}")


@pytest.mark.parametrize("address", ["", "2001:db8::1", "203.0.113.250"])
def test_an_address_that_nobody_has_is_served_by_none(lb, address):
    """The reason is logged, and nothing else suffers."""
    svc = lb.service("b1", address=address)
    reason = "NoHolder" if address == "203.0.113.250" else "AddressInvalid"
    lb.wait_log("a", "event=problem", reason, svc.name)
    assert lb.ingress(svc) == []
    other = lb.service("c1")
    lb.served("client", "tcp", HELD, other.port, "c1", CLIENT)


def test_another_class_is_left_alone(lb):
    svc = lb.service("b1", loadBalancerClass="example.com/other")
    for proto in PROTOCOLS:
        lb.refused("client", proto, HELD, svc.port)
    assert not lb.serves("a", svc) and lb.ingress(svc) == []


@pytest.mark.overlay_only("vxlan", "nothing of ours ends at a node's address")
def test_the_overlays_own_port_is_led_to_no_pod(lb):
    """The others' packets for the holder would go to the pod, and nothing of theirs to it."""
    svc = lb.service("b1")
    greedy = lb.service("a1", address=lb.mode.inside, settle=False)
    greedy.ports = (("tcp", "TCP", 4790, 8080), ("udp", "UDP", 4790, 8080))
    greedy.put()
    lb.lab.flush_conntrack()    # a stream of before would go on
    lb.settle()
    for proto in PROTOCOLS:
        lb.served("client", proto, HELD, svc.port, "b1", CLIENT)
    lb.wait_log("a", f"object=apps/{greedy.name}", 'value="4790"', "reason=PortConflict")
