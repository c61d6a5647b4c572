"""The agent on IPVS comes and goes, others are there too, and options say how it does.

Test names that begin with a row's number are of the service proxy's specification.
"""

import re
import subprocess
import time

import pytest

from ipvs_world import FLAGS, MODE, joined, without_barrier
from lab import netns, wait_until
from lab.hammer import Hammer
from lab.strace import Strace
from proxy_world import NODE_A, PROTOCOLS

PORT = 30080
KILL_SECONDS = 6


# Restarts

def test_row_47_killed_in_a_loop_nothing_is_dropped(proxy):
    """Streams, new connections and remembered clients notice nothing. One processor for all of them
    loses datagrams by itself: of these streams only the pod and the silences are judged."""
    svc = proxy.service("a1", "b1", node_port=PORT, external=True)
    sticky = proxy.service("a1", "a2", "b1", sessionAffinity="ClientIP")
    chosen = {family: proxy.dial("a3", "tcp", sticky.ip(family), 80).pod for family in (4, 6)}
    streams = [proxy.lab.stream(proto, address, port, source=source, push=True).wait_answer()
               for family in (4, 6) for proto in PROTOCOLS
               for source, address, port in (("a3", svc.ip(family), 80),
                                             ("client", NODE_A[family], PORT))]
    hammers = [Hammer(proxy.lab.pod("a3").ns, svc.ip(family), 80, pause=0.02)
               for family in (4, 6)]
    end, ends = time.monotonic() + KILL_SECONDS, 0
    while time.monotonic() < end or ends < 6:
        proxy.agent.kill()
        proxy.agent.restart()
        ends += 1
        for family, pod in chosen.items():
            proxy.served("a3", "tcp", sticky.ip(family), 80, pod)
        time.sleep(0.05 * (ends % 6))       # each time at another moment of its start
    proxy.settle()
    reports = [stream.stop() for stream in streams]
    wrong = [report for report in reports if len(report.pods) != 1 or report.longest_gap > 2
             or report.proto == "tcp" and not report.nothing_lost]
    assert not wrong, wrong
    connects = [connect for hammer in hammers for connect in hammer.stop()]
    wrong = [connect for connect in connects if connect.error or connect.again]
    assert len(connects) > 50 and not wrong, (len(connects), wrong[:10])


def test_row_47_a_restart_changes_nothing(proxy):
    """What was there is taken as it is: servers, rules and what they have counted, elements,
    addresses. Killed, or told to end."""
    proxy.service("a1", "a2", "b1", node_port=PORT, external=True, lb=True,
                  sessionAffinity="ClientIP", externalTrafficPolicy="Local",
                  loadBalancerSourceRanges=["198.51.100.0/24"])
    proxy.served("a3", "tcp", proxy.services[-1].ip(), 80, ["a1", "a2", "b1"])
    before, counted = proxy.kernel(), counters(proxy)
    assert any(counted.values())
    watcher = proxy.host.popen("ip", "monitor", "address", "link")
    for end in (proxy.agent.stop, proxy.agent.kill):
        end()
        proxy.agent.clear_log()
        proxy.agent.restart()
        wait_until(lambda: healthy(proxy), 10, "it to have had its first pass")
        assert proxy.kernel() == before
    watcher.terminate()
    assert watcher.communicate()[0] == ""
    now = counters(proxy)
    assert all(now[key] >= value for key, value in counted.items()), (counted, now)


def counters(proxy):
    """What servers and rules of ours have counted: one that is made anew begins at 0."""
    found = {}
    for line in proxy.host.out("ipvsadm", "-Ln", "--stats", "--exact").splitlines():
        words = line.split()
        if words and words[0] in ("TCP", "UDP"):
            found[" ".join(words[:2])] = int(words[2])
    for line in proxy.host.out("iptables-legacy-save", "-c", "-t", "nat").splitlines():
        if match := re.match(r"\[(\d+):\d+\] (-A KUBE-.*)", line):
            found[match[2]] = int(match[1])
    return found


def healthy(proxy):
    """`/readyz` says that nothing is undone."""
    try:
        return proxy.fetch("127.0.0.1", 10266, "/readyz").status == 200
    except OSError:
        return False


