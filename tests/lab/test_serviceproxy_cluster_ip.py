"""Cluster IPs: reached, spread, refused, dropped; masqueraded only where it must be.

Test names begin with the number of the behaviour in the service proxy's specification. Its rows 51
and 52, and what other rows say of the ipvs mode alone, are not here: this is the nftables mode.
"""

from collections import Counter

import pytest

from lab.witness import witness
from proxy_world import CLIENT, FLAGS, PROTOCOLS

pytestmark = pytest.mark.folder_only("the objects mean the same wherever they come from")


@pytest.mark.parametrize("pod", ["a1", "b1"])
def test_row_01_cluster_ip_from_pod_and_node(proxy, family, pod):
    svc = proxy.service(pod)
    for proto in PROTOCOLS:
        proxy.served("a2", proto, svc.ip(family), 80, pod, proxy.lab.pod("a2").address(family))
        proxy.served("node-a", proto, svc.ip(family), 80, pod, proxy.addresses())


def test_row_02_spread_is_uniform(proxy, family):
    svc = proxy.service("a1", "a2", "b1")
    counts = Counter(proxy.pods_of("a3", "tcp", svc.ip(family), 80, times=300))
    chi_square = sum((counts[pod] - 100) ** 2 / 100 for pod in ("a1", "a2", "b1"))
    assert chi_square < 23, counts      # two degrees of freedom: one run in 100,000 by chance


def test_row_03_named_target_port_differs_per_pod(proxy, family):
    svc = proxy.service(ports=(("main", "TCP", 80, "http"),))
    proxy.endpoints(svc, "a1", ports=[("main", "TCP", 8080)], suffix="-1")
    proxy.endpoints(svc, "a2", ports=[("main", "TCP", 9090)], suffix="-2")
    found = {(probe.pod, probe.local_port) for probe in
             (proxy.served("a3", "tcp", svc.ip(family), 80, ["a1", "a2"]) for _ in range(30))}
    assert found == {("a1", 8080), ("a2", 9090)}


def test_row_04_same_port_for_tcp_and_udp(proxy, family):
    svc = proxy.service("a1", ports=(("dns-tcp", "TCP", 53, 8080), ("dns", "UDP", 53, 9090)))
    assert proxy.served("a2", "tcp", svc.ip(family), 53, "a1").local_port == 8080
    assert proxy.served("a2", "udp", svc.ip(family), 53, "a1").local_port == 9090
    proxy.endpoints(svc, "a1", ports=[("dns-tcp", "TCP", 8080)])
    proxy.served("a2", "tcp", svc.ip(family), 53, "a1")
    proxy.refused("a2", "udp", svc.ip(family), 53)


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_row_05_hairpin(proxy, family, proto):
    svc = proxy.service("a1")
    proxy.served("a1", proto, svc.ip(family), 80, "a1", proxy.addresses())
    # Only who dials itself is masqueraded.
    proxy.served("a2", proto, svc.ip(family), 80, "a1", proxy.lab.pod("a2").address(family))


def internal_local(proxy, exposed):
    extra = {"node_port": 30080, "external": True} if exposed else {}
    return proxy.service("b1", internalTrafficPolicy="Local", **extra)


@pytest.mark.parametrize("exposed", [False, True], ids=["cluster-ip", "exposed"])
def test_row_12_internal_local_with_none_local_is_dropped(proxy, family, exposed):
    svc = internal_local(proxy, exposed)
    for source in ("a2", "node-a"):
        for proto in PROTOCOLS:
            proxy.dropped(source, proto, svc.ip(family), 80)
    if exposed:     # from outside it is another policy's
        proxy.served("client", "tcp", svc.external(family), 80, "b1")
    proxy.endpoints(svc, "a1", "b1")
    assert set(proxy.pods_of("a2", "tcp", svc.ip(family), 80)) == {"a1"}


def test_row_13_no_endpoints_is_refused_at_once(proxy, family):
    svc = proxy.service(node_port=30080, lb=True)
    for proto in PROTOCOLS:
        for source in ("a2", "node-a"):
            proxy.refused(source, proto, svc.ip(family), 80)
        proxy.refused("client", proto, svc.external(family), 80)


def test_row_14_unallocated_port_of_a_cluster_ip_is_refused(proxy, family):
    svc = proxy.service("a1")
    with proxy.serving("sshd", "node-a", 22):
        for source in ("a2", "node-a"):
            for proto in PROTOCOLS:
                proxy.refused(source, proto, svc.ip(family), 22)
        assert proxy.dial("node-a", "tcp", proxy.lab.pod("a1").address(family), 8080).answered


def test_row_15_unallocated_address_of_the_range_is_dropped(proxy, family):
    address = {4: "10.96.77.7", 6: "fd00:10:96::7777"}[family]
    word = {4: "ip", 6: "ip6"}[family]
    with witness(proxy.host, "postrouting", 300, left=f"{word} daddr {address}") as seen:
        for source in ("a2", "node-a", "client"):
            proxy.dropped(source, "tcp", address, 80)
            proxy.dropped(source, "udp", address, 80)
        assert seen["left"] == 0


