"""What an earlier proxy on IPVS did wrong: fifteen defects, by the numbers of their list, that must
not come back.
"""

import pytest

from ipvs_world import NO_RULES, joined, restore_rules
from lab import wait_until
from lab.hammer import Hammer
from proxy_world import CLIENT, CLIENT_2, FLAGS, NODE_A, PROTOCOLS, SECOND

PORT = 30080
HERE = {4: "198.51.100.7/32", 6: "2001:db8:51::7/128"}


def entry(address, proto="tcp", port=80):
    return f"{address},{proto}:{port}"


def test_k01_entries_of_different_sets_do_not_meet(proxy, family):
    """One address is in each set it belongs to, one port in those of both families and protocols, and
    a policy that changes moves what it must."""
    svc = proxy.service("a1", node_port=PORT, external=True, lb=True, settle=False,
                        externalTrafficPolicy="Local",
                        loadBalancerSourceRanges=list(HERE.values()))
    second = {4: "198.18.0.250", 6: "2001:db8:18::fa"}
    svc.put(externalIPs=list(second.values()))
    proxy.settle()

    def holds(name, element, kernel, family=family):
        return element in kernel.elements(name, family)

    kernel = proxy.kernel()
    for proto in PROTOCOLS:
        balancer = entry(svc.external(family), proto)
        for name in ("LOAD-BALANCER", "LOAD-BALANCER-FW", "LOAD-BALANCER-LOCAL"):
            assert holds(name, balancer, kernel), name
        for name in ("EXTERNAL-IP", "EXTERNAL-IP-LOCAL"):
            assert holds(name, entry(second[family], proto), kernel), name
        for both in (4, 6):
            for name in (f"NODE-PORT-{proto.upper()}", f"NODE-PORT-LOCAL-{proto.upper()}"):
                assert holds(name, str(PORT), kernel, both), (name, both)
        proxy.served("client", proto, svc.external(family), 80, "a1", CLIENT[family])
    svc.put(externalTrafficPolicy="Cluster")
    proxy.settle()
    kernel = proxy.kernel()
    for proto in PROTOCOLS:
        assert holds("LOAD-BALANCER", entry(svc.external(family), proto), kernel)
        assert holds("EXTERNAL-IP", entry(second[family], proto), kernel)
        assert holds(f"NODE-PORT-{proto.upper()}", str(PORT), kernel)
        for name in ("LOAD-BALANCER-LOCAL", "EXTERNAL-IP-LOCAL",
                     f"NODE-PORT-LOCAL-{proto.upper()}"):
            assert not kernel.elements(name, family), name
        proxy.served("client", proto, svc.external(family), 80, "a1", proxy.addresses())


def test_k02_load_balancer_ips_are_bound(proxy, family):
    """Else what comes from other hosts is forwarded, not balanced."""
    svc = proxy.service("a1", "b1", lb=True)
    assert svc.external(family) in proxy.kernel().bound
    for proto in PROTOCOLS:
        for source in ("client", "b2", "node-a"):
            assert set(proxy.pods_of(source, proto, svc.external(family), 80, 4)) == {"a1", "b1"}


def test_k03_policy_local_is_enforced(proxy, family):
    """External: servers of outside have endpoints of this node alone. Internal: the cluster IP's."""
    svc = proxy.service("a1", "b1", node_port=PORT, lb=True, externalTrafficPolicy="Local")
    here, there = (joined(proxy.lab.pod(pod).address(family), 8080) for pod in ("a1", "b1"))
    kernel = proxy.kernel()
    for address, port in ((svc.external(family), 80), (NODE_A[family], PORT),
                          (SECOND[family], PORT)):
        assert set(kernel.dests("tcp", address, port)) == {here}, address
    assert set(kernel.dests("tcp", svc.ip(family), 80)) == {here, there}
    svc.put(internalTrafficPolicy="Local")
    proxy.settle()
    assert set(proxy.kernel().dests("tcp", svc.ip(family), 80)) == {here}
    assert set(proxy.pods_of("a2", "tcp", svc.ip(family), 80, 4)) == {"a1"}


