"""Which endpoints serve: conditions, hints, affinity.

Test names begin with the number of the behaviour in the service proxy's specification.
"""

import time

import pytest

from lab import wait_until
from proxy_world import CLIENT, CLIENT_2, NODE_A, PROTOCOLS

pytestmark = pytest.mark.folder_only("the objects mean the same wherever they come from")

PORT = 30080
TERMINATING = {"conditions": {"ready": False, "serving": True, "terminating": True}}
FINISHED = {"conditions": {"ready": False, "serving": False, "terminating": True}}
NOT_READY = {"conditions": {"ready": False, "serving": True, "terminating": False}}


def serving(proxy, svc, family, source="a3"):
    """The pods that answer on the cluster IP."""
    return set(proxy.pods_of(source, "tcp", svc.ip(family), 80, 25))


def test_row_25_terminating_serves_when_nobody_is_ready(proxy, family):
    svc = proxy.service("a1", ("a2", TERMINATING), ("b1", TERMINATING))
    assert serving(proxy, svc, family) == {"a1"}
    proxy.endpoints(svc, ("a1", FINISHED), ("a2", TERMINATING), ("b1", TERMINATING))
    assert serving(proxy, svc, family) == {"a2", "b1"}
    proxy.endpoints(svc, ("a1", FINISHED), ("a2", FINISHED), ("b1", TERMINATING))
    assert serving(proxy, svc, family) == {"b1"}
    proxy.endpoints(svc, ("a2", TERMINATING), "b1")
    assert serving(proxy, svc, family) == {"b1"}
    proxy.endpoints(svc, ("a1", FINISHED))
    proxy.refused("a3", "tcp", svc.ip(family), 80)


def test_row_25_terminating_serves_locally_when_nobody_local_is_ready(proxy, family):
    """The local set and the cluster set fall back each for itself."""
    svc = proxy.service("b1", ("a1", TERMINATING), node_port=PORT, externalTrafficPolicy="Local")
    for proto in PROTOCOLS:
        for _ in range(8):
            proxy.served("client", proto, NODE_A[family], PORT, "a1", CLIENT[family])
            proxy.served("a3", proto, svc.ip(family), 80, "b1")
    proxy.endpoints(svc, "b1", "a2", ("a1", TERMINATING))
    assert set(proxy.pods_of("client", "tcp", NODE_A[family], PORT)) == {"a2"}
    proxy.endpoints(svc, "b1", ("a1", FINISHED))
    proxy.dropped("client", "tcp", NODE_A[family], PORT)


def test_row_26_not_ready_does_not_serve(proxy, family):
    svc = proxy.service("a1", ("a2", NOT_READY))
    assert serving(proxy, svc, family) == {"a1"}
    proxy.endpoints(svc, ("a2", NOT_READY))
    proxy.refused("a3", "tcp", svc.ip(family), 80)
    proxy.endpoints(svc, ("a2", {"conditions": {}}))       # what is not said is ready
    assert serving(proxy, svc, family) == {"a2"}


def hinted(proxy, kind, a1, a2, b1, settle=True, svc=None):
    """A Service whose pods carry hints; None is a pod without one."""
    def hint(names):
        return {"hints": {kind: [{"name": name} for name in names]}} if names else {}
    pods = [("a1", hint(a1)), ("a2", hint(a2)), ("b1", hint(b1))]
    if svc:
        proxy.endpoints(svc, *pods)
        return svc
    return proxy.service(*pods, settle=settle)


def test_row_27_zone_hints(proxy, family):
    svc = hinted(proxy, "forZones", ["zone-a"], ["zone-b"], ["zone-b", "zone-a"])
    assert serving(proxy, svc, family) == {"a1", "b1"}
    hinted(proxy, "forZones", ["zone-a"], ["zone-b"], None, svc=svc)       # one says nothing
    assert serving(proxy, svc, family) == {"a1", "a2", "b1"}
    hinted(proxy, "forZones", ["zone-c"], ["zone-b"], ["zone-b"], svc=svc)     # none is for here
    assert serving(proxy, svc, family) == {"a1", "a2", "b1"}
    proxy.node("node-a", zone="zone-c")
    try:
        proxy.settle()
        assert serving(proxy, svc, family) == {"a1"}
    finally:
        proxy.node("node-a")


