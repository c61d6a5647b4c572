"""All four at once in one agent: PortMaps, held addresses, the service proxy and traffic classes.

k8s-1 is dialled. Its links to the world are ingress0, behind which the classes' gateway is, and mgmt0
with main's default route. Counters say by which link of which node each leg goes.
"""

import collections
import contextlib
import os
import sys

import pytest

import conftest
from lab import probe, services
from lab.folder import Folder
from lab.links import LINKS, PORT, WORLD, LinksLab
from lab.netns import wait_until
from lab.pods import Pod
from lab.services import NAMESPACE, Service

sys.path.append(os.path.join(conftest.ROOT, "tests/lab"))

from lb_world import held  # noqa: E402
from world import snapshot  # noqa: E402

pytestmark = pytest.mark.folder_only("Services are not among what this lab keeps in an API server")

FAMILIES, PROTOCOLS = (4, 6), ("tcp", "udp")
FEATURES = "portmap,loadbalancer,serviceproxy,trafficclass"
FLAGS = ("--overlay", "vxlan", "--cluster-cidr", "10.244.0.0/16,fd00:244::/32",
         "--nodeport-addresses", "10.46.0.0/24,10.47.0.0/24,fd00:46::/64,fd00:47::/64")
NEAR, FAR = "p1a", "p2a"        # a pod of the node that is dialled, and one of another
DIALLED = ("ingress0", "mgmt0")
PORTMAP = {(link, pod): 3000 + i
           for i, (link, pod) in enumerate((link, pod) for link in DIALLED for pod in (NEAR, FAR))}
REFUSED = 3900
HELD = {key: 5000 + port for key, port in PORTMAP.items()}
CLUSTER = {NEAR: 1, FAR: 2}                 # the numbers of Services
NODE_PORT, LOCAL_PORT = 30080, 30081        # of FAR; of both, for those who come from outside NEAR's

Seen = collections.namedtuple("Seen", "found links router")


class Machine:
    """A node as tests/lab look at it."""

    def __init__(self, lab, name):
        self.lab, self.name = lab, name

    def out(self, *argv):
        return self.lab.run(self.name, *argv).stdout


class Together:
    """One lab with everything in it, and traffic."""

    def __init__(self, lab):
        self.lab = lab
        self.objects = Folder(lab.folder.directory).objects
        self.put_objects()

    def pod(self, name):
        i, k = int(name[1]), name[2]
        return Pod(name, f"k8s-{i}", self.lab.ns(name), {f: self.lab.pod(i, k, f) for f in FAMILIES})

    def put_objects(self):
        put = self.objects
        put.namespace(NAMESPACE)
        put.put("networking.k8s.io/v1", "ServiceCIDR", "kubernetes", {
            "spec": {"cidrs": list(services.SERVICE_RANGE.values())}})
        put.portmapclass("public", {"k8s-1": DIALLED})
        for (link, pod), port in PORTMAP.items():
            self.portmap(f"{link}-{pod}", port, link, pod)
        self.portmap("refused", REFUSED, "ingress0")
        for number, ((link, pod), port) in enumerate(HELD.items(), 10):
            self.service(f"held-{link}-{pod}", number, (pod,), port, families=(4,),
                         **held(self.lab.address(1, link, 4)))
        for pod, number in CLUSTER.items():
            self.service(f"cluster-{pod}", number, (pod,), 80)
        self.service("node", 3, (FAR,), 80, NODE_PORT, type="NodePort")
        self.service("local", 4, (NEAR, FAR), 80, LOCAL_PORT, type="NodePort",
                     externalTrafficPolicy="Local")

    def service(self, name, number, pods, port, *node_port, families=FAMILIES, **spec):
        ports = tuple((proto, proto.upper(), port, PORT, *node_port) for proto in PROTOCOLS)
        Service(self.objects, name, number, ports, families, spec).put().endpoints(
            *map(self.pod, pods))

    def portmap(self, name, port, link, *pods):
        for proto in PROTOCOLS:
            ports = [("main", proto.upper(), PORT)]
            service = f"{name}-{proto}"
            self.objects.service(NAMESPACE, service, ports)
            for family in FAMILIES:
                self.objects.endpoints(NAMESPACE, service, list(map(self.pod, pods)), ports, family)
            self.objects.portmap(NAMESPACE, service, "public", proto.upper(), port, service, "main",
                                 interfaces=[link])

    def dial(self, source, proto, address, port, timeout=2.0):
        """Who answered, {node: the links by which it sent}, {link: sources} of what the router got."""
        lab = self.lab
        lab._flush()
        found = probe.probe(lab.ns(source), proto, address, port, timeout=timeout)
        links = {node: {link for link, _, _ in lab.counted(node) if link in LINKS}
                 for node in lab.nodes}
        router = collections.defaultdict(set)
        for link, sender, _ in lab.counted("gw"):
            if link in LINKS:
                router[link].add(sender)
        return Seen(found, {node: used for node, used in links.items() if used}, dict(router))

    def served(self, source, proto, address, port, pod, peer, links, router):
        """Waits for that pod, then judges everything else."""
        wait_until(lambda: probe.probe(self.lab.ns(source), proto, address, port, timeout=0.3).pod == pod,
                   10, f"{pod} to answer {source} at {proto} {address}:{port}")
        seen = self.dial(source, proto, address, port)
        assert seen.found.answered and seen.found.reply_matches, seen
        assert (seen.found.pod, seen.found.peer) == (pod, peer), seen
        assert (seen.links, seen.router) == (links, router), seen
        return seen


