"""A cluster whose node-a is served by the service proxy: its objects, its agent, traffic through it.

One lab and one agent serve a whole module; every test has Services of its own. Where packets tell,
they are the judge; where they cannot, the kernel is, through nft and conntrack.
"""

import contextlib
import json
import os

import yaml

from dialler import Dialler
from lab import wait_until
from lab.manifests import write_atomically
from lab.services import Service
from lab.web import fetch
from services_world import BARRIER, ServicesWorld
from world import TABLE, nothing_left, table_text

NODE = {"node-a": {4: "203.0.113.9", 6: "2001:db8:113::9"},
        "node-b": {4: "203.0.113.137", 6: "2001:db8:114::9"}}
NODE_A, NODE_B = NODE["node-a"], NODE["node-b"]
SECOND = {4: "192.0.2.1", 6: "2001:db8:2::1"}       # node-a's other address
OTHER = {4: "192.0.2.50", 6: "2001:db8:2::50"}      # a host behind node-a
BALANCER = {4: "192.0.2.60", 6: "2001:db8:2::60"}   # its other address
CLIENT = {4: "198.51.100.7", 6: "2001:db8:51::7"}
CLIENT_2 = {4: "198.51.100.8", 6: "2001:db8:51::8"}
LOOPBACK = {4: "127.0.0.1", 6: "::1"}
POD_RANGES = "10.244.0.0/16,fd00:10:244::/48"
FLAGS = ("--features", "serviceproxy", "--cluster-cidr", POD_RANGES)
PROTOCOLS = ("tcp", "udp")


