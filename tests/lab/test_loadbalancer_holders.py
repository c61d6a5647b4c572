"""Who holds an address: it is published, it moves, two have it, nobody has it, somebody lies.

Every test runs with both overlays.
"""

import time

import pytest

from lab import promptly, seconds_until, wait_until
from lab.hammer import Hammer
from lab.nft_events import Elements, key_of
from lb_world import (ADDRESSES, CLIENT, HELD, OVERLAY, PROTOCOLS, SPARE, rules_of)

PUBLISHED = {"edge-a": {"weave": "203.0.113.9", "vxlan": "100.64.93.1,203.0.113.9"},
             "node-b": {"weave": "203.0.113.137"}, "node-c": {"weave": "192.0.2.9"},
             "worker-b": {"vxlan": "100.64.93.2,192.168.2.20"},
             "worker-c": {"vxlan": "100.64.93.3,192.168.3.20"}}


HOLDER_RULE = (104, "0x6c000000/0xff000000", "131180")


def published(lb, letter):
    return PUBLISHED[lb.mode.nodes[letter]][lb.mode.overlay]


def device_of(lb, letter):
    """"<ip>,<mac>" of the node's overlay, from its kernel."""
    node = lb.node(letter)
    words = node.out("ip", "-o", "link", "show", "dev", lb.mode.device).split()
    address = node.out("ip", "-o", "-4", "addr", "show", "dev", lb.mode.device).split()[3]
    return f"{address.split('/')[0]},{words[words.index('link/ether') + 1]}"


@pytest.mark.parametrize("letter", ["a", "b", "c"])
def test_each_node_publishes_its_addresses_and_its_overlay(lb, letter):
    """Of its own interfaces: neither pods' bridges nor the overlay nor loopback."""
    lb.wait_annotation(lb.mode.nodes[letter], ADDRESSES, published(lb, letter))
    lb.wait_annotation(lb.mode.nodes[letter], OVERLAY, device_of(lb, letter))


def test_a_change_is_published_within_a_second(lb):
    lb.wait_annotation(lb.b, ADDRESSES, published(lb, "b"))
    more = ",".join(sorted([*published(lb, "b").split(","), SPARE]))

    def one():
        took = 0
        for verb, expected in (("add", more), ("del", published(lb, "b"))):
            lb.node("b").ip(f"addr {verb} {SPARE}/32 dev enp1s0")
            took = max(took, seconds_until(lambda: lb.annotation(lb.b, ADDRESSES) == expected,
                                           lambda: f"{expected} to be published"))
        return took
    with lb.having():
        promptly(1, one)


def test_nothing_is_written_when_nothing_changes(lb):
    svc = lb.service("b1")
    wait_until(lambda: lb.ingress(svc), 5, "the status")
    seen = {"state": None, "since": 0.0}

    def still():
        if (now := lb.status.versions()) != seen["state"]:
            seen.update(state=now, since=time.monotonic())
        return time.monotonic() - seen["since"] > 4
    wait_until(still, 15, "nothing to be written for a while", interval=0.05)
    logs = [agent.log() for agent in lb.agents()]
    # What is no address of the node's is no news either.
    lb.node("b").ip("link add idle0 type veth peer name idle1", "link set idle0 up",
                    "link del idle0")
    time.sleep(3)       # nothing may happen for a while
    assert lb.status.versions() == seen["state"]
    assert [agent.log() for agent in lb.agents()] == logs


def test_every_other_node_has_a_rule_for_the_holder(lb):
    """Edge-a's name hashes to 107, which is PortMaps'; the next one is its mark."""
    lb.service("b1")
    for letter in ("b", "c"):
        wait_until(lambda node=lb.node(letter): HOLDER_RULE in rules_of(node), 5,
                   lambda node=lb.node(letter): f"{HOLDER_RULE}: {rules_of(node)}")
    assert HOLDER_RULE not in rules_of(lb.node("a"))