@contextlib.contextmanager
def everything(binary, design):
    """A lab in which all runs; when it ends, `cleanup` must leave the nodes as they were."""
    with LinksLab(name=f"{os.environ.get('LAB_NAME', 'v')}{os.getpid()}") as lab:
        before = as_it_is(lab)
        together = Together(lab)
        conftest.start(lab, binary, design, *FLAGS, features=FEATURES)
        wait_until(lambda: all(any("lookup 47" in rule for rule in lab.rules(node, family))
                               for node in lab.nodes for family in FAMILIES), 10, "the classes' rules")
        yield together
        for node in lab.nodes:
            lab.stop_bird(node)
            assert lab.agents[node].stop() == 0
            lab.run(node, binary, "cleanup", "--state-dir", lab.agents[node].state_dir)
        after = as_it_is(lab)
        assert after == before, set(after) ^ set(before)


def as_it_is(lab):
    """(node, command, line) of all that the nodes' network consists of."""
    lab._flush()
    taken = []
    for node in (Machine(lab, name) for name in lab.nodes):
        outputs = {**snapshot(node), "ip -6 route show table all":
                   node.out("ip", "-6", "route", "show", "table", "all")}
        taken += [(node.name, command, line) for command, text in outputs.items()
                  for line in text.splitlines()]
    return taken


@pytest.fixture(scope="module", params=["hybrid", "two-tables"])
def together(request, binary):
    with everything(binary, request.param) as made:
        yield made


def legs(dialled, pod):
    """What nodes send by: the answer by the link that was dialled, both ways over node0 in between."""
    return {"k8s-1": {dialled}} if pod == NEAR else {"k8s-1": {dialled, "node0"}, "k8s-2": {"node0"}}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("link, pod", PORTMAP)
def test_a_portmap_is_answered_by_the_link_it_was_dialled_on(together, link, pod, family):
    """Whatever the pods' own way to the world is, on either node."""
    address = together.lab.address(1, link, family)
    for proto in PROTOCOLS:
        together.served("world", proto, address, PORTMAP[link, pod], pod, WORLD[family],
                        legs(link, pod), {link: {address}})


@pytest.mark.parametrize("link, pod", HELD)
def test_a_held_address_is_answered_by_the_link_it_is_on(together, link, pod):
    address = together.lab.address(1, link, 4)
    for proto in PROTOCOLS:
        together.served("world", proto, address, HELD[link, pod], pod, WORLD[4], legs(link, pod),
                        {link: {address}})