def test_k04_local_node_ports_return_before_they_are_marked(proxy, family):
    proxy.service("a1", node_port=PORT, externalTrafficPolicy="Local")
    for proto in PROTOCOLS:
        proxy.served("client", proto, NODE_A[family], PORT, "a1", CLIENT[family])
    rules = [rule for rule in proxy.kernel().rules[family]
             if rule.startswith("nat -A KUBE-NODE-PORT -p tcp")]
    assert [rule.split()[-1] for rule in rules[-2:]] == ["RETURN", "KUBE-MARK-MASQ"], rules
    assert "LOCAL" in rules[-2] and "LOCAL" not in rules[-1], rules


def test_k05_source_ranges_drop_with_nobodys_help(proxy, family):
    svc = proxy.service("a1", lb=True, loadBalancerSourceRanges=list(HERE.values()))
    for proto in PROTOCOLS:
        proxy.served("client", proto, svc.external(family), 80, "a1",
                     source_address=CLIENT[family])
        proxy.dropped("client", proto, svc.external(family), 80,
                      source_address=CLIENT_2[family])


FOREIGN_RULES = """*filter
:INPUT ACCEPT
:FORWARD DROP
:OUTPUT ACCEPT
:CNI-FORWARD -
:KUBE-FIREWALL -
-A INPUT -s 192.0.2.200 -j DROP
-A INPUT -j KUBE-FIREWALL
-A FORWARD -j CNI-FORWARD
-A CNI-FORWARD -j ACCEPT
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
COMMIT
*nat
:PREROUTING ACCEPT
:INPUT ACCEPT
:OUTPUT ACCEPT
:POSTROUTING ACCEPT
:CNI-POSTROUTING -
-A PREROUTING -d 192.0.2.201/32 -j RETURN
-A POSTROUTING -j CNI-POSTROUTING
-A CNI-POSTROUTING -s 192.0.2.202/32 -j MASQUERADE
COMMIT
"""


def others(kernel):
    """Rules, chains and policies that are not ours, in their order."""
    return {family: [rule for rule in rules if "KUBE-" not in rule
                     or rule.startswith("filter ") and "KUBE-FIREWALL" in rule]
            for family, rules in kernel.rules.items()}


def test_k06_rules_of_others_stay_where_they_are(proxy):
    """Chains, rules and policies: through a start, changes, an end and a cleanup."""
    ns = proxy.host.ns
    assert proxy.agent.stop() == 0
    proxy.cleanup()
    restore_rules(ns, FOREIGN_RULES,
                  FOREIGN_RULES.replace("192.0.2.", "2001:db8:2::").replace("/32", "/128"))
    try:
        before = proxy.kernel()
        proxy.start()
        svc = proxy.service("a1", node_port=PORT, lb=True)
        during = proxy.kernel()
        assert others(during) == others(before)
        assert any("KUBE-SERVICES" in rule for rule in during.rules[4])
        proxy.endpoints(svc, "a2")
        proxy.restart(*FLAGS, "--masquerade-all")
        assert others(proxy.kernel()) == others(before)
        assert proxy.agent.stop() == 0
        proxy.cleanup()
        assert proxy.kernel().rules == before.rules
    finally:
        proxy.agent.kill()
        proxy.cleanup()
        restore_rules(ns, NO_RULES, NO_RULES)


@pytest.mark.parametrize("affinity", ["None", "ClientIP"])
def test_k07_no_node_port_is_no_port_0(proxy, family, affinity):
    """With persistence a server of port 0 takes all ports of the node."""
    proxy.service("a1", lb=True, allocateLoadBalancerNodePorts=False, sessionAffinity=affinity)
    kernel = proxy.kernel()
    assert not [key for key in kernel.servers if key[1].endswith(":0")]
    assert not [name for name, elements in kernel.sets.items() if "0" in elements]
    with proxy.listening("own", "node-a", 3456):
        proxy.served("client", "tcp", NODE_A[family], 3456, "own")


