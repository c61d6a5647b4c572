"""A cluster whose node-a is served by the service proxy on IPVS: tests/lab's, with another judge of
what the kernel holds: ipvsadm, ipset, iptables-legacy and ip.
"""

import contextlib
import json
import re
from dataclasses import dataclass, field

from lab import netns, pods, wait_until
from lab.services import NAMESPACE
from proxy_world import BARRIER, POD_RANGES, ProxyWorld, serving

MODE = ("--proxy-mode", "ipvs", "--iptables-mode", "legacy")
FLAGS = ("--features", "serviceproxy", "--cluster-cidr", POD_RANGES)
LINK = "kube-ipvs0"
CLIENTS = ("iptables-legacy", "ip6tables-legacy")


NO_RULES = """*mangle
:PREROUTING ACCEPT
:INPUT ACCEPT
:FORWARD ACCEPT
:OUTPUT ACCEPT
:POSTROUTING ACCEPT
COMMIT
*filter
:INPUT ACCEPT
:FORWARD ACCEPT
:OUTPUT ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT
:INPUT ACCEPT
:OUTPUT ACCEPT
:POSTROUTING ACCEPT
COMMIT
"""


def restore_rules(ns, text4, text6):
    for command, text in zip(CLIENTS, (text4, text6)):
        netns.run_in(ns, [f"{command}-restore"], stdin=text)


@dataclass
class Server:
    scheduler: str
    persistent: int = 0     # seconds, 0: not
    dests: dict = field(default_factory=dict)   # {"10.244.1.2:8080": weight}


@dataclass
class Kernel:
    """What one namespace holds."""
    servers: dict   # {("tcp", "10.96.1.1:80"): Server}; of a firewall mark ("mark", "7")
    sets: dict      # {name: elements}
    bound: set      # addresses of kube-ipvs0, None without the device
    rules: dict     # {4: lines of iptables-save without counters and comments of the tool, 6: ...}

    def ours(self):
        """Comparable."""
        return (self.servers, self.sets, self.bound, self.rules)

    def elements(self, name, family=4):
        return self.sets.get(f"KUBE-{'' if family == 4 else '6-'}{name}", set())

    def server(self, proto, address, port):
        """The Server of an address and port; None when there is none."""
        return self.servers.get((proto, joined(address, port)))

    def dests(self, proto, address, port):
        server = self.server(proto, address, port)
        return server.dests if server else None

    def text(self):
        return repr(self)


def joined(address, port):
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def read_servers(text):
    """`ipvsadm -Sn`"""
    servers = {}
    for line in text.splitlines():
        words = line.split()
        key = ({"-t": "tcp", "-u": "udp", "--sctp-service": "sctp", "-f": "mark"}[words[1]], words[2])
        options = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word[0] == "-"}
        if words[0] == "-A":
            servers[key] = Server(options["-s"], int(options.get("-p", 0)))
        else:
            servers[key].dests[options["-r"]] = int(options["-w"])
    return servers


def read_sets(text):
    """`ipset save`"""
    sets = {}
    for line in text.splitlines():
        words = line.split()
        if words[0] == "create":
            sets[words[1]] = set()
        else:
            sets[words[1]].add(words[2])
    return sets


def read_rules(text):
    """`iptables-save`: chains and rules in their order, each after its table; tables by name."""
    lines, table = [], None
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith((":", "-")):
            lines.append(f"{table} " + re.sub(r" \[\d+:\d+\]$", "", line))
    return sorted(lines, key=lambda line: line.split()[0])


def read_kernel(ns):
    """In one go; each command is a new process."""
    done = netns.run_in(ns, ["sh", "-c", "ipvsadm -Sn; echo ===; ipset save; echo ===; "
                             f"{CLIENTS[0]}-save; echo ===; {CLIENTS[1]}-save; echo ===; "
                             "ip -j addr show"])
    servers, sets, rules4, rules6, links = done.stdout.split("===\n")
    bound = next(({entry["local"] for entry in link["addr_info"] if entry["scope"] == "global"}
                  for link in json.loads(links) if link["ifname"] == LINK), None)
    return Kernel(read_servers(servers), read_sets(sets), bound,
                  {4: read_rules(rules4), 6: read_rules(rules6)})


