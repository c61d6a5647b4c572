"""A cluster whose Services are served at addresses of its nodes: its objects, its agents, traffic.

The same tests run on two topologies: `weave`, whose pods share an L2 overlay that is there
(`--overlay weave`), and `three-nodes`, whose pods are routed (`--overlay vxlan`). One lab and one
set of agents serve a module; every test has Services of its own.
"""

import contextlib
import itertools
import json
from dataclasses import dataclass

from dialler import Dialler
from lab import wait_until
from lab.services import NAMESPACE, Service
from services_world import ServicesWorld
from world import TABLE, at_once, links, nothing_left, routes, rules, table_text

CLASS = "reweave.levk.dev/node-address"
ADDRESSES, OVERLAY = "reweave.levk.dev/addresses", "reweave.levk.dev/weave"
CLIENT = "198.51.100.7"
HELD = "203.0.113.9"        # node a has it on enp1s0
SPARE = "198.18.0.1"        # led to node a; nobody has it
PROTOCOLS = ("tcp", "udp")
ALL_PODS = ("a1", "a2", "b1", "b2", "c1")


@dataclass(frozen=True)
class Mode:
    """One topology, and what the tests need to know of it."""
    topology: str
    overlay: str            # the option's value
    device: str             # what carries it on each node
    nodes: dict             # a, b, c: their names
    inside: str             # an address of node a's that the other nodes and their pods reach
    behind: dict            # node: the hosts that lead SPARE to it, each with the next one's address
    pod_range: str

    @property
    def flags(self):
        return ("--features", "loadbalancer", "--overlay", self.overlay)


MODES = {
    "weave": Mode("weave", "weave", "weave", {"a": "edge-a", "b": "node-b", "c": "node-c"}, HELD,
                  {"edge-a": [("inet", HELD)], "node-b": [("inet", "203.0.113.137")]},
                  "10.32.0.0/16"),
    "vxlan": Mode("three-nodes", "vxlan", "plo", {"a": "edge-a", "b": "worker-b", "c": "worker-c"},
                  "100.64.93.1",
                  {"edge-a": [("inet", HELD)],
                   "worker-b": [("inet", "192.0.2.10"), ("home-b", "192.168.2.20")]},
                  "10.244.0.0/16"),
}


