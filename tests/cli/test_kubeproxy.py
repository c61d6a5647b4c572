"""kube-proxy beside us: what it left is removed when asked, and a live one is not fought."""

import contextlib
import re
import shutil
import subprocess

import pytest

from host import BIN, NAMESPACE, needs_root, within

pytestmark = needs_root

ANSWER = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"

# What a node has of its own, and of others whose chains begin with KUBE- as well.
OTHERS = """
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-DROP - [0:0]
:CNI-abc - [0:0]
-A POSTROUTING -s NET -j CNI-abc
-A CNI-abc -j MASQUERADE
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-ROUTER-INPUT - [0:0]
-A INPUT -j KUBE-ROUTER-INPUT
-A INPUT -j KUBE-FIREWALL
-A KUBE-ROUTER-INPUT -s NET -j ACCEPT
-A OUTPUT -d NET
COMMIT
*mangle
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
"""
# As kube-proxy's iptables mode leaves it, in little.
LEFTOVERS = """
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-SEP-57KPRZ3JQVENLNBR - [0:0]
:KUBE-EXT-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-FW-NPX46M4PTMTKRN6Y - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-SERVICES -d IP -p tcp -m tcp --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-EXT-NPX46M4PTMTKRN6Y
-A KUBE-EXT-NPX46M4PTMTKRN6Y -j KUBE-MARK-MASQ
-A KUBE-EXT-NPX46M4PTMTKRN6Y -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-FW-NPX46M4PTMTKRN6Y -j KUBE-EXT-NPX46M4PTMTKRN6Y
-A KUBE-SVC-NPX46M4PTMTKRN6Y -j KUBE-SEP-57KPRZ3JQVENLNBR
-A KUBE-SEP-57KPRZ3JQVENLNBR -p tcp -m tcp -j DNAT --to-destination TARGET
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
COMMIT
*filter
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
-A INPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A INPUT -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES
-A FORWARD -j KUBE-FORWARD
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
COMMIT
*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
"""
FAMILIES = {
    "iptables": {"NET": "10.0.0.0/8", "IP": "10.96.0.1/32", "TARGET": "192.0.2.1:6443"},
    "ip6tables": {"NET": "fd00::/8", "IP": "fd00:10:96::1/128", "TARGET": "[2001:db8::1]:6443"},
}


def restore(host, tool, text, *options):
    for word, value in FAMILIES[tool.split("-")[0]].items():
        text = re.sub(rf"\b{word}\b", value, text)
    subprocess.run(["ip", "netns", "exec", NAMESPACE, f"{tool}-restore", *options], input=text,
                   check=True, text=True)


def ruleset(host):
    """Without counts, which go on counting."""
    return host.run("nft", "-s", "list", "ruleset").stdout