class IpvsWorld(ProxyWorld):
    """Flags of the mode are added to those a test says."""

    def start(self, *flags):
        self.flags = flags or FLAGS
        mode = () if "--proxy-mode" in self.flags else (
            MODE[:2] if "--iptables-mode" in self.flags else MODE)
        self.agent.start(self.binary, self.source, [*mode, *self.flags])
        self.settle()
        return self

    def settle(self, timeout=10):
        """Waits until the kernel holds everything written so far, and nothing that went.

        A pass adds first and removes last: the second of two barriers stands when the pass of the
        first is over.
        """
        super().settle(timeout)
        super().settle(timeout)


    def flush_conntrack(self):
        """Of node-a, the one that is served."""
        netns.run_in(self.host.ns, ["conntrack", "-F"], check=False)

    def kernel(self, name="node-a"):
        return read_kernel(self.lab.ns(name))

    def wait_kernel(self, condition, what, timeout=5):
        """Reads the kernel until the condition holds; returns what was read."""
        def seen():
            found = self.kernel()
            return found if condition(found) else None
        return wait_until(seen, timeout, lambda: f"{what}; there is {self.kernel()}\n"
                          f"the agent said:\n{self.agent.log()[-3000:]}", interval=0.1)

    def table(self):
        """What is ours, comparable; without the barrier, which is another each time."""
        kernel = self.kernel()
        return "\n".join(f"{part}" for part in (without_barrier(kernel.servers), {
            name: without_barrier(elements) for name, elements in kernel.sets.items()},
            kernel.bound and without_barrier(kernel.bound), kernel.rules))

    def addresses(self, name="node-a"):
        """All addresses of a host but those that are bound for Services: nobody may be masqueraded
        to one of these."""
        listed = json.loads(netns.run_in(self.lab.ns(name), ["ip", "-j", "addr"]).stdout)
        return {entry["local"] for link in listed if link["ifname"] != LINK
                for entry in link["addr_info"]}

    def dropped(self, source, proto, address, port, seconds=0.3, **options):
        """Nothing comes back: a reset or an ICMP error would be an error of the socket's."""
        found = self.dial(source, proto, address, port, timeout=seconds, **options)
        assert found.error == "timeout" or "not permitted" in (found.error or ""), found

    def refused(self, source, proto, address, port, **options):
        """At once; but for the node's own TCP over IPv6. On one processor the ICMP error comes while the
        socket still sends, and the kernel only believes that of the second packet, a second later."""
        if proto == "tcp" and ":" in address and source == "node-a":
            found = self.dial(source, proto, address, port, **options)
            assert found.error == "refused" and found.seconds < 1.9, found
        else:
            super().refused(source, proto, address, port, **options)

    @contextlib.contextmanager
    def listening(self, name, host, port):
        """Something that listens on every address of a host, those it will get included."""
        label = f"server-{name}"
        log = pods.start_server(self.lab.processes, label, name, self.lab.ns(host), [str(port)],
                                self.lab.state)
        try:
            pods.wait_server(self.lab.processes, label, log)
            yield
        finally:
            self.lab.processes.stop(label)

    def cleanup(self, *arguments):
        """`portolan cleanup` on the node; the agent must have ended."""
        return self.host.run(self.binary, "cleanup", "--state-dir", self.agent.state_dir,
                             *arguments).stdout


def without_barrier(found):
    """Servers, elements or addresses without the Service that tests wait by."""
    if isinstance(found, dict):
        return {key: found[key] for key in sorted(found) if not key[1].startswith(f"{BARRIER}:")}
    return sorted(one for one in found if not re.match(re.escape(BARRIER) + r"\b", one))


@contextlib.contextmanager
def an_ipvs_world(lab, binary, source):
    """Cleanup must leave nothing."""
    before = read_kernel(lab.ns("node-a"))
    with serving(IpvsWorld(lab, binary, source)) as world:
        yield world
    after = read_kernel(lab.ns("node-a"))
    assert after.ours() == before.ours(), "cleanup left something behind"
