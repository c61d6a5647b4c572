"""Cluster IPs on IPVS: the nftables mode's tests where both do the same, and what differs.

Test names begin with the number of the behaviour in the service proxy's specification. Row 15, an
address of a ServiceCIDR that no Service has, is the nftables mode's alone.
"""

from collections import Counter

import pytest

from ipvs_world import CLIENTS
from lab import netns, wait_until
from lab.probe import open_socket
from lab.segment import arriving, send_stray_segment
from proxy_world import CLIENT, FLAGS, OTHER, PROTOCOLS
from test_serviceproxy_cluster_ip import (  # noqa: F401
    test_row_01_cluster_ip_from_pod_and_node,
    test_row_03_named_target_port_differs_per_pod,
    test_row_04_same_port_for_tcp_and_udp,
    test_row_05_hairpin,
    test_row_12_internal_local_with_none_local_is_dropped,
    test_row_13_no_endpoints_is_refused_at_once,
    test_row_31_families_are_independent,
    test_row_38_who_is_no_pod_is_masqueraded,
    test_row_38_without_a_pod_range_nobody_is_masqueraded,
    test_row_39_masquerade_all,
)


def test_row_02_spread_is_even(proxy, family):
    """Round robin: each as often as the others."""
    svc = proxy.service("a1", "a2", "b1")
    counts = Counter(proxy.pods_of("a3", "tcp", svc.ip(family), 80, times=30))
    assert counts == {"a1": 10, "a2": 10, "b1": 10}


def test_row_14_other_ports_of_a_bound_address_are_refused(proxy, family):
    """What listens on the node is not in reach by a Service's address, whoever dials."""
    svc = proxy.service("a1", lb=True)
    with proxy.listening("sshd", "node-a", 22):
        for address in (svc.ip(family), svc.external(family)):
            for proto in PROTOCOLS:
                for source in ("a2", "b1", "client"):
                    proxy.refused(source, proto, address, 22)
        proxy.served("client", "tcp", proxy.lab.pod("a1").address(family), 8080, "a1")
        for address in proxy.addresses():
            if address.startswith(("203.0.113", "2001:db8:113")):
                proxy.served("client", "tcp", address, 22, "sshd")


def test_row_14_also_for_the_node_itself(proxy, family):
    svc = proxy.service("a1")
    with proxy.listening("sshd", "node-a", 22):
        proxy.refused("node-a", "tcp", svc.ip(family), 22)


def test_row_31_single_stack(proxy, family):
    svc = proxy.service("a1", families=(family,))
    proxy.served("a2", "tcp", svc.ip(family), 80, "a1")
    assert not proxy.dial("a2", "tcp", svc.ip(10 - family), 80, timeout=0.2).answered
    assert svc.ip(10 - family) not in proxy.table()


ELSEWHERE = {4: "198.18.0.252", 6: "2001:db8:18::fc"}


def test_row_32_sctp_has_what_tcp_has(proxy, family):
    """There is no SCTP here to send: what tcp has in the kernel sctp has too."""
    svc = proxy.service("a1", ports=(("main", "SCTP", 80, 8080, 30080), ("tcp", "TCP", 80, 8080)),
                        external=ELSEWHERE, lb=True)
    kernel = proxy.kernel()
    for address in (svc.ip(family), svc.external(family), ELSEWHERE[family]):
        sctp, tcp = (kernel.server(proto, address, 80) for proto in ("sctp", "tcp"))
        assert sctp and sctp == tcp
    for name in ("CLUSTER-IP", "EXTERNAL-IP", "LOAD-BALANCER", "LOOP-BACK"):
        elements = kernel.elements(name, family)
        of = {proto: {element.replace(proto, "P") for element in elements if f",{proto}:" in element
                      and not element.startswith("10.96.255.1,")} for proto in ("sctp", "tcp")}
        assert of["sctp"] and of["sctp"] == of["tcp"], name
    assert any(element.endswith(",sctp:30080")
               for element in kernel.elements("NODE-PORT-SCTP", family))


def test_row_37_invalid_packets_are_not_forwarded(proxy, family):
    """A segment is invalid when it is out of the window, which a random number may miss: of those
    that are sent one is dropped, and does not arrive; the connection they pretend to be of goes on."""
    client = proxy.lab.host("client").ns
    with proxy.serving("other", "other", 80), \
         arriving(proxy.lab.host("other").ns) as marks, \
         open_socket(client, "tcp", OTHER[family], CLIENT[family]) as sock:
        sock.settimeout(2)
        sock.connect((OTHER[family], 80))
        sock.recv(200)
        for mark in range(1000, 1020):
            before = counted(proxy, family, "filter", "INVALID")
            send_stray_segment(client, sock.getsockname()[:2], (OTHER[family], 80), mark)
            wait_until(lambda: mark in marks() or
                       counted(proxy, family, "filter", "INVALID") > before, 3, "it to be judged")
            if mark not in marks():
                break
        assert mark not in marks() and counted(proxy, family, "filter", "INVALID") > before
        sock.sendall(b"on")
        assert sock.recv(2) == b"on"


def counted(proxy, family, table, word):
    """Packets the first rule with a word has seen."""
    text = netns.run_in(proxy.host.ns, [f"{CLIENTS[family // 6]}-save", "-c", "-t", table]).stdout
    return next(int(line[1:].split(":")[0]) for line in text.splitlines() if word in line)


FOREIGN_MARK = 0x10000


@pytest.mark.parametrize("bit", [14, 3])
def test_row_40_mark_is_set_and_cleared_and_other_bits_stay(proxy, family, bit):
    """Counted by a rule of another's in mangle, which POSTROUTING goes through before nat."""
    if bit != 14:
        proxy.restart(*FLAGS, "--masquerade-bit", str(bit))
    svc = proxy.service("b1", external=True)
    pod, mark = proxy.lab.pod("b1").address(family), 1 << bit
    restore = [f"{CLIENTS[family // 6]}-restore", "--noflush"]
    lines = [f"PREROUTING -d {svc.external(family)} -j MARK --set-mark {FOREIGN_MARK:#x}",
             f"POSTROUTING -d {pod} -p tcp --syn -m mark --mark {mark | FOREIGN_MARK:#x}"]
    netns.run_in(proxy.host.ns, restore, stdin="*mangle\n" + "".join(
        f"-A {line}\n" for line in lines) + "COMMIT\n")
    try:
        proxy.served("client", "tcp", svc.external(family), 80, "b1", proxy.addresses())
        assert counted(proxy, family, "mangle", " --mark ") == 1
        rules = proxy.kernel().rules[family]
        assert f"nat -A KUBE-POSTROUTING -j MARK --set-xmark {mark:#x}/0x0" in rules, rules
    finally:
        netns.run_in(proxy.host.ns, restore, stdin="*mangle\n" + "".join(
            f"-D {line}\n" for line in lines) + "COMMIT\n")