def cleanup(host, *options):
    done = host.run(BIN, "cleanup", "--kube-proxy", *options, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_row_48_iptables_leftovers_go_and_nothing_else(host):
    for tool in ("iptables-nft", "ip6tables-nft"):
        restore(host, tool, OTHERS)
    before = ruleset(host)
    for tool in ("iptables-nft", "ip6tables-nft"):
        restore(host, tool, LEFTOVERS, "--noflush")
    left = ruleset(host)
    said = [f"- table {family} {table}: {chains} chains of kube-proxy, and {jumps} jumps to them"
            for family in ("ip", "ip6")
            for table, chains, jumps in (("nat", 9, 3), ("filter", 4, 4), ("mangle", 1, 0))]
    assert cleanup(host, "--dry-run") == said
    assert ruleset(host) == left
    assert cleanup(host) == said
    assert ruleset(host) == before
    assert cleanup(host) == []


def saved(host, *options):
    """What iptables-legacy and ip6tables-legacy have, without the times and counts of chains."""
    text = "".join(host.run(f"{tool}-legacy-save", *options).stdout for tool in FAMILIES)
    return [re.sub(r" \[\d+:\d+\]$", "", line) for line in text.splitlines() if line[0] != "#"]


def test_row_48_leftovers_of_iptables_legacy_go_and_nothing_else(host):
    for tool in ("iptables-legacy", "ip6tables-legacy"):
        restore(host, tool, OTHERS)
    before = saved(host)
    for tool in ("iptables-legacy", "ip6tables-legacy"):
        restore(host, tool, LEFTOVERS, "--noflush")
    left = saved(host)
    said = [f"- {tool}-legacy table {table}: {chains} chains of kube-proxy, and {jumps} jumps to "
            f"them" for tool in FAMILIES
            for table, chains, jumps in (("nat", 9, 3), ("filter", 4, 4), ("mangle", 1, 0))]
    assert sorted(cleanup(host, "--dry-run")) == sorted(said)
    assert saved(host) == left
    assert sorted(cleanup(host)) == sorted(said)
    assert saved(host) == before
    assert cleanup(host) == []


def test_rules_of_iptables_legacy_that_stay_go_on_counting(host):
    def counted():
        rules = host.run("iptables-legacy", "-L", "INPUT", "-v", "-n", "-x").stdout.splitlines()[2:]
        return [rule.split()[:2] for rule in rules]

    restore(host, "iptables-legacy", LEFTOVERS)
    for port in (9, 10):
        host.run("iptables-legacy", "-A", "INPUT", "-p", "udp", "--dport", str(port), "-j", "DROP")
    for port in (9, 9, 9, 10):
        host.run("bash", "-c", f"echo > /dev/udp/127.0.0.1/{port}")
    assert counted()[2:] == [["3", "87"], ["1", "29"]]
    cleanup(host)
    assert counted() == [["3", "87"], ["1", "29"]]
    host.run("bash", "-c", "echo > /dev/udp/127.0.0.1/10")
    assert counted() == [["3", "87"], ["2", "58"]]


def test_tables_of_iptables_legacy_are_not_made(host):
    cleanup(host)
    assert host.run("cat", "/proc/net/ip_tables_names", "/proc/net/ip6_tables_names").stdout == ""


@pytest.mark.parametrize("tool, where", [("iptables-nft", "table ip nat"),
                                         ("iptables-legacy", "iptables-legacy table nat")])
def test_a_chain_that_another_uses_stays(host, tool, where):
    restore(host, tool, LEFTOVERS)
    host.run(tool, "-t", "nat", "-N", "KUBE-HP-1")
    host.run(tool, "-t", "nat", "-A", "KUBE-HP-1", "-j", "KUBE-EXT-NPX46M4PTMTKRN6Y")
    said = cleanup(host)
    stay = {"KUBE-EXT-NPX46M4PTMTKRN6Y", "KUBE-MARK-MASQ", "KUBE-SVC-NPX46M4PTMTKRN6Y",
            "KUBE-SEP-57KPRZ3JQVENLNBR"}
    assert set(re.findall(r"(?<=chain )\S+(?= stays)", "\n".join(said))) == stay
    assert f"! {where}: chain KUBE-EXT-NPX46M4PTMTKRN6Y stays, because chain KUBE-HP-1 uses it" \
        in said
    rules = host.run(tool, "-t", "nat", "-S").stdout
    assert set(re.findall(r"-N (KUBE-\S+)", rules)) == stay | {"KUBE-HP-1"}
    assert "-A KUBE-HP-1 -j KUBE-EXT-NPX46M4PTMTKRN6Y" in rules
    assert "-A KUBE-EXT-NPX46M4PTMTKRN6Y -j KUBE-SVC-NPX46M4PTMTKRN6Y" in rules
    assert not any(line.startswith("-") for line in cleanup(host))


def test_row_48_nftables_leftovers_go(host):
    subprocess.run(["ip", "netns", "exec", NAMESPACE, "nft", "-f", "-"], check=True, text=True,
                   input="""
add table ip kube-proxy
add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
add chain ip kube-proxy services
add rule ip kube-proxy services ip daddr . meta l4proto . th dport vmap @service-ips
add table ip6 kube-proxy
add chain ip6 kube-proxy nat-prerouting { type nat hook prerouting priority dstnat; }
add table inet kube-proxy
add table ip other
add chain ip other kube-proxy
""")
    assert cleanup(host, "--dry-run") == ["- table ip kube-proxy", "- table ip6 kube-proxy"]
    assert cleanup(host) == ["- table ip kube-proxy", "- table ip6 kube-proxy"]
    assert re.findall(r"table .* (?={)", ruleset(host)) == ["table inet kube-proxy ",
                                                           "table ip other "]
    assert cleanup(host) == []


def test_row_48_ipvs_leftovers_go(host):
    if not shutil.which("ipset"):
        pytest.skip("ipset is not installed")
    for name, kind in (("KUBE-LOOP-BACK", "hash:ip,port,ip"), ("KUBE-6-CLUSTER-IP", "hash:ip,port"),
                       ("KUBE-NODE-PORT-TCP", "bitmap:port"), ("KUBE-SRC-XYZ", "hash:ip"),
                       ("other", "hash:ip")):
        host.run("ipset", "create", name, kind,
                 *(["range", "0-65535"] if kind == "bitmap:port" else []))
    # Not a dummy: somebody else's, whatever its name. tests/vm has kube-proxy's own.
    host.run("ip", "link", "add", "kube-ipvs0", "type", "veth", "peer", "name", "peer0")
    host.run("iptables-nft", "-t", "nat", "-N", "KUBE-NODE-PORT")
    host.run("iptables-nft", "-t", "nat", "-A", "KUBE-NODE-PORT", "-p", "tcp", "-m", "set",
             "--match-set", "KUBE-NODE-PORT-TCP", "dst", "-j", "RETURN")
    host.run("iptables-nft", "-t", "raw", "-A", "PREROUTING", "-m", "set", "--match-set",
             "KUBE-LOOP-BACK", "dst,dst,src", "-j", "RETURN")
    said = cleanup(host)
    assert said[0] == "- table ip nat: 1 chains of kube-proxy, and 0 jumps to them"
    assert sorted(said[1:]) == ["! ipset KUBE-LOOP-BACK stays, because a rule uses it",
                                 "- ipset KUBE-6-CLUSTER-IP", "- ipset KUBE-NODE-PORT-TCP"]
    assert set(host.run("ipset", "list", "-n").stdout.split()) == {"KUBE-LOOP-BACK",
                                                                   "KUBE-SRC-XYZ", "other"}
    assert "kube-ipvs0" in host.run("ip", "link").stdout


@pytest.mark.parametrize("mode", ["iptables", "ipvs", "nftables"])
def test_a_live_kube_proxy_is_named_by_its_answer(host, mode):
    with host.server(ANSWER + mode, 10249):
        done = host.run(*host.arguments("--features", "serviceproxy"), check=False)
        asked = host.run(BIN, "cleanup", "--kube-proxy", check=False)
    why = f"kube-proxy runs on this node: 127.0.0.1:10249/proxyMode says {mode}; stop it first"
    assert (done.returncode, asked.returncode) == (1, 1)
    assert why in done.stderr and why in asked.stderr
    assert ruleset(host) == ""


def test_a_live_kube_proxy_is_named_by_its_process(host, tmp_path):
    program = tmp_path / "kube-proxy"
    shutil.copy(shutil.which("sleep"), program)
    with contextlib.ExitStack() as stack:
        elsewhere = stack.enter_context(subprocess.Popen([program, "60"]))
        stack.callback(elsewhere.kill)
        assert cleanup(host) == []          # not in this network namespace
        here = stack.enter_context(subprocess.Popen(["ip", "netns", "exec", NAMESPACE, program,
                                                     "60"]))
        stack.callback(here.kill)
        why = f"process {here.pid} is called kube-proxy; stop it first"
        within(5, lambda: open(f"/proc/{here.pid}/comm").read() == "kube-proxy\n", "exec")
        done = host.run(*host.arguments("--features", "serviceproxy"), check=False)
        assert done.returncode == 1 and why in done.stderr
        assert why in host.run(BIN, "cleanup", "--kube-proxy", check=False).stderr
        cleanup(host, "--dry-run")          # looking harms nobody


@pytest.mark.parametrize("answer", ["", "HTTP/1.0 404 Not Found\r\n\r\niptables", ANSWER + "other",
                                    ANSWER])
def test_others_on_its_port_are_not_kube_proxy(host, answer):
    with host.server(answer, 10249):
        host.start("--features", "serviceproxy", "--metrics-bind-address", "none").ready()


def test_our_own_agent_is_not_kube_proxy(host):
    host.start("--features", "serviceproxy").ready()
    assert cleanup(host) == []


def test_leftovers_are_told_of_and_stay(host):
    restore(host, "iptables-nft", LEFTOVERS)
    host.start("--features", "serviceproxy").ready()
    assert "event=leftovers of=kube-proxy" in host.log.read_text()
    assert "portolan cleanup --kube-proxy" in host.log.read_text()
    assert "KUBE-SVC-" in ruleset(host)
    cleanup(host)
    assert "KUBE-" not in ruleset(host)
    assert "table inet portolan" in ruleset(host)


def test_portmap_alone_minds_no_kube_proxy(host):
    restore(host, "iptables-nft", LEFTOVERS)
    with host.server(ANSWER + "iptables", 10249):
        host.start().ready()
    assert "kube-proxy" not in host.log.read_text()