def test_k08_a_restart_removes_what_is_stale_and_adds_nothing_twice(proxy, family):
    """Nor does it take bound addresses for the node's."""
    gone = proxy.service("a1", node_port=PORT + 1, external=True)
    kept = proxy.service("a1", "a2", node_port=PORT)
    proxy.agent.kill()
    gone.delete()
    gone.delete_endpoints()
    proxy.services.remove(gone)
    proxy.endpoints(kept, "a2", settle=False)
    proxy.agent.clear_log()
    proxy.start()
    kernel = proxy.kernel()
    assert not [key for key in kernel.servers for address in (gone.ip(family),
                gone.external(family)) if key[1].startswith((f"{address}:", f"[{address}]:"))]
    assert not {gone.ip(family), gone.external(family)} & kernel.bound
    assert str(PORT + 1) not in str(kernel.sets)
    assert {key[1] for key in kernel.servers if key[1].endswith(f":{PORT}")} == {
        joined(address, PORT) for address in proxy.addresses()
        if not address.startswith(("127.", "::1", "fe80"))}
    assert set(kernel.dests("tcp", kept.ip(family), 80)) == {
        joined(proxy.lab.pod("a2").address(family), 8080)}
    assert "exists" not in proxy.agent.log()
    assert proxy.lab.pod("a2").address() in proxy.table()


HARM = {
    "servers": "ipvsadm -C",
    "a-server": "ipvsadm -D -t {vip}:80",
    "a-destination": "ipvsadm -d -t {vip}:80 -r {pod}:8080",
    "a-foreign-destination": "ipvsadm -a -t {vip}:80 -r 192.0.2.99:80 -m",
    "a-weight": "ipvsadm -e -t {vip}:80 -r {pod}:8080 -m -w 7",
    "a-scheduler": "ipvsadm -E -t {vip}:80 -s wlc",
    "an-address": "ip addr del {vip}/32 dev kube-ipvs0",
    "the-device": "ip link del kube-ipvs0",
    "a-foreign-address": "ip addr add 192.0.2.98/32 dev kube-ipvs0",
    "sets-emptied": "ipset flush",
    "an-element": "ipset del KUBE-CLUSTER-IP {vip},tcp:80",
    "a-foreign-element": "ipset add KUBE-CLUSTER-IP 192.0.2.97,tcp:80",
    "jumps": "iptables-legacy -t nat -F PREROUTING",
    "a-chain": "iptables-legacy -t nat -F KUBE-SERVICES",
    "a-foreign-rule": "iptables-legacy -t nat -I KUBE-SERVICES -j RETURN",
    "every-rule": "iptables-legacy -t nat -F; iptables-legacy -F; ip6tables-legacy -t nat -F",
}


@pytest.fixture(scope="module")
def audited(proxy_of_module):
    """It compares with the kernel each second."""
    proxy_of_module.restart(*AUDITED)
    return proxy_of_module


AUDITED = (*FLAGS, "--audit-seconds", "1")


@pytest.mark.parametrize("harm", list(HARM))
def test_k09_what_others_change_is_mended(audited, harm):
    proxy = audited
    svc = proxy.service("a1", "a2", node_port=PORT)
    try:
        before = proxy.table()
        script = HARM[harm].format(vip=svc.ip(), pod=proxy.lab.pod("a1").address())
        proxy.host.run("sh", "-c", script)
        wait_until(lambda: proxy.table() == before, 10, lambda: f"all to be as before:\n{before}\n"
                   f"it is:\n{proxy.table()}\n{proxy.agent.log()[-2000:]}", interval=0.6)
        assert set(proxy.pods_of("a3", "tcp", svc.ip(), 80, 4)) == {"a1", "a2"}
        proxy.served("client", "udp", NODE_A[4], PORT, ["a1", "a2"], proxy.addresses())
    finally:
        proxy.clear()