def test_nothing_is_written_when_nothing_changes(proxy):
    """Not by a pass that finds all as it should be, nor by audits, which read."""
    proxy.restart(*FLAGS, "--audit-seconds", "1")
    svc = proxy.service("a1", "b1", node_port=PORT, external=True)
    with Strace(proxy.agent.pid, "sendmsg,sendto,execve", proxy.source.directory + ".strace") as trace:
        proxy.objects.put_again("Service", svc.name, "apps")
        time.sleep(3)       # nothing may happen for a while
    calls = trace.lines
    writes = [call for call in calls if re.search(
        r"NLM_F_CREATE|NLM_F_REPLACE|RTM_NEW|RTM_DEL|IPSET_CMD_(ADD|DEL|CREATE|DESTROY)"
        r"|restore", call)]
    assert calls and not writes, writes[:10]


# Others

FOREIGN = """ipvsadm -A -t 192.0.2.1:7777 -s wlc
ipvsadm -a -t 192.0.2.1:7777 -r 10.244.1.77:8080 -m -w 5
ipvsadm -A -f 77 -s sh
ipvsadm -A -t 172.16.9.9:80 -s rr
ipset create OTHERS hash:ip
ipset add OTHERS 192.0.2.7
ipset create KUBE-ROUTER-PODS hash:ip
ip link add mine0 type dummy
ip addr add 172.16.9.9/32 dev mine0
"""
FOREIGN_GONE = """ipvsadm -D -t 192.0.2.1:7777
ipvsadm -D -f 77
ipvsadm -D -t 172.16.9.9:80
ipset destroy OTHERS
ipset destroy KUBE-ROUTER-PODS
ip link del mine0
"""


def foreign(proxy):
    kernel = proxy.kernel()
    links = [line for line in proxy.host.out("ip", "-o", "addr").splitlines()
             if " kube-ipvs0 " not in line]
    return ({key: server for key, server in kernel.servers.items()
             if key[1] in ("192.0.2.1:7777", "77", "172.16.9.9:80")},
            {name: kernel.sets.get(name) for name in ("OTHERS", "KUBE-ROUTER-PODS")}, links)


def test_row_49_what_is_others_is_untouched(proxy):
    """Servers, sets, devices and addresses, through a start, changes, an end and a cleanup."""
    proxy.host.run("sh", "-ec", FOREIGN)
    try:
        before = foreign(proxy)
        assert len(before[0]) == 3 and before[1]["OTHERS"] == {"192.0.2.7"}
        svc = proxy.service("a1", node_port=PORT, external=True)
        proxy.endpoints(svc, "a2", "b1")
        assert foreign(proxy) == before
        proxy.restart(*proxy.flags)
        svc.delete()
        proxy.settle()
        assert foreign(proxy) == before
        assert proxy.agent.stop() == 0
        proxy.cleanup()
        assert foreign(proxy) == before
    finally:
        proxy.host.run("sh", "-c", FOREIGN_GONE)


SMALLER = """ipset save {name} | sed 's/{name}/SMALLER/; s/maxelem [0-9]*/maxelem {n}/' | ipset restore
ipset swap {name} SMALLER
ipset destroy SMALLER
"""


def test_row_47_sets_that_are_too_small_are_replaced_under_their_rules(proxy, family):
    """As who had them before has made them, who had less to put in: they are full. New connections
    notice nothing, and there is room again."""
    svc = proxy.service("a1", node_port=PORT)
    names = [("KUBE-" if family == 4 else "KUBE-6-") + name for name in ("CLUSTER-IP", "LOOP-BACK")]
    assert proxy.agent.stop() == 0
    sets = proxy.kernel().sets
    for name in names:
        proxy.host.run("sh", "-ec", SMALLER.format(name=name, n=len(sets[name])))
    hammer = Hammer(proxy.lab.pod("a3").ns, svc.ip(family), 80, pause=0.02)
    proxy.agent.restart()
    other = proxy.service("a2")
    proxy.served("a1", "tcp", other.ip(family), 80, "a2")
    wrong = [connect for connect in hammer.stop() if connect.error or connect.again]
    assert not wrong, wrong[:10]
    sets = proxy.kernel().sets
    for name in names:
        assert "maxelem 1048576" in proxy.host.out("ipset", "list", "-t", name)
    assert {f"{s.ip(family)},{proto}:80"
            for s in (svc, other) for proto in PROTOCOLS} <= sets[names[0]]
    assert "KUBE-PORTOLAN-SPARE" not in sets


