"""Row 48: from one mode to the other, and from one iptables to the other, on a node with traffic.

It needs a kernel with IPVS and nftables, which Debian's user-mode-linux is not; tools/kernel builds one:

  SECOND_KERNEL=$(tools/kernel) lab/secondkernel/run --timeout 900 --memory 1024 \
      /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/vm -m nftables
"""

import contextlib
import fcntl
import threading
import time

import pytest

from ipvs_world import FLAGS, MODE, without_barrier
from lab import netns, wait_until
from lab.hammer import Hammer
from lab.probe import open_socket
from proxy_world import NODE_A

pytestmark = pytest.mark.nftables

PORT = 30080
ANSWER_SECONDS = 5
NFT = ("--proxy-mode", "nft", *FLAGS)
IPVS = {kind: ("--iptables-mode", kind, *FLAGS) for kind in ("legacy", "nft")}
OTHER = {"legacy": "nft", "nft": "legacy"}
# Somebody else's, in whose table one of ours would be as well.
THEIRS = "INPUT -s 192.0.2.77/32 -j DROP"


class Flow(threading.Thread):
    """A UDP client that stays: twenty datagrams a second from one port, and who answers when."""

    def __init__(self, ns, address, port):
        super().__init__(daemon=True)
        self.dialled = f"{address}:{port} from {ns}"
        self.sock = open_socket(ns, "udp", address)
        self.sock.connect((address, port))
        self.sock.setblocking(False)
        self.answers = []   # (time of the monotonic clock, pod)
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.05):
            with contextlib.suppress(OSError):      # nobody has answered, or refused one of before
                self.sock.send(b"hello")
            with contextlib.suppress(OSError):
                while True:
                    pod = self.sock.recv(500).decode().split()[0].removeprefix("pod=")
                    self.answers.append((time.monotonic(), pod))

    def pods(self):
        """In the order in which they answered first."""
        return list(dict.fromkeys(pod for _, pod in self.answers))

    def wait_answer(self, after=0.0, why=lambda: ""):
        """`why` says what there was to see, should it not come."""
        wait_until(lambda: self.answers and self.answers[-1][0] > after, ANSWER_SECONDS,
                   lambda: f"a datagram to {self.dialled}, from port {self.sock.getsockname()[1]}, to be "
                   f"answered; {self.history()}\n{why()}")

    def history(self):
        """Who answered last, and how long ago."""
        now, last = time.monotonic(), {pod: when for when, pod in self.answers}
        return "answered " + (", ".join(f"by {pod} until {now - when:.1f} s ago"
                                        for pod, when in last.items()) or "never")

    def stop(self):
        self.over.set()
        self.join()
        self.sock.close()


@pytest.fixture
def ways(proxy):
    """Who dials what, of a Service with endpoints on both nodes."""
    svc = proxy.service("a1", "b1", node_port=PORT, external=True)
    return [(source, address, port) for family in (4, 6) for source, address, port in (
        ("a3", svc.ip(family), 80), ("client", NODE_A[family], PORT),
        ("client", svc.external(family), 80))]


@contextlib.contextmanager
def flows_on(proxy, ways):
    flows = [Flow(proxy.place(source).ns, address, port) for source, address, port in ways]
    try:
        for flow in flows:
            flow.wait_answer()
        yield flows
    finally:
        for flow in flows:
            flow.stop()


def on_the_way(proxy):
    """Where the node's UDP goes: connections of conntrack and of IPVS, what each rule has counted."""
    return netns.run_in(proxy.host.ns, ["sh", "-c", """
        for command in 'conntrack -L -p udp' 'ipvsadm -Lnc' 'ipvsadm -Ln --stats' 'ip neigh' \
            'iptables-legacy-save -c' 'ip6tables-legacy-save -c' 'iptables-nft-save -c' \
            'ip6tables-nft-save -c' 'nft list table inet portolan'
        do echo "=== $command"; $command 2>&1 | grep -v '^TCP'; done"""], check=False).stdout


def silence(connects):
    """Seconds from the first to the last new connection that did not stand at once. One that stood,
    and then heard nothing, is a connection of before."""
    wrong = [connect for connect in connects
             if connect.again or connect.error and not connect.error.endswith("state 1")]
    return max(c.ended for c in wrong) - min(c.began for c in wrong) if wrong else 0.0