def test_k09_what_the_kernel_refuses_holds_up_nothing_else(proxy, family):
    """Somebody has a set of a name of ours, of another type: named, and tried again. All else is
    there meanwhile, but for balancers whose source ranges it would have kept."""
    prefix = "KUBE-" if family == 4 else "KUBE-6-"
    kind = ["family", "inet" if family == 4 else "inet6"]
    assert proxy.agent.stop() == 0
    proxy.cleanup()
    for name in ("EXTERNAL-IP", "LOAD-BALANCER-FW"):
        proxy.host.run("ipset", "create", prefix + name, "hash:net", *kind)
    try:
        proxy.agent.clear_log()
        proxy.start()
        svc = proxy.service("a1", external=True, node_port=PORT)
        ranged = proxy.service("a1", lb=True, loadBalancerSourceRanges=list(HERE.values()))
        for name in ("EXTERNAL-IP", "LOAD-BALANCER-FW"):
            proxy.agent.wait_log(f"{prefix}{name} is of type hash:net")
        assert proxy.fetch("127.0.0.1", 10266, "/readyz").status == 503
        for proto in PROTOCOLS:
            proxy.served("a2", proto, svc.ip(family), 80, "a1")
            proxy.served("client", proto, NODE_A[family], PORT, "a1", proxy.addresses())
            assert not proxy.kernel().server(proto, ranged.external(family), 80)
        proxy.endpoints(svc, "a2")
        proxy.served("a3", "tcp", svc.ip(family), 80, "a2")
    finally:
        for name in ("EXTERNAL-IP", "LOAD-BALANCER-FW"):
            proxy.host.run("ipset", "destroy", prefix + name)
    wait_until(lambda: proxy.fetch("127.0.0.1", 10266, "/readyz").status == 200, 20,
               "it to be ready")
    proxy.served("client", "tcp", svc.external(family), 80, "a2", proxy.addresses())
    proxy.served("client", "tcp", ranged.external(family), 80, "a1",
                 source_address=CLIENT[family])
    proxy.dropped("client", "tcp", ranged.external(family), 80, source_address=CLIENT_2[family])


def test_k10_what_replaces_comes_before_what_goes(proxy, family):
    """New connections never meet a server without destinations."""
    svc = proxy.service("a1")
    hammer = Hammer(proxy.lab.pod("a3").ns, svc.ip(family), 80)
    for pod in ("a2", "b1", "a1") * 5:
        proxy.endpoints(svc, pod)
    connects = hammer.stop()
    wrong = [connect for connect in connects if connect.error or connect.again]
    assert len(connects) > 100 and not wrong, (len(connects), wrong[:10])
    assert {connect.pod for connect in connects} == {"a1", "a2", "b1"}


def test_k10_a_port_that_changes_its_name_or_target_is_served_meanwhile(proxy, family):
    svc = proxy.service("a1")
    hammer = Hammer(proxy.lab.pod("a3").ns, svc.ip(family), 80)
    for target in (9090, 8080) * 4:
        proxy.endpoints(svc, "a1", ports=[("tcp", "TCP", target)])
    connects = hammer.stop()
    wrong = [connect for connect in connects if connect.error or connect.again]
    assert len(connects) > 50 and not wrong, (len(connects), wrong[:10])


def test_k11_a_restart_leaves_tcp_alone(proxy, family):
    svc = proxy.service("a1", node_port=PORT, external=True)
    streams = [proxy.lab.stream("tcp", address, port, source=source, push=True).wait_answer()
               for source, address, port in (("a3", svc.ip(family), 80),
                                             ("client", NODE_A[family], PORT),
                                             ("client", svc.external(family), 80))]
    def entries():
        return {next(word for word in entry if word.startswith("sport="))
                for entry in proxy.entries("-p", "tcp", "-f", f"ipv{family}",
                                           "--state", "ESTABLISHED")}

    before = entries()
    assert len(before) >= len(streams)
    proxy.agent.kill()
    proxy.start(*proxy.flags)
    proxy.restart(*proxy.flags)
    assert entries() >= before
    reports = [stream.stop() for stream in streams]
    assert all(report.nothing_lost for report in reports), reports


def test_k12_refused_dropped_or_rejected_as_it_should_be(proxy, family):
    """No endpoint: refused. None here, and Local: no answer. No such port of the address: refused,
    whatever the node has there."""
    empty = proxy.service(settle=False)
    elsewhere = proxy.service("b1", lb=True, settle=False, externalTrafficPolicy="Local",
                              internalTrafficPolicy="Local")
    served = proxy.service("a1")
    with proxy.listening("own", "node-a", 22):
        for proto in PROTOCOLS:
            proxy.refused("a2", proto, empty.ip(family), 80)
            proxy.dropped("client", proto, elsewhere.external(family), 80)
            proxy.dropped("a2", proto, elsewhere.ip(family), 80)
            proxy.refused("a2", proto, served.ip(family), 22)
            proxy.refused("client", proto, elsewhere.external(family), 22)


