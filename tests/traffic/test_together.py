"""All four at once in one agent: PortMaps, held addresses, the service proxy and traffic classes.

k8s-1 is dialled. Its links to the world are ingress0, behind which the classes' gateway is, and mgmt0
with main's default route. Counters say by which link of which node each leg goes.
"""

import collections
import contextlib
import itertools
import os
import sys

import pytest

import conftest
from lab import probe, promptly, seconds_until, services
from lab.folder import Folder
from lab.links import LINKS, PORT, WORLD, LinksLab
from lab.netns import wait_until
from lab.pods import Pod
from lab.services import NAMESPACE, Service
from lab.stream import Stream

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
NOBODY = {4: "198.51.100.1", 6: "2001:db8:51::1"}

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

    def settled(self, source, proto, address, port, wanted):
        """Dials until it is as wanted. What is left of the connection before is counted, too."""
        seen = [None]

        def there():
            seen[0] = self.dial(source, proto, address, port, timeout=1)
            return wanted(seen[0])
        wait_until(there, 10, lambda: f"{source} to dial {proto} {address}:{port}: {seen[0]}")

    def served(self, source, proto, address, port, pod, peer, links, router):
        """By that pod, which saw that peer; by these links, and all of it by the address dialled."""
        def as_wanted(seen):
            found = seen.found
            return found.answered and found.reply_matches and (
                (found.pod, found.peer, seen.links, seen.router) == (pod, peer, links, router))
        self.settled(source, proto, address, port, as_wanted)


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


BETWEEN_PODS = {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}}
BETWEEN_NODES = {"k8s-1": {"node0"}, "k8s-2": {"node0"}}


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


@pytest.mark.parametrize("family", FAMILIES)
def test_a_refusal_leaves_by_the_link_that_was_dialled(together, family):
    address = together.lab.address(1, "ingress0", family)
    together.settled("world", "tcp", address, REFUSED, lambda seen: (
        seen.found.error == "refused" and
        (seen.links, seen.router) == ({"k8s-1": {"ingress0"}}, {"ingress0": {address}})))
    assert together.dial("world", "udp", address, REFUSED).found.error == "refused"


@pytest.mark.parametrize("family", FAMILIES)
def test_who_dials_from_a_node_or_a_pod_is_answered_without_the_router(together, family):
    """Though the table of the link that is dialled leads there: main has the nearer ways."""
    address = together.lab.address(1, "ingress0", family)
    for source, peer in (("k8s-3", together.lab.address(3, "ingress0", family)),
                         ("p3a", together.lab.pod(3, "a", family))):
        for pod in (NEAR, FAR):
            ports = [PORTMAP["ingress0", pod]] + [HELD["ingress0", pod]] * (family == 4)
            for port in ports:
                together.settled(source, "udp", address, port, lambda seen: (
                    (seen.found.pod, seen.found.peer, seen.router) == (pod, peer, {})))


@pytest.mark.parametrize("family", FAMILIES)
def test_pods_have_the_ways_of_their_classes_beside(together, family):
    lab = together.lab
    for source in (NEAR, FAR):
        node = together.pod(source).node
        address = lab.address(int(node[4:]), "ingress0", family)
        together.served(source, "tcp", WORLD[family], PORT, "world", address, {node: {"ingress0"}},
                        {"ingress0": {address}})
    together.served(NEAR, "tcp", lab.pod(2, "a", family), PORT, FAR, lab.pod(1, "a", family),
                    BETWEEN_PODS, {})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cluster_ip_goes_where_its_endpoint_is(together, family):
    """The classes see the translated destination; the node itself is no pod."""
    lab = together.lab
    near, far = (services.cluster_ip(CLUSTER[pod], family) for pod in (NEAR, FAR))
    for proto in PROTOCOLS:
        together.served("p1b", proto, far, 80, FAR, lab.pod(1, "b", family), BETWEEN_PODS, {})
        together.served("p1b", proto, near, 80, NEAR, lab.pod(1, "b", family), {}, {})
        together.served("k8s-1", proto, far, 80, FAR, lab.address(1, "node0", family),
                        BETWEEN_NODES, {})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_node_port_from_a_pod_the_node_and_the_world(together, family):
    lab = together.lab
    address, node = (lab.address(1, link, family) for link in ("ingress0", "node0"))
    for proto in PROTOCOLS:
        # Masqueraded, with the address of the link that the pods' class has.
        together.served("p1b", proto, node, NODE_PORT, FAR, lab.address(1, "pod0", family),
                        BETWEEN_PODS, {})
        together.served("k8s-1", proto, node, NODE_PORT, FAR, node, BETWEEN_NODES, {})
        together.served("world", proto, address, NODE_PORT, FAR, node,
                        {"k8s-1": {"ingress0", "node0"}, "k8s-2": {"node0"}}, {"ingress0": {address}})
        together.served("world", proto, address, LOCAL_PORT, NEAR, WORLD[family],
                        {"k8s-1": {"ingress0"}}, {"ingress0": {address}})