def test_row_27_node_hints(proxy, family):
    svc = hinted(proxy, "forNodes", ["node-a"], ["node-b"], ["node-b"])
    assert serving(proxy, svc, family) == {"a1"}
    hinted(proxy, "forNodes", ["node-a"], None, ["node-b"], svc=svc)
    assert serving(proxy, svc, family) == {"a1", "a2", "b1"}
    hinted(proxy, "forNodes", ["node-c"], ["node-b"], ["node-b"], svc=svc)
    assert serving(proxy, svc, family) == {"a1", "a2", "b1"}


def test_row_27_node_hints_come_before_zone_hints(proxy, family):
    both = [("a1", {"hints": {"forNodes": [{"name": "node-a"}], "forZones": [{"name": "zone-b"}]}}),
            ("b1", {"hints": {"forNodes": [{"name": "node-b"}], "forZones": [{"name": "zone-a"}]}})]
    svc = proxy.service(*both)
    assert serving(proxy, svc, family) == {"a1"}


def test_row_27_hints_of_those_that_are_not_ready_do_not_count(proxy, family):
    svc = proxy.service(("a1", {"hints": {"forZones": [{"name": "zone-a"}]}}),
                        ("a2", {"hints": {"forZones": [{"name": "zone-b"}]}}), ("b1", NOT_READY))
    assert serving(proxy, svc, family) == {"a1"}


def sticky(proxy, *pods, seconds=2, **options):
    return proxy.service(*pods, sessionAffinity="ClientIP",
                         sessionAffinityConfig={"clientIP": {"timeoutSeconds": seconds}}, **options)


def remembered(proxy, family, source):
    """Milliseconds a client is still remembered, None when it is not."""
    listed = proxy.host.out("nft", "list", "map", "inet", "portolan", f"affinity{family}")
    for line in listed.replace("elements = {", ",").replace("}", ",").split(","):
        words = line.split()
        if source in words and "expires" in words:
            return _milliseconds(words[words.index("expires") + 1])
    return None


def _milliseconds(text):
    """`1s998ms`, `2h59m59s996ms`"""
    total, number = 0, ""
    units = {"d": 86400000, "h": 3600000, "m": 60000, "s": 1000, "ms": 1}
    text = text.replace("ms", "!")
    for letter in text:
        if letter.isdigit():
            number += letter
        else:
            total += int(number) * units["ms" if letter == "!" else letter]
            number = ""
    return total


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_row_28_affinity(proxy, family, proto):
    """By the client's address, refreshed by each new connection, forgotten after its time."""
    svc = sticky(proxy, "a1", "a2", "b1", seconds=3)
    source = proxy.lab.pod("a3").address(family)
    assert len(set(proxy.pods_of("a3", proto, svc.ip(family), 80, 15))) == 1

    def some_less():
        left = remembered(proxy, family, source)
        assert left, "it is forgotten"
        return left if left < 2000 else None
    left = wait_until(some_less, 5, "some time to pass")
    proxy.served("a3", proto, svc.ip(family), 80, ["a1", "a2", "b1"])
    began = time.monotonic()
    refreshed = remembered(proxy, family, source)
    assert left < refreshed <= 3000
    wait_until(lambda: remembered(proxy, family, source) is None, 5, "the client to be forgotten")
    assert time.monotonic() - began > refreshed / 1000 - 0.05
    proxy.served("a3", proto, svc.ip(family), 80, ["a1", "a2", "b1"])
    assert remembered(proxy, family, source)