def test_row_48_kube_proxys_device_and_servers_go(proxy):
    """The device has its name, is a dummy, and not ours; servers elsewhere stay."""
    assert proxy.agent.stop() == 0
    proxy.cleanup()
    proxy.host.run("sh", "-ec", "ip link add kube-ipvs0 type dummy;"
                   "ip addr add 10.96.0.77/32 dev kube-ipvs0;"
                   "ipvsadm -A -t 10.96.0.77:80; ipvsadm -A -t 192.0.2.1:7777")
    try:
        said = proxy.host.out(proxy.binary, "cleanup", "--kube-proxy", "--state-dir",
                              proxy.agent.state_dir)
        assert "- link kube-ipvs0" in said and "! ipvs service tcp 192.0.2.1:7777 stays" in said, said
        assert set(proxy.kernel().servers) == {("tcp", "192.0.2.1:7777")}
        assert proxy.kernel().bound is None
    finally:
        proxy.host.run("sh", "-c", "ipvsadm -D -t 192.0.2.1:7777; ip link del kube-ipvs0", check=False)
        proxy.agent.restart()
    wait_until(lambda: healthy(proxy), 20, "it to be ready")


def test_row_49_a_link_of_another_kind_is_others(proxy):
    """It has our device's name, keeps its addresses, is named, and outlives a cleanup."""
    def link():
        return proxy.host.out("ip", "-o", "-d", "addr", "show", "kube-ipvs0")
    svc = proxy.service("a1")
    assert proxy.agent.stop() == 0
    proxy.cleanup()
    proxy.host.run("sh", "-c", "ip link add kube-ipvs0 type bridge;"
                   "ip addr add 192.0.2.96/32 dev kube-ipvs0")
    try:
        before = link()
        proxy.agent.clear_log()
        proxy.agent.restart()
        proxy.agent.wait_log("kube-ipvs0 is of kind bridge, where dummy is needed")
        assert proxy.fetch("127.0.0.1", 10266, "/readyz").status == 503
        assert link() == before
        proxy.cleanup("--kube-proxy")
        assert link() == before
    finally:
        proxy.host.run("ip", "link", "del", "kube-ipvs0")
    wait_until(lambda: healthy(proxy), 20, "it to be ready")
    proxy.served("a3", "tcp", svc.ip(), 80, "a1")


@pytest.mark.parametrize("excluded", [False, True], ids=["judged", "excluded"])
def test_row_49_servers_of_excluded_ranges_are_others(proxy, excluded):
    """One at an address bound on kube-ipvs0 is of an earlier run, unless its range is excluded."""
    proxy.host.run("sh", "-ec", "ip addr add 198.18.0.200/32 dev kube-ipvs0; "
                   "ipvsadm -A -t 198.18.0.200:80 -s rr")
    flags = ("--ipvs-exclude-cidrs", "198.18.0.128/25,2001:db8:18::/64") if excluded else ()
    try:
        proxy.restart(*FLAGS, *flags)
        assert bool(proxy.kernel().server("tcp", "198.18.0.200", 80)) is excluded
    finally:
        proxy.host.run("sh", "-c", "ipvsadm -D -t 198.18.0.200:80; "
                       "ip addr del 198.18.0.200/32 dev kube-ipvs0", check=False)


# Sysctls

SYSCTLS = {"net.ipv4.vs.conntrack": "1", "net.ipv4.vs.expire_nodest_conn": "1",
           "net.ipv4.vs.expire_quiescent_template": "1", "net.ipv4.ip_forward": "1"}


def test_sysctls_are_set_at_a_start(proxy):
    assert proxy.agent.stop() == 0
    for key in SYSCTLS:
        if key.startswith("net.ipv4.vs"):
            proxy.host.sysctl(key, 0)
    arp = {key: proxy.host.sysctl(f"net.ipv4.conf.all.{key}")
           for key in ("arp_ignore", "arp_announce")}
    proxy.start(*proxy.flags)
    assert {key: proxy.host.sysctl(key) for key in SYSCTLS} == SYSCTLS
    assert arp == {key: proxy.host.sysctl(f"net.ipv4.conf.all.{key}") for key in arp}


def answers_arp(proxy, address):
    """The host `other`, on a wire with node-a, asks whose an address is."""
    other = proxy.lab.host("other")
    other.ip(f"route add {address}/32 dev eth0")
    try:
        def asked():
            proxy.dial("other", "udp", address, 80, timeout=0.1)
            state = other.out("ip", "neigh", "show", address)
            return state if "lladdr" in state or "FAILED" in state else None
        return "lladdr" in wait_until(asked, 8, "an answer or none")
    finally:
        other.ip(f"route del {address}/32 dev eth0", f"neigh flush to {address}")