def test_a_held_address_from_its_own_node_and_its_pods(together):
    lab = together.lab
    address, port = lab.address(1, "ingress0", 4), HELD["ingress0", FAR]
    for proto in PROTOCOLS:
        together.served("k8s-1", proto, address, port, FAR, address, BETWEEN_NODES, {})
        together.served("p1b", proto, address, port, FAR, lab.pod(1, "b", 4), BETWEEN_NODES, {})


ELSEWHERE = 131323          # the first table beyond those of held addresses


@pytest.fixture
def elsewhere(together):
    """A class that comes first of all and sends pods to the world by mgmt0."""
    lab = together.lab
    for node in lab.nodes:
        lab.put_node(node, mgmt_gw_v4="10.40.0.254", mgmt_gw_v6="fd00:40::fe")
    lab.folder.put({
        "apiVersion": "net.renner.uno/v1alpha1", "kind": "TrafficClass",
        "metadata": {"name": "elsewhere"},
        "spec": {"table": ELSEWHERE, "rules": [
            {"priority": 107, "family": f"IPv{family}", "from": ["PodCIDRs"], "to": [f"{WORLD[family]}/{bits}"]}
            for family, bits in ((4, 32), (6, 128))],
            "routes": {"fallThrough": ["PodCIDRs", "AttachedNetworks"], "gateway": {
                "link": "mgmt0", "addressAnnotations": {"ipv4": "net.renner.uno/mgmt-gw-v4",
                                                        "ipv6": "net.renner.uno/mgmt-gw-v6"}}}}})
    yield together
    lab.folder.delete("TrafficClass", "elsewhere")
    for node in lab.nodes:
        lab.put_node(node)
    wait_until(lambda: not any(str(ELSEWHERE) in rule for node in lab.nodes for family in FAMILIES
                               for rule in lab.rules(node, family)), 10, "the class to be gone")


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_take_no_way_of_the_pods_own(elsewhere, family):
    lab = elsewhere.lab
    for source in (NEAR, FAR):
        node = elsewhere.pod(source).node
        own = lab.address(int(node[4:]), "mgmt0", family)
        elsewhere.served(source, "udp", WORLD[family], PORT, "world", own, {node: {"mgmt0"}},
                         {"mgmt0": {own}})
    for link, pod in PORTMAP:
        address = lab.address(1, link, family)
        for port in [PORTMAP[link, pod]] + [HELD[link, pod]] * (family == 4):
            elsewhere.served("world", "udp", address, port, pod, WORLD[family], legs(link, pod),
                             {link: {address}})


OURS = range(101, 107)      # priorities