def test_row_28_clients_are_told_apart(proxy, family):
    """Two clients of 10 services with 3 endpoints get the same pods everywhere by chance only."""
    all_of = [sticky(proxy, "a1", "a2", "b1", external=True, settle=False) for _ in range(10)]
    proxy.settle()
    chosen = {}
    for source in (CLIENT[family], CLIENT_2[family]):
        for _ in range(3):
            chosen.setdefault(source, set()).add(tuple(
                proxy.dial("client", "tcp", svc.external(family), 80, source_address=source).pod
                for svc in all_of))
    assert [len(each) for each in chosen.values()] == [1, 1], chosen
    assert chosen[CLIENT[family]] != chosen[CLIENT_2[family]]


def test_row_28_default_time_and_another_later(proxy, family):
    svc = proxy.service("a1", "a2", sessionAffinity="ClientIP")
    source = proxy.lab.pod("a3").address(family)
    pod = proxy.served("a3", "tcp", svc.ip(family), 80, ["a1", "a2"]).pod
    assert 10790_000 < remembered(proxy, family, source) <= 10800_000
    svc.put(sessionAffinityConfig={"clientIP": {"timeoutSeconds": 60}})
    proxy.settle()
    assert set(proxy.pods_of("a3", "tcp", svc.ip(family), 80, 5)) == {pod}
    assert 50_000 < remembered(proxy, family, source) <= 60_000
    svc.put(sessionAffinity="None", sessionAffinityConfig=None)
    proxy.settle()
    assert set(proxy.pods_of("a3", "tcp", svc.ip(family), 80, 30)) == {"a1", "a2"}


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_row_29_affinity_to_one_that_is_gone_is_chosen_again(proxy, family, proto):
    left = ["a1", "a2", "b1"]
    svc = sticky(proxy, *left, seconds=100)
    while len(left) > 1:
        pods = set(proxy.pods_of("a3", proto, svc.ip(family), 80, 10))
        assert len(pods) == 1 and pods <= set(left), (pods, left)
        left.remove(pods.pop())
        proxy.endpoints(svc, *left)
    assert set(proxy.pods_of("a3", proto, svc.ip(family), 80, 3)) == set(left)


def test_row_30_affinity_is_shared_by_the_addresses_of_a_service_port(proxy, family):
    svc = sticky(proxy, "a1", "a2", "b1", seconds=100, node_port=PORT, external=True)
    ways = ((svc.ip(family), 80), (svc.external(family), 80), (NODE_A[family], PORT))
    for source in ("a3", "client", "node-a"):
        pods = {proxy.dial(source, "tcp", address, port).pod for _ in range(5)
                for address, port in ways}
        assert len(pods) == 1 and None not in pods, (source, pods)


def test_row_30_affinity_is_per_service_port(proxy, family):
    """12 ports and 3 endpoints: all on the same by chance once in 170,000 runs."""
    ports = tuple((f"p{n}", "TCP", n, 8080) for n in range(81, 93))
    svc = sticky(proxy, "a1", "a2", "b1", seconds=100, ports=ports)
    first = [proxy.dial("a3", "tcp", svc.ip(family), port).pod for _, _, port, _ in ports]
    assert None not in first and len(set(first)) > 1
    assert [proxy.dial("a3", "tcp", svc.ip(family), port).pod for _, _, port, _ in ports] == first


def test_row_30_affinity_of_external_local(proxy, family):
    """Clients outside stay with a local pod, those inside with any; each keeps to its own."""
    svc = sticky(proxy, "a1", "a2", "b1", "b2", seconds=100, node_port=PORT,
                 externalTrafficPolicy="Local")
    outside = set(proxy.pods_of("client", "tcp", NODE_A[family], PORT, 10))
    assert len(outside) == 1 and outside <= {"a1", "a2"}
    inside = set(proxy.pods_of("a3", "tcp", NODE_A[family], PORT, 10))
    assert len(inside) == 1
    proxy.endpoints(svc, "b1", "b2")
    proxy.dropped("client", "tcp", NODE_A[family], PORT)
    inside = set(proxy.pods_of("a3", "tcp", NODE_A[family], PORT, 10))
    assert len(inside) == 1 and inside <= {"b1", "b2"}
