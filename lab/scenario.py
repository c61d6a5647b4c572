"""The cases a person should see at work: objects, what is dialled, what must come of it.

`make demo` shows them as a table, tests/lab/test_cases.py asserts each.
"""

from dataclasses import dataclass, field

from .path import Path, witness
from .probe import Probe
from .ready import wait_ready

EDGE, EDGE6, EDGE_MESH = "203.0.113.9", "2001:db8:113::9", "100.64.93.1"
HOME_C = "192.0.2.22"
CLIENT, CLIENT6, WORKER_C_MESH = "198.51.100.7", "2001:db8:51::7", "100.64.93.3"
NAMESPACE = "games"
MULTI_NODES = ("edge-a", "worker-c")
# (name, class, protocol, port, last port or None, pod, target port)
MAPPINGS = [
    ("web", "public", "TCP", 3000, None, "a1", 8080),
    ("match", "public", "UDP", 3000, None, "a1", 8080),
    ("chat", "public", "TCP", 3010, None, "b1", 8080),
    ("voice", "public", "UDP", 3010, None, "b1", 8080),
    ("anycast", "everywhere", "TCP", 3020, None, "b2", 8080),
    ("anycast-udp", "everywhere", "UDP", 3020, None, "b2", 8080),
    ("rooms", "public", "UDP", 27015, 27115, "b1", 27015),
]


@dataclass
class Case:
    """`entry` is the node expected to answer; the pod's node is known from the pod."""
    title: str
    proto: str
    address: str
    port: int
    pod: str
    peer: str = CLIENT
    entry: str = "edge-a"
    source: str = None
    firewall: str = None

    @property
    def key(self):
        words = f"{self.title} {self.proto} {self.address} {self.port}"
        return "".join(c if c.isalnum() else "-" for c in words)


def _both(title, address, port, pod, **options):
    return [Case(title, proto, address, port, pod, **options) for proto in ("tcp", "udp")]


_FROM_MESH = {"source": "worker-c", "peer": WORKER_C_MESH}
CASES = [
    *_both("pod on the accepting node", EDGE, 3000, "a1"),
    *_both("pod on another site, over the mesh", EDGE, 3010, "b1"),
    *_both("Multi: by the public node", EDGE, 3020, "b2"),
    *_both("Multi: by a node behind home NAT", HOME_C, 3020, "b2", entry="worker-c"),
    *[Case("range of 101 ports", "udp", EDGE, port, "b1") for port in (27015, 27065, 27115)],
    *_both("second interface wt0, same node", EDGE_MESH, 3000, "a1", **_FROM_MESH),
    *_both("second interface wt0, over the mesh", EDGE_MESH, 3010, "b1", **_FROM_MESH),
    *_both("host firewall drops, same node", EDGE, 3000, "a1", firewall="edge-a"),
    *_both("host firewall drops, over the mesh", EDGE, 3010, "b1", firewall="edge-a"),
    *_both("IPv6, same node", EDGE6, 3000, "a1", peer=CLIENT6),
    *_both("IPv6, over the mesh", EDGE6, 3010, "b1", peer=CLIENT6),
]


@dataclass
class Outcome:
    case: Case
    probe: Probe
    path: Path
    problems: list = field(default_factory=list)


def write_objects(lab, objects):
    """Nodes, classes, Services, endpoints and mappings into a manifest folder."""
    for node in lab.nodes():
        objects.node(node.name, lab.mesh_address(node.name))
    objects.namespace(NAMESPACE)
    objects.portmapclass("public", {"edge-a": ["enp1s0", "wt0"]})
    objects.portmapclass("everywhere", {node: ["enp1s0"] for node in MULTI_NODES},
                         servingMode="Multi", returnPath={"mode": "Vxlan", "vxlan": {
                             "vni": 4300, "subnet": "169.254.78.0/24",
                             "subnet6": "fd64:f5ac:e962::/112"}})
    for name, class_name, protocol, port, end, pod, target in MAPPINGS:
        objects.service(NAMESPACE, name, [("main", protocol, port)])
        for family in (4, 6):
            objects.endpoints(NAMESPACE, name, [lab.pod(pod)], [("main", protocol, target)], family)
        extra = {"endPort": end} if end else {}
        objects.portmap(NAMESPACE, name, class_name, protocol, port, name, "main", **extra)


def wait_programmed(lab, status, timeout=10):
    for name, class_name, protocol, port, *_ in MAPPINGS:
        wait_ready(lab, status, NAMESPACE, name,
                   {"className": class_name, "protocol": protocol, "port": port},
                   MULTI_NODES if class_name == "everywhere" else (), timeout)


def perform(lab, case):
    """Dials one case under observation and judges what was seen."""
    if case.firewall:
        lab.firewall(case.firewall)
    try:
        with witness(lab.nodes()) as seen:
            probe = lab.probe(case.proto, case.address, case.port, source=case.source)
            seen.collect(0.02)
        outcome = Outcome(case, probe, seen.path_of((case.peer, probe.source_port), case.proto))
        if case.firewall:
            other = lab.probe(case.proto, case.address, 3999, timeout=0.2)
            if other.error != "timeout":
                outcome.problems.append(f"the firewall lets an unmapped port through: {other}")
    finally:
        if case.firewall:
            lab.firewall(case.firewall, on=False)
    judge(lab, outcome)
    return outcome


def judge(lab, outcome):
    case, probe, path = outcome.case, outcome.probe, outcome.path
    node = lab.pod(case.pod).node
    if not probe.answered:
        outcome.problems.append(f"no answer: {probe.error}")
        return
    if probe.pod != case.pod:
        outcome.problems.append(f"pod {probe.pod} answered, not {case.pod}")
    if probe.peer != case.peer:
        outcome.problems.append(f"the pod saw {probe.peer}, not {case.peer}")
    if not probe.reply_matches:
        outcome.problems.append(f"the reply came from {probe.replied_from}:{probe.replied_port}")
    if not path.symmetric:
        outcome.problems.append("the reply took another way")
    steps = path.request[1:] if case.source == path.entry else path.request
    nodes = list(dict.fromkeys(name for name, _ in steps if name != case.source))
    if nodes != list(dict.fromkeys([case.entry, node])):
        outcome.problems.append(f"went by {nodes}")