@pytest.mark.parametrize("strict", [False, True], ids=["as-it-was", "strict"])
def test_row_51_strict_arp(proxy, strict):
    """The node does not say on its wires that bound addresses are there."""
    try:
        proxy.restart(*FLAGS, *(["--strict-arp"] if strict else []))
        svc = proxy.service("a1")
        assert answers_arp(proxy, svc.ip()) is not strict
        values = [proxy.host.sysctl(f"net.ipv4.conf.all.{key}")
                  for key in ("arp_ignore", "arp_announce")]
        assert values == (["1", "2"] if strict else ["0", "0"])
        proxy.served("a2", "tcp", svc.ip(), 80, "a1")
        proxy.served("client", "tcp", svc.ip(), 80, "a1")
    finally:
        proxy.host.sysctl("net.ipv4.conf.all.arp_ignore", 0)
        proxy.host.sysctl("net.ipv4.conf.all.arp_announce", 0)


# Options

SCHEDULERS = ("wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "seq", "nq")


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduling_method(proxy, name):
    svc = proxy.service("a1", "a2")
    proxy.restart(*FLAGS, "--scheduling-method", name)
    found = without_barrier(proxy.kernel().servers)
    assert found and {server.scheduler for server in found.values()} == {
        {"seq": "sed"}.get(name, name)}
    proxy.served("a3", "tcp", svc.ip(), 80, ["a1", "a2"])


def refused_start(proxy, *flags):
    """What an agent says that does not start."""
    done = proxy.host.run(proxy.binary, "agent", "--node", "node-a", *proxy.source.arguments,
                          "--state-dir", proxy.agent.state_dir, *MODE, *FLAGS, *flags,
                          check=False, timeout=20)
    assert done.returncode != 0
    return done.stderr


def test_a_scheduling_method_that_is_none_is_refused(proxy):
    assert proxy.agent.stop() == 0
    said = refused_start(proxy, "--scheduling-method", "fastest")
    assert "fastest" in said and "wlc" in said, said


def test_a_scheduling_method_the_kernel_has_not_is_refused(proxy):
    """Its module cannot be loaded, and none of its servers is there."""
    assert proxy.agent.stop() == 0
    subprocess.run(["modprobe", "-r", "ip_vs_nq"], check=False)
    with open("/etc/modprobe.d/portolan-test.conf", "w") as file:
        file.write("install ip_vs_nq /bin/false\n")
    try:
        said = refused_start(proxy, "--scheduling-method", "nq")
        assert "nq" in said and "kernel" in said, said
    finally:
        subprocess.run(["rm", "/etc/modprobe.d/portolan-test.conf"], check=True)


def test_weight(proxy):
    svc = proxy.service("a1", "a2", node_port=PORT)
    proxy.restart(*FLAGS, "--weight", "7")
    for address, port in ((svc.ip(), 80), (NODE_A[4], PORT)):
        assert set(proxy.kernel().dests("tcp", address, port).values()) == {7}


def test_dry_run_says_all_and_does_nothing(proxy):
    svc = proxy.service("a1", node_port=PORT)
    assert proxy.agent.stop() == 0
    proxy.cleanup()
    before = proxy.kernel()
    words = [word for word in proxy.agent.argv(proxy.binary, proxy.source, [*MODE, *FLAGS])]
    said = netns.run([*words, "--dry-run"]).stdout
    assert proxy.kernel() == before
    for text in (f"{svc.ip()}:80", joined(proxy.lab.pod("a1").address(), 8080), "kube-ipvs0",
                 f"KUBE-CLUSTER-IP {svc.ip()},tcp:80", f"{NODE_A[4]}:{PORT}", "KUBE-SERVICES"):
        assert text in said, (text, said[-3000:])
    proxy.start(*proxy.flags)
    said = netns.run([*words, "--dry-run"]).stdout
    assert svc.ip() not in said, said       # nothing is to be done


def test_iptables_mode_auto_finds_what_works_here(proxy):
    """There are no nftables in this kernel, so the rules are legacy ones."""
    proxy.restart(*FLAGS, "--iptables-mode", "auto")
    svc = proxy.service("a1", lb=True)
    proxy.served("client", "tcp", svc.external(), 80, "a1", proxy.addresses())
    assert any("KUBE-SERVICES" in rule for rule in proxy.kernel().rules[4])


def test_cleanup_leaves_what_was(proxy):
    """And says what it takes; a second one has nothing to do."""
    proxy.service("a1", node_port=PORT, external=True)
    assert proxy.agent.stop() == 0
    said = proxy.cleanup()
    kernel = proxy.kernel()
    assert kernel.servers == {} and kernel.sets == {} and kernel.bound is None
    assert not [rule for rule in sum(kernel.rules.values(), []) if "KUBE-" in rule]
    assert said and proxy.cleanup() != said