class LbWorld(ServicesWorld, Dialler):
    client = {4: CLIENT}

    def __init__(self, lab, mode, binary, source):
        """`source` is a Folder or a Kube, empty."""
        self.lab = lab
        self.mode = mode
        self.binary = binary
        self.source = source
        self.objects = source.objects
        self.status = source.status
        self.flags = None
        self.services = []
        self.numbers = itertools.count(1)
        self.put_cluster()
        for node in lab.nodes():
            self.objects.node(node.name, lab.internal_ip(node.name))
        for host, via in mode.behind[self.a]:
            lab.host(host).ip(f"route replace {SPARE} via {via}")

    # Nodes and their agents

    a = property(lambda self: self.mode.nodes["a"])
    b = property(lambda self: self.mode.nodes["b"])
    c = property(lambda self: self.mode.nodes["c"])

    def node(self, letter):
        """The machine a, b or c."""
        return self.lab.node(self.mode.nodes[letter])

    def agents(self):
        return [self.lab.agent(node.name) for node in self.lab.nodes()]

    def start(self, *flags):
        """All agents, with the usual flags unless others are said; waits until they serve."""
        self.start_agents(flags or self.mode.flags)
        self.settle(timeout=10)
        return self

    def start_agents(self, flags):
        self.flags = flags
        for agent in self.agents():
            agent.clear_log()
            agent.start(self.binary, self.source, self.flags)
        for agent in self.agents():
            agent.wait_log("event=starting")

    def stop(self):
        def end(agent):
            if agent.returncode is None and agent.pid:
                code = agent.stop()
                assert code == 0, f"{agent.node}: SIGTERM: {code}:\n{agent.log()[-4000:]}"
        at_once(end, self.agents())

    def restart(self, *flags):
        self.stop()
        return self.start(*flags)

    def ensure_running(self):
        """As a test finds them, whatever the one before did."""
        if self.flags == self.mode.flags and all(agent.pid for agent in self.agents()):
            return
        self.restart()

    def check_alive(self):
        for agent in self.agents():
            assert agent.returncode is None, (
                f"{agent.node}: the agent ended with {agent.returncode}:\n{agent.log()[-4000:]}")

    def settle(self, timeout=5):
        """Waits until node a serves everything written so far, by its own pods and by others'.

        A Service with new ports and slices for them, written last, is dialled until b1 and c1 answer.
        """
        for name, port in self.put_barrier("b1", "c1", **held(HELD)).items():
            def served(number=port):
                self.check_alive()
                return self.lab.probe("tcp", HELD, number, timeout=0.1).answered
            wait_until(served, timeout, lambda pod=name: f"{pod} to be served")

    def close(self):
        def end(agent):
            agent.kill()
            self.cleanup(agent.node, check=False)
            agent.clear_log()
        at_once(end, self.agents())
        self.source.clear()

    def cleanup(self, node, check=True):
        return self.lab.node(node).run(self.binary, "cleanup", "--state-dir",
                                       self.lab.agent(node).state_dir, check=check).stdout

    # Services

    def service(self, *pods, address=HELD, settle=True, **spec):
        """A Service of a tcp and a udp port of its own, svc.port, at `address`, to port 8080."""
        number = next(self.numbers)
        port = 5000 + number
        svc = Service(self.objects, f"s{number}", number % 250, families=(4,),
                      ports=(("tcp", "TCP", port, 8080), ("udp", "UDP", port, 8080)),
                      spec={**held(address), **spec})
        svc.port = port
        self.services.append(svc)
        svc.put()
        self.endpoints(svc, *pods, settle=settle)
        return svc

    def delete(self, svc):
        svc.delete()
        svc.delete_endpoints()
        self.services.remove(svc)

    def ingress(self, svc):
        """status.loadBalancer.ingress as the API has it."""
        document = self.status.read("services", svc.name, NAMESPACE) or {}
        return document.get("status", {}).get("loadBalancer", {}).get("ingress", [])

    def annotation(self, node, key):
        """Of the Node object; "" when it has none, as a folder says."""
        document = self.status.read("nodes", node) or {}
        return document.get("metadata", {}).get("annotations", {}).get(key, "")

    def wait_annotation(self, node, key, value, timeout=5):
        wait_until(lambda: self.annotation(node, key) == value, timeout,
                   lambda: f"{key} of {node} to be {value}; it is {self.annotation(node, key)}",
                   self.status.interval)

    # Addresses that come and go

    def lead(self, node, address=SPARE):
        """From now on the world finds the address there."""
        for host, via in self.mode.behind[node]:
            self.lab.host(host).ip(f"route replace {address} via {via}")

    @contextlib.contextmanager
    def having(self, *letters, address=SPARE):
        """The nodes have the address on enp1s0 at first; after the block nobody has."""
        try:
            for letter in letters:
                self.node(letter).ip(f"addr add {address}/32 dev enp1s0")
            yield
        finally:
            for node in self.lab.nodes():
                node.run("ip", "addr", "del", f"{address}/32", "dev", "enp1s0", check=False)
            self.lead(self.a, address)

    # Looks into the kernels

    def serves(self, letter, svc, address=HELD):
        """Whether the node's table leads this address and port anywhere."""
        key = f"{address} . tcp . {svc.port}"
        return self.node(letter).run("nft", "get", "element", *TABLE, "service4", "{", key, "}",
                                     check=False).returncode == 0

    def state(self, node):
        """All that is ours on a node, as it should look, without counters and handles."""
        neighbours = [part for name in ("plo",) if node.has_link(name) for part in (
            node.out("ip", "neigh", "show", "dev", name, "nud", "permanent").splitlines()
            + node.out("bridge", "fdb", "show", "dev", name).splitlines())]
        table = "\n".join(line for line in table_text(node).splitlines()
                          if not line.startswith("map affinity4: "))
        return {"table": table, "links": links(node),
                "addresses": [node.out("ip", "-o", "-4", "addr", "show", "dev", name).partition(":")[2]
                              for name in sorted(links(node))],
                "neighbours": sorted(neighbours), "rules": rules(node), "routes": routes(node)}

    def wait_log(self, letter, *words, timeout=5):
        """A line of the node's log that has all of the words."""
        agent = self.lab.agent(self.mode.nodes[letter])

        def said():
            return [line for line in agent.log().splitlines() if all(word in line for word in words)]
        return wait_until(said, timeout, lambda: f"{agent.node} to log {words}; it said:\n"
                                                 f"{agent.log()[-3000:]}")[-1]

    def events(self, reason):
        """[(kind and name of what they are about, message)] of Events; an API server has them."""
        listed = self.source.client("GET", "/apis/events.k8s.io/v1/events")["items"]
        return [(f"{event['regarding']['kind']} {event['regarding']['name']}", event["note"])
                for event in listed if event["reason"] == reason]


def held(address):
    """The part of a Service's spec that asks for it."""
    return {"type": "LoadBalancer", "loadBalancerClass": CLASS, "loadBalancerIP": address,
            "allocateLoadBalancerNodePorts": False}


def rules_of(node):
    """[(priority, fwmark, table)] of our policy rules that look up a table."""
    listed = json.loads(node.out("ip", "-j", "-N", "rule"))
    return [(rule["priority"], f"{rule.get('fwmark', '')}/{rule.get('fwmask', '')}", rule["table"])
            for rule in listed if rule.get("protocol") in ("107", 107) and "table" in rule]


@contextlib.contextmanager
def an_lb_world(lab, mode, binary, source):
    """Its agents must end cleanly and cleanup must leave nothing."""
    with nothing_left(lab):
        lab.flush_conntrack()
        world = LbWorld(lab, mode, binary, source)
        try:
            world.start()
            yield world
            world.stop()
            for agent in world.agents():
                agent.check_sanitizer()
        finally:
            world.close()