def test_k13_the_slices_port_is_what_counts(proxy, family):
    """A Service without a selector says one number and its slice another."""
    svc = proxy.service(ports=(("main", "TCP", 80, 1234),))
    proxy.endpoints(svc, "a1", ports=[("main", "TCP", 9090)])
    assert proxy.served("a2", "tcp", svc.ip(family), 80, "a1").local_port == 9090
    assert set(proxy.kernel().dests("tcp", svc.ip(family), 80)) == {
        joined(proxy.lab.pod("a1").address(family), 9090)}


def test_k14_both_families_of_a_pod(proxy):
    """Two slices name the same pod; neither hides the other."""
    svc = proxy.service("a1")
    for family in (4, 6):
        proxy.served("a2", "tcp", svc.ip(family), 80, "a1")


def test_k14_ports_without_name_or_number(proxy, family):
    """A port without a number says nothing; one without a name is the Service's only port's."""
    svc = proxy.service(ports=((None, "TCP", 80, 8080),))
    proxy.endpoints(svc, "a1", ports=[(None, "TCP", 8080), ("any", "TCP", None)])
    proxy.served("a2", "tcp", svc.ip(family), 80, "a1")
    assert proxy.agent.pid


def test_k14_a_hint_alone_that_changes_is_seen_and_one_without_counts_for_all(proxy, family):
    def hint(zone):
        return {"hints": {"forZones": [{"name": zone}]}}

    svc = proxy.service(("a1", hint("zone-a")), ("b1", hint("zone-b")))
    assert set(proxy.pods_of("a2", "tcp", svc.ip(family), 80, 4)) == {"a1"}
    proxy.endpoints(svc, ("a1", hint("zone-b")), ("b1", hint("zone-a")))
    assert set(proxy.pods_of("a2", "tcp", svc.ip(family), 80, 4)) == {"b1"}
    proxy.endpoints(svc, "a1", ("b1", hint("zone-a")))
    assert set(proxy.pods_of("a2", "tcp", svc.ip(family), 80, 4)) == {"a1", "b1"}


def test_k14_conditions_and_the_mode_of_an_address(proxy, family):
    terminating = {"conditions": {"ready": False, "serving": True, "terminating": True}}
    svc = proxy.service("a1", ("a2", terminating), lb=True, lb_mode="Proxy")
    assert set(proxy.pods_of("a3", "tcp", svc.ip(family), 80, 4)) == {"a1"}
    assert svc.external(family) not in proxy.table()
    proxy.endpoints(svc, ("a2", terminating))
    assert set(proxy.pods_of("a3", "tcp", svc.ip(family), 80, 4)) == {"a2"}


def test_k14_a_node_without_services_is_programmed_too(proxy):
    """What does not depend on one stands from the start."""
    proxy.restart(*proxy.flags)
    kernel = proxy.kernel()
    for family in (4, 6):
        assert any("KUBE-POSTROUTING" in rule for rule in kernel.rules[family])
    assert proxy.fetch("127.0.0.1", 10256, "/healthz").status == 200


def test_k15_source_ranges_are_their_familys(proxy, family):
    proxy.agent.clear_log()
    svc = proxy.service("a1", lb=True, loadBalancerSourceRanges=list(HERE.values()))
    found = proxy.kernel().elements("LOAD-BALANCER-SRC-CIDR", family)
    expected = HERE[family].split("/")[0]
    assert {element.split(",")[-1] for element in found} == {expected}, found
    assert all(element.startswith(f"{svc.external(family)},") for element in found)
    proxy.served("client", "tcp", svc.external(family), 80, "a1", source_address=CLIENT[family])
    assert "level=error" not in proxy.agent.log() and "level=warn" not in proxy.agent.log()