@contextlib.contextmanager
def rules_of_others(lab, node, priorities):
    """By a mark of theirs, and to a network that nobody has."""
    rules = [(f"-{family}", "rule", action, "pref", str(priority), *words, "lookup", "99")
             for action in ("add", "del") for family in FAMILIES for priority in priorities
             for words in (("fwmark", "0x40000/0xf0000"), ("to", NOBODY[family]))]
    for family, address in NOBODY.items():
        lab.run(node, "ip", f"-{family}", "route", "replace", "prohibit", address, "table", "99")
    for rule in rules[:len(rules) // 2]:
        lab.run(node, "ip", *rule)
    try:
        yield
    finally:
        for rule in rules[len(rules) // 2:]:
            lab.run(node, "ip", *rule)
        for family in FAMILIES:
            lab.run(node, "ip", f"-{family}", "route", "flush", "table", "99")


def test_rules_of_others_at_our_priorities_are_met_and_ours_work(together):
    lab = together.lab

    def is_met(family):
        done = lab.run("k8s-1", "ip", "route", "get", NOBODY[family], check=False)
        return "denied" in done.stderr + done.stdout
    for priority in OURS:
        with rules_of_others(lab, "k8s-1", [priority]):
            for family in FAMILIES:
                wait_until(lambda: is_met(family), 5, f"the rule at {priority} to be met")
    with contextlib.ExitStack() as stack:
        for node in lab.nodes:
            stack.enter_context(rules_of_others(lab, node, OURS))
        for link, family in itertools.product(DIALLED, FAMILIES):
            address = lab.address(1, link, family)
            ports = [PORTMAP[link, FAR]] + [HELD[link, FAR]] * (family == 4)
            for port in ports:
                together.served("world", "udp", address, port, FAR, WORLD[family], legs(link, FAR),
                                {link: {address}})


# ---- while streams run ----------------------------------------------------------------------


def streams(together):
    """{name: a stream} of all four kinds; none is masqueraded by an address of a link of a class."""
    lab = together.lab
    ends = {}
    for family in FAMILIES:
        address = lab.address(1, "ingress0", family)
        ends["portmap", family] = "world", address, PORTMAP["ingress0", FAR]
        ends["cluster ip", family] = "p1b", services.cluster_ip(CLUSTER[FAR], family), 80
        ends["node port", family] = "world", address, NODE_PORT
        ends["pod", family] = "p1b", lab.pod(2, "a", family), PORT
    ends["held", 4] = "world", lab.address(1, "ingress0", 4), HELD["ingress0", FAR]
    return {(*name, proto): Stream(lab.ns(source), proto, address, port, push=True)
            for name, (source, address, port) in ends.items() for proto in PROTOCOLS}


@contextlib.contextmanager
def nothing_lost(together):
    """Both ways, of any stream, and no packet between pods or nodes passes by the router."""
    running = {name: stream.wait_answer() for name, stream in streams(together).items()}
    together.lab._flush()
    yield
    seen = together.lab.counted("gw")
    reports = {name: stream.stop() for name, stream in running.items()}
    assert {name: report for name, report in reports.items() if not report.nothing_lost} == {}
    own = [key for key in seen if not {key[1], key[2]} & set(WORLD.values())]
    assert own == []


def rules(lab):
    return {node: [sorted(lab.rules(node, family)) for family in FAMILIES] for node in lab.nodes}


def test_agents_end_and_start(together):
    lab = together.lab
    before = rules(lab)
    with nothing_lost(together):
        for end in (lambda agent: agent.stop(), lambda agent: agent.kill()):
            for agent in lab.agents.values():
                end(agent)
            for agent in lab.agents.values():
                agent.clear_log()
                agent.restart()
            for agent in lab.agents.values():
                agent.wait_log("event=bird_configured", 15)
        lab.wait_sessions(4)
        assert rules(lab) == before


def test_bird_ends_and_starts(together):
    lab = together.lab
    with nothing_lost(together):
        for node in ("k8s-2", "k8s-1"):
            lab.run(node, "kill", "-9", str(lab.bird_pid(node)))
            lab.start_bird(node)
            lab.wait_sessions(4)


def test_the_classes_come_and_go(together):
    """Answers go by main meanwhile, from the address that was dialled."""
    lab = together.lab
    before, design = rules(lab), lab.design
    with nothing_lost(together):
        for name in lab.classes:
            lab.folder.delete("TrafficClass", name)
        wait_until(lambda: not any("lookup 47" in line for node in rules(lab).values()
                                   for lines in node for line in lines), 15, "no rules to table 47")
        lab.put_sample(design)
        lab.wait_sessions(4)
        wait_until(lambda: rules(lab) == before, 15, lambda: f"the rules of before: {rules(lab)}")
    for family in FAMILIES:
        address = lab.address(1, "ingress0", family)
        together.served("world", "udp", address, PORTMAP["ingress0", FAR], FAR, WORLD[family],
                        legs("ingress0", FAR), {"ingress0": {address}})


def test_rules_that_somebody_flushes_are_back_within_a_second(together):
    """TCP goes on; of UDP is lost what was on its way meanwhile."""
    lab = together.lab
    before = rules(lab)
    running = {name: stream.wait_answer() for name, stream in streams(together).items()}

    def one():
        for node in lab.nodes:
            for family in FAMILIES:
                lab.run(node, "ip", f"-{family}", "rule", "flush", "protocol", "107")
        return seconds_until(lambda: rules(lab) == before,
                             lambda: f"the rules of before: {rules(lab)}")
    promptly(1, one)
    reports = {name: stream.stop() for name, stream in running.items()}
    # At most one of three may have met a busy machine.
    assert {name: report for name, report in reports.items()
            if report.ended != "ok" or sum(end - begin > 1 for begin, end in report.gaps) > 1} == {}
    assert {name: report for name, report in reports.items()
            if "tcp" in name and not report.nothing_lost} == {}