@pytest.mark.parametrize("pod", ["a1", "b1", "c1"])
def test_an_address_that_moves_is_served_again_within_a_second(lb, pod):
    with lb.having("a"):
        svc = lb.service(pod, address=SPARE)
        for proto in PROTOCOLS:
            lb.wait_served("client", proto, SPARE, svc.port, pod)
        heard = Elements({letter: lb.node(letter).ns for letter in "ab"}, "service4",
                         key_of(SPARE, "tcp", svc.port))
        took = []
        for there, gone in (("b", "a"), ("a", "b"), ("b", "a")):
            lb.node(gone).ip(f"addr del {SPARE}/32 dev enp1s0")
            lb.node(there).ip(f"addr add {SPARE}/32 dev enp1s0")
            lb.lead(lb.mode.nodes[there])
            moved = time.monotonic()
            for proto in PROTOCOLS:
                lb.wait_served("client", proto, SPARE, svc.port, pod)
            took.append(time.monotonic() - moved)
            for proto in PROTOCOLS:
                lb.served("client", proto, SPARE, svc.port, pod, CLIENT)
            wait_until(lambda gone=gone: not lb.serves(gone, svc, SPARE), 5, "the old holder to end")
        assert sorted(took)[1] < 1, took  # one of three may have met a busy machine
        changes = heard.stop(6)
        since, both = {"a": 0}, []      # who serves, and since when; how long two did
        for when, letter, begins in changes:
            if begins:
                since[letter] = when
            else:
                del since[letter]
                both.append(max([when - other for other in since.values()], default=0))
        # The one who hears may have been busy.
        assert sorted(both)[1] < 0.05, f"by two: {changes}"
        assert set(since) == {"b"} and len(changes) == 6, changes
        lb.node("b").ip(f"addr del {SPARE}/32 dev enp1s0")
        wait_until(lambda: lb.ingress(svc) == [], 5, "the status to be cleared")


def test_new_connections_meet_the_move_and_go_on(lb):
    """Somebody dials without end: after a second at most it is as if nothing had been."""
    with lb.having("a"):
        svc = lb.service("b1", "c1", address=SPARE)
        lb.wait_served("client", "tcp", SPARE, svc.port)
        hammer, spans = Hammer(lb.lab.client.ns, SPARE, svc.port, pause=0.005), []
        for there, gone in (("b", "a"), ("a", "b"), ("b", "a")):
            lb.node(gone).ip(f"addr del {SPARE}/32 dev enp1s0")
            lb.node(there).ip(f"addr add {SPARE}/32 dev enp1s0")
            lb.lead(lb.mode.nodes[there])
            moved = time.monotonic()
            lb.wait_served("client", "tcp", SPARE, svc.port)
            time.sleep(1.5)     # new connections have this long to go on
            spans.append((moved + 1, time.monotonic()))
        connects = hammer.stop()
        late = [[one for one in connects if begin < one.began and one.ended < end]
                for begin, end in spans]
        # One whose first packet is lost waits a second, or three, and so do those behind it.
        assert sum(map(len, late)) > 20, [len(each) for each in late]
        failed = [[one for one in each if one.error] for each in late]
        assert sorted(map(len, failed))[1] == 0, failed    # one of three may have met a busy machine


def test_two_holders_are_none(lb):
    with lb.having("a"):
        svc = lb.service("b1", address=SPARE)
        lb.wait_served("client", "tcp", SPARE, svc.port, "b1")
        wait_until(lambda: lb.ingress(svc), 5, "the status")
        lb.node("b").ip(f"addr add {SPARE}/32 dev enp1s0")
        lb.wait_log("a", "event=problem", "SeveralHolders", svc.name, SPARE, lb.a, lb.b)
        wait_until(lambda: not lb.serves("a", svc, SPARE), 5, "node a to serve no more")
        wait_until(lambda: lb.ingress(svc) == [], 5, "the status to be cleared")
        assert not lb.serves("b", svc, SPARE)
        assert lb.dial("client", "tcp", SPARE, svc.port).error == "refused"
        lb.node("b").ip(f"addr del {SPARE}/32 dev enp1s0")
        lb.wait_served("client", "tcp", SPARE, svc.port, "b1")
        wait_until(lambda: lb.ingress(svc) == [{"ip": SPARE, "ipMode": "Proxy"}], 5, "the status")


@pytest.mark.kube_only("a folder has no Events")
def test_two_holders_are_an_event(lb):
    with lb.having("a", "b"):
        svc = lb.service("b1", address=SPARE)
        wait_until(lambda: [one for one in lb.events("SeveralHolders")
                            if one[0] == f"Service {svc.name}"], 15,
                   lambda: f"the Event: {lb.events('SeveralHolders')}", interval=0.1)
        found = [one for one in lb.events("SeveralHolders") if one[0] == f"Service {svc.name}"]
        assert len(found) == 1 and SPARE in found[0][1] and lb.a in found[0][1], found