def test_row_31_families_are_independent(proxy, family):
    """`family` has endpoints, the other has none."""
    svc = proxy.service(node_port=30080)
    proxy.endpoints(svc, "a1", families=[family])
    for proto in PROTOCOLS:
        proxy.served("a2", proto, svc.ip(family), 80, "a1")
        proxy.refused("a2", proto, svc.ip(10 - family), 80)


def test_row_31_single_stack(proxy, family):
    svc = proxy.service("a1", families=(family,))
    proxy.served("a2", "tcp", svc.ip(family), 80, "a1")
    proxy.dropped("a2", "tcp", svc.ip(10 - family), 80)


def test_row_32_sctp_has_all_rules(proxy, family):
    """There is no SCTP here to send: what tcp has in the table sctp has too."""
    svc = proxy.service("a1", ports=(("main", "SCTP", 80, 8080), ("tcp", "TCP", 80, 8080)),
                        external=True, sessionAffinity="ClientIP",
                        sessionAffinityConfig={"clientIP": {"timeoutSeconds": 60}})

    def of(name, proto):
        return sorted(tuple("P" if word == proto else word for word in element if word != 0)
                      for element in proxy.elements(f"{name}{family}")
                      if proto in element and element[0] in (svc.ip(family), svc.external(family)))

    for name in ("service", "endpoint", "affinityendpoint"):
        assert of(name, "sctp") and of(name, "sctp") == of(name, "tcp"), name
    assert {element[:3] for element in proxy.elements(f"affinityid{family}")} >= {
        (svc.ip(family), "sctp", 80), (svc.external(family), "sctp", 80)}
    rules = proxy.host.out("nft", "list", "table", "inet", "portolan").splitlines()
    for rule in [line.strip() for line in rules
                 if "l4proto tcp" in line and "tcp reset" not in line]:
        assert any(line.strip().split("counter")[0] == rule.replace("tcp", "sctp").split("counter")[0]
                   for line in rules), rule


@pytest.mark.parametrize("how", ["ClusterCIDR", "NodeCIDR"])
def test_row_38_who_is_no_pod_is_masqueraded(proxy, family, how):
    if how == "NodeCIDR":
        proxy.restart("--features", "serviceproxy", "--detect-local-mode", "NodeCIDR")
    svc = proxy.service("a1", "b1")
    for proto in PROTOCOLS:
        for _ in range(8):
            proxy.served("client", proto, svc.ip(family), 80, ["a1", "b1"], proxy.addresses())
        proxy.served("a2", proto, svc.ip(family), 80, ["a1", "b1"],
                     proxy.lab.pod("a2").address(family))


def test_row_38_without_a_pod_range_nobody_is_masqueraded(proxy, family):
    proxy.restart("--features", "serviceproxy")
    svc = proxy.service("a1")
    proxy.served("client", "tcp", svc.ip(family), 80, "a1", CLIENT[family])


def test_row_39_masquerade_all(proxy, family):
    proxy.restart(*FLAGS, "--masquerade-all")
    svc = proxy.service("a1", "b1")
    for proto in PROTOCOLS:
        for _ in range(8):
            proxy.served("a2", proto, svc.ip(family), 80, ["a1", "b1"], proxy.addresses())


@pytest.mark.parametrize("bit", [14, 3])
def test_row_40_mark_is_set_and_cleared_and_other_bits_stay(proxy, family, bit):
    if bit != 14:
        proxy.restart(*FLAGS, "--masquerade-bit", str(bit))
    svc = proxy.service("b1", external=True)
    foreign, mark = 0x10000, 1 << bit
    word = {4: "ip", 6: "ip6"}[family]
    to_pod = f"{word} daddr {proxy.lab.pod('b1').address(family)} tcp flags & (syn | ack) == syn "
    with witness(proxy.host, "prerouting", -150, "others",
                 marked=f"{word} daddr {svc.external(family)} meta mark set {foreign}"), \
         witness(proxy.host, "postrouting", 99, "early",
                 marked=f"{to_pod} meta mark & {mark} == {mark}",
                 foreign=f"{to_pod} meta mark & {foreign} == {foreign}") as early, \
         witness(proxy.host, "postrouting", 101, "late",
                 cleared=f"{to_pod} meta mark == {foreign}") as late:
        proxy.served("client", "tcp", svc.external(family), 80, "b1", proxy.addresses())
        seen = {**early.counts(), **late.counts()}
        assert seen["cleared"] and len(set(seen.values())) == 1, seen


def test_row_40_a_mark_alone_is_masqueraded(proxy, family):
    """As kube-proxy's: whoever sets the bit gets the node's address."""
    word = {4: "ip", 6: "ip6"}[family]
    target = proxy.lab.pod("b1").address(family)
    with witness(proxy.host, "prerouting", -150, "others",
                 marked=f"{word} daddr {target} meta mark set 0x4000"):
        proxy.served("a1", "tcp", target, 8080, "b1", proxy.addresses())
    proxy.served("a1", "tcp", target, 8080, "b1", proxy.lab.pod("a1").address(family))