def switched(proxy, ways, *flags):
    """Hammers, streams and UDP flows on all ways while the agent ends and starts with other flags;
    what streams and flows saw. At most a second passes without new connections, and none in UDP."""
    hammers = [Hammer(proxy.place(source).ns, address, port, pause=0.02)
               for source, address, port in ways]
    streams = [proxy.lab.stream("tcp", address, port, source=source).wait_answer()
               for source, address, port in ways]
    with flows_on(proxy, ways) as flows:
        began = time.monotonic()
        assert proxy.agent.stop() == 0
        proxy.start(*flags)
        served = time.monotonic()
        for flow in flows:
            flow.wait_answer(after=served, why=lambda: on_the_way(proxy))
    for source, address, port in ways:
        proxy.wait_served(source, "tcp", address, port)
        proxy.wait_served(source, "udp", address, port)
    found = [hammer.stop() for hammer in hammers]
    assert all(connects[0].began < began and connects[-1].ended > served for connects in found)
    silences = {hammer.dialled: silence(connects) for hammer, connects in zip(hammers, found)}
    assert max(silences.values()) <= 1, silences
    return [stream.stop() for stream in streams], flows


def nftables(proxy):
    return proxy.host.out("nft", "list", "ruleset")


@pytest.mark.parametrize("rules", list(IPVS))
def test_row_48_from_nftables_to_ipvs(proxy, ways, rules):
    """Connections and UDP flows of before live on by conntrack, where they were; the table goes."""
    proxy.restart(*NFT)
    assert "table inet portolan" in nftables(proxy)
    assert without_barrier(proxy.kernel().servers) == {} and not proxy.kernel().bound
    streams, flows = switched(proxy, ways, *IPVS[rules])
    assert all(stream.nothing_lost and len(stream.pods) == 1 for stream in streams), streams
    assert all(len(flow.pods()) == 1 for flow in flows), [flow.answers for flow in flows]
    assert "portolan" not in nftables(proxy)
    kernel = proxy.kernel()
    assert without_barrier(kernel.servers) and kernel.sets and kernel.bound
    chain = {"nft": nftables(proxy), "legacy": str(kernel.rules[4])}[rules]
    assert "KUBE-SERVICES" in chain