GARBAGE = {
    "addresses": ({ADDRESSES: "198.18.0.1,nonsense"}, ADDRESSES),
    "ipv6": ({ADDRESSES: "2001:db8::1"}, ADDRESSES),
    "overlay": ({ADDRESSES: "192.0.2.77", OVERLAY: "10.32.9.1;aa:bb"}, OVERLAY),
    "mac": ({ADDRESSES: "192.0.2.77", OVERLAY: "10.32.9.1,aa:bb:cc:dd:ee"}, OVERLAY),
    "binary": ({ADDRESSES: "\u20ac\n\t,,,;'\"" + 500 * "9", OVERLAY: 700 * ","}, ADDRESSES),
}


@pytest.mark.parametrize("which", GARBAGE)
def test_garbage_in_a_neighbours_annotation_hurts_nobody(lb, which):
    """It is named with the node, the annotation and the value; that node holds nothing."""
    annotations, key = GARBAGE[which]
    stranger = f"stranger-{which}"
    svc, spare = lb.service("b1"), lb.service("c1", address=SPARE)
    stream = lb.lab.stream("tcp", HELD, svc.port, push=True).wait_answer()
    lb.objects.node(stranger, "192.0.2.99", annotations=annotations)
    try:
        for letter in ("a", "b", "c"):
            line = lb.wait_log(letter, "event=problem", "InvalidAnnotation", stranger, key)
            assert annotations[key][-4:].strip(",\"") in line or which == "binary", line
        lb.settle()
        for proto in PROTOCOLS:
            lb.served("client", proto, HELD, svc.port, "b1", CLIENT)
        assert not lb.serves("a", spare, SPARE)
        assert stream.stop().nothing_lost
    finally:
        lb.objects.delete("Node", stranger)
    for letter in ("a", "b", "c"):
        lb.wait_log(letter, "event=cleared", stranger)


def test_a_holder_without_an_overlay_gets_no_mark_and_is_named(lb):
    lb.service("b1", address="192.0.2.77")
    lb.objects.node("stranger", "192.0.2.99", annotations={ADDRESSES: "192.0.2.77"})
    try:
        lb.wait_log("b", "event=problem", "HolderWithoutOverlay", "stranger")
        # Edge-a alone has a table.
        wait_until(lambda: {table for _, _, table in rules_of(lb.node("c"))
                            if int(table) > 131072} == {"131180"}, 5,
                   lambda: f"the holder's rule alone: {rules_of(lb.node('c'))}")
    finally:
        lb.objects.delete("Node", "stranger")


def test_an_endpoint_of_a_node_without_an_overlay_is_left_out_and_named(lb):
    """A node that has just joined, or whose agent has no such feature: the others serve."""
    lb.objects.node("stranger", "192.0.2.99")
    try:
        svc = lb.service("b1", settle=False)
        lb.objects.put("discovery.k8s.io/v1", "EndpointSlice", f"{svc.name}-more", {
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.99.0.9"], "nodeName": "stranger"}],
            "ports": [{"name": proto, "protocol": proto.upper(), "port": 8080}
                      for proto in PROTOCOLS]},
            "apps", {"kubernetes.io/service-name": svc.name})
        svc.slices.add(f"{svc.name}-more")
        lb.wait_log("a", "event=problem", "EndpointUnreachable", svc.name, "10.99.0.9", "stranger")
        lb.settle()
        for proto in PROTOCOLS:
            assert set(lb.pods_of("client", proto, HELD, svc.port, 8)) == {"b1"}
    finally:
        lb.objects.delete("Node", "stranger")


@pytest.mark.overlay_only("weave", reason="the agent itself gives the other overlay its address")
def test_the_overlays_address_changes_and_answers_follow(lb):
    """What a holder publishes is what the others route to, at once."""
    svc = lb.service("b1", "c1")
    node = lb.node("a")
    before = lb.annotation(lb.a, OVERLAY)
    old, mac = before.split(",")
    other = mac[:-2] + "77"
    node.ip(f"link set weave address {other}")
    try:
        lb.wait_annotation(lb.a, OVERLAY, f"{old},{other}")
        for proto in PROTOCOLS:
            for _ in range(4):
                lb.wait_served("client", proto, HELD, svc.port)
    finally:
        node.ip(f"link set weave address {mac}")
        lb.wait_annotation(lb.a, OVERLAY, before)
    lb.wait_served("client", "tcp", HELD, svc.port)