class ProxyWorld(ServicesWorld, Dialler):
    client = CLIENT

    def __init__(self, lab, binary, source):
        """`source` is a Folder or a Kube, empty."""
        self.lab = lab
        self.binary = binary
        self.source = source
        self.objects = source.objects
        self.flags = None
        self.services = []
        self.numbers = iter(range(1, 250))
        self.put_cluster()
        for name in NODE:
            self.node(name)

    def node(self, name, zone=None, taints=()):
        """The Node object; in the zone of its own name unless another is said."""
        subnets = self.lab.topology.hosts[name].pod_subnets
        self.objects.put("v1", "Node", name, {
            "spec": {"podCIDR": subnets[0], "podCIDRs": subnets,
                     **({"taints": list(taints)} if taints else {})},
            "status": {"addresses": [{"type": "InternalIP", "address": NODE[name][4]},
                                     {"type": "InternalIP", "address": NODE[name][6]},
                                     {"type": "Hostname", "address": name}]}},
            labels={"topology.kubernetes.io/zone": zone or f"zone-{name[-1]}"})

    def delete_later(self, kind, name, namespace=None):
        """As if something still held it back: it has a deletionTimestamp. A folder only."""
        path = self.objects.path(kind, name, namespace)
        with open(path) as file:
            document = yaml.safe_load(file)
        document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        write_atomically(path, yaml.safe_dump(document))

    # The agent of node-a

    @property
    def host(self):
        return self.lab.node("node-a")

    @property
    def agent(self):
        return self.lab.agent("node-a")

    def start(self, *flags):
        """With the usual flags unless others are said; waits until it serves."""
        self.flags = flags or FLAGS
        self.agent.start(self.binary, self.source, self.flags)
        self.settle()
        return self

    def restart(self, *flags):
        """Ends it and starts it, perhaps with other flags, over what it left in the kernel."""
        self.stop()
        return self.start(*flags)

    def stop(self):
        """Unless a test has; one that has ended by itself is a fault."""
        code = self.agent.stop()
        assert code in (0, None), f"SIGTERM: {code}:\n{self.agent.log()[-4000:]}"

    def flush_conntrack(self):
        self.lab.flush_conntrack()

    def settle(self, timeout=5):
        """Waits until the kernel serves everything written so far.

        A Service with a new port and a slice for it, written last, are dialled until a pod answers.
        """
        (port,) = self.put_barrier("a1").values()

        def served():
            assert self.agent.returncode is None, (
                f"the agent ended with {self.agent.returncode}:\n{self.agent.log()[-4000:]}")
            return self.lab.probe("tcp", BARRIER, port, source="a2", timeout=0.1).answered
        wait_until(served, timeout, lambda: "the kernel to hold what was written last; the agent "
                   f"said:\n{self.agent.log()[-3000:]}")

    def close(self):
        self.agent.kill()
        self.host.run(self.binary, "cleanup", "--state-dir", self.agent.state_dir, check=False)
        self.agent.clear_log()
        self.source.clear()

    # Services

    def service(self, *pods, node_port=None, lb=False, lb_mode=None, external=False,
                settle=True, **options):
        """A Service of tcp and udp port 80 to port 8080 of the pods, unless `ports` says otherwise.

        `external=True` gives it external IPs, `lb=True` load balancer addresses: svc.external();
        both take {family: address} instead. Further keywords are fields of Service or of the spec.
        """
        number = next(self.numbers)
        fields = {key: options.pop(key) for key in ("ports", "families", "labels")
                  if key in options}
        svc = Service(self.objects, f"s{number}", number, spec=options, **fields)
        if node_port:
            svc.ports = tuple((*port[:4], node_port) for port in svc.ports)
            svc.spec["type"] = "NodePort"
        own = {family: svc.external(family) for family in svc.families}
        if external:
            addresses = own if external is True else external
            svc.spec["externalIPs"] = list(addresses.values())
        if lb:
            addresses = own if lb is True else lb
            svc.spec["type"] = "LoadBalancer"
            svc.ingress = [{"ip": address, **({"ipMode": lb_mode} if lb_mode else {})}
                           for address in addresses.values()]
        self.services.append(svc)
        svc.put()
        if pods:
            self.endpoints(svc, *pods, settle=False)
        if settle:
            self.settle()
        return svc

    def fetch(self, address, port, path="/", source="node-a"):
        return fetch(self.place(source).ns, address, port, path)

    # Looks into the kernel

    def addresses(self, name="node-a"):
        return super().addresses(name)

    def elements(self, name):
        """The elements of one of our maps and sets, each flat: what nft lists, as one tuple."""
        for kind in ("map", "set"):
            done = self.host.run("nft", "-j", "list", kind, *TABLE, name, check=False)
            if done.returncode == 0:
                listed = json.loads(done.stdout)["nftables"]
                found = next(entry[kind] for entry in listed if kind in entry)
                return [tuple(_flat(element)) for element in found.get("elem", [])]
        return []

    def table(self):
        """Our table, comparable, without what the kernel learns of clients."""
        return "\n".join(line for line in table_text(self.host).splitlines()
                         if not line.startswith(("map affinity4: ", "map affinity6: ")))

    def entries(self, *filters, host="node-a"):
        """conntrack's entries as sets of words."""
        return [line.split() for line in self.lab.host(host).conntrack(*filters)]


def _flat(element):
    if isinstance(element, dict):
        for value in element.values():
            yield from _flat(value)
    elif isinstance(element, list):
        for value in element:
            yield from _flat(value)
    else:
        yield element


@contextlib.contextmanager
def serving(world):
    """From the start of its agent to its end, which must be clean."""
    world.lab.flush_conntrack()
    try:
        world.start()
        yield world
        world.stop()
        world.agent.check_sanitizer()
    finally:
        world.close()


def one_test(world):
    """A fixture's part for each test of a module: no Service, the usual flags, before and after."""
    world.flush_conntrack()
    yield world
    world.clear()
    world.agent.check_sanitizer()
    assert world.agent.returncode is None, f"it ended by itself:\n{world.agent.log()[-4000:]}"
    if not world.agent.pid:
        world.start()
    elif world.flags != FLAGS:
        world.restart()


@contextlib.contextmanager
def a_proxy_world(lab, binary, source):
    """Cleanup must leave nothing."""
    with nothing_left(lab), serving(ProxyWorld(lab, binary, source)) as world:
        yield world