@contextlib.contextmanager
def somebody_holds_iptables():
    with open("/run/xtables.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def all_answered(flows, why):
    now = time.monotonic()
    for flow in flows:
        flow.wait_answer(after=now, why=why)


def start_without_rules(proxy, *flags):
    """Until all else is done. The next test has the usual flags."""
    proxy.agent.clear_log()
    proxy.flags = flags
    proxy.agent.start(proxy.binary, proxy.source, [*MODE, *flags])
    wait_until(lambda: "rules of ip6tables" in proxy.agent.log(), 20, "rules to be refused")
    assert without_barrier(proxy.kernel().servers)


@pytest.mark.parametrize("features", ["serviceproxy", "portmap,serviceproxy"])
def test_row_48_the_table_serves_until_the_rules_stand(proxy, ways, features):
    """IPVS without its rules masquerades nobody: a pod on another node would answer past this one. And with
    the table of nftables the kernel lets go of conntrack, by which flows of before are translated."""
    flags = ("--features", features, *FLAGS[2:])
    proxy.restart("--proxy-mode", "nft", *flags)
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(flows_on(proxy, ways))
        assert proxy.agent.stop() == 0
        with somebody_holds_iptables():
            start_without_rules(proxy, *flags)
            assert "chain services" in nftables(proxy)
            flows = before + stack.enter_context(flows_on(proxy, ways * 2))
            all_answered(flows, lambda: on_the_way(proxy))
        wait_until(lambda: "chain services" not in nftables(proxy), 20, "the table to go")
        proxy.settle()
        all_answered(flows, lambda: on_the_way(proxy))
        assert all(len(flow.pods()) == 1 for flow in flows), [flow.pods() for flow in flows]


def test_row_48_a_first_table_does_not_wait_for_rules(proxy, ways):
    """PortMaps have nothing to do with iptables."""
    assert proxy.agent.stop() == 0
    proxy.cleanup()
    with somebody_holds_iptables():
        start_without_rules(proxy, "--features", "portmap,serviceproxy", *FLAGS[2:])
        assert "chain translate" in nftables(proxy)


@pytest.mark.parametrize("rules", list(IPVS))
def test_row_48_from_ipvs_to_nftables(proxy, ways, rules):
    """Connections of before are reset, unless chance leads them to the pod they had; what IPVS had goes."""
    proxy.restart(*IPVS[rules])
    assert "portolan" not in nftables(proxy)
    assert rules == "legacy" or "chain KUBE-SERVICES" in nftables(proxy)
    streams, _ = switched(proxy, ways, *NFT)
    assert all(stream.ended == "ConnectionResetError" or stream.nothing_lost and len(stream.pods) == 1
               for stream in streams), streams
    assert "table inet portolan" in nftables(proxy) and "KUBE-" not in nftables(proxy)
    kernel = proxy.kernel()
    assert kernel.servers == {} and kernel.sets == {} and kernel.bound is None
    assert not [rule for rule in sum(kernel.rules.values(), []) if "KUBE-" in rule]


def test_row_48_udp_follows_to_nftables_where_ipvs_keeps_its_connections(proxy, ways):
    """As kernels before 5.9 do. conntrack's entries of IPVS tell where replies come from, and lead nowhere
    once IPVS has gone."""
    proxy.restart(*IPVS["legacy"])
    with flows_on(proxy, ways * 2) as flows:
        assert proxy.agent.stop() == 0
        proxy.host.run("sysctl", "-w", "net.ipv4.vs.expire_nodest_conn=0")
        proxy.start(*NFT)
        all_answered(flows, lambda: on_the_way(proxy))


def test_udp_that_began_without_rules_is_masqueraded_once_there_are(proxy, ways):
    """Somebody emptied a chain while no agent ran: of two clients the one who is led to the other node hears
    nothing, and would not for as long as it sends."""
    assert proxy.agent.stop() == 0
    for tool in ("iptables-legacy", "ip6tables-legacy"):
        proxy.host.run(tool, "-w", "-t", "nat", "-F", "KUBE-MARK-MASQ")
    flows = [Flow(proxy.place(source).ns, address, port)
             for source, address, port in ways * 2 if source == "client"]
    try:
        wait_until(lambda: sum(bool(flow.answers) for flow in flows) == len(flows) / 2, ANSWER_SECONDS,
                   lambda: f"half of the clients to be answered; {[flow.history() for flow in flows]}")
        proxy.restart()
        all_answered(flows, lambda: on_the_way(proxy))
        assert all(len(flow.pods()) == 1 for flow in flows), [flow.pods() for flow in flows]
    finally:
        for flow in flows:
            flow.stop()


def saved(proxy, kind):
    """Both families' chains and rules of iptables-nft or iptables-legacy."""
    return "".join(proxy.host.out(f"{tool}-{kind}-save") for tool in ("iptables", "ip6tables"))


@contextlib.contextmanager
def their_rule(proxy, kind):
    """In filter INPUT, which our chains are entered from, too."""
    tool = f"iptables-{kind}"
    proxy.host.run(tool, "-w", "-A", *THEIRS.split())
    try:
        yield
    finally:
        proxy.host.run(tool, "-w", "-D", *THEIRS.split())


@pytest.mark.parametrize("mode", ["legacy", "nft", "auto"])
def test_row_48_from_one_iptables_to_the_other(proxy, ways, mode):
    """The chains of before go, of both families, once the new ones stand; others' rules stay. `auto`
    takes to legacy when that has a rule. One line says it, and the next start none."""
    rules = "legacy" if mode == "auto" else mode
    before = OTHER[rules]
    proxy.restart(*IPVS[before])
    with their_rule(proxy, before), their_rule(proxy, rules):
        for tool in ("iptables", "ip6tables"):
            assert "-A KUBE-SERVICES" in proxy.host.out(f"{tool}-{before}-save")
        assert "KUBE-" not in saved(proxy, rules)
        proxy.agent.clear_log()
        proxy.restart("--iptables-mode", mode, *FLAGS)
        assert "KUBE-" not in saved(proxy, before) and THEIRS in saved(proxy, before)
        assert saved(proxy, rules).count(":KUBE-SERVICES") == 2 and THEIRS in saved(proxy, rules)
        said = [line for line in proxy.agent.log().splitlines() if "event=mode_changed" in line]
        assert len(said) == 1 and "chains of Portolan" in said[0], said
        for source, address, port in ways:
            proxy.wait_served(source, "tcp", address, port)
        proxy.agent.clear_log()
        proxy.restart("--iptables-mode", mode, *FLAGS)
        assert "event=mode_changed" not in proxy.agent.log()
        assert "-A KUBE-SERVICES" in saved(proxy, rules)


def test_row_48_chains_of_kube_proxy_in_the_other_iptables_stay(proxy):
    """Of one that ran here before any agent did: it was told, and goes when that is asked for."""
    assert proxy.agent.stop() == 0
    proxy.cleanup()
    proxy.host.run("iptables-nft", "-w", "-t", "nat", "-N", "KUBE-SERVICES")
    try:
        proxy.agent.clear_log()
        proxy.start(*IPVS["legacy"])
        assert ":KUBE-SERVICES" in saved(proxy, "nft")
        assert "event=leftovers" in proxy.agent.log()
    finally:
        proxy.host.run("iptables-nft", "-w", "-t", "nat", "-X", "KUBE-SERVICES")
