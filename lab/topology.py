"""Reads a topology file: what machines there are, how they are wired, what runs on them."""

import ipaddress
import os
from dataclasses import dataclass, field

import yaml

DIRECTORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "topologies")
CNI_TYPES = ("bridge", "ptp", "overlay")
MASQUERADES = ("flannel", "cilium", "weave", "none")


class TopologyError(ValueError):
    """The file does not describe a lab; the message says where."""


@dataclass
class Mesh:
    """The WireGuard network the nodes share. A member's endpoint is what others dial."""
    interface: str
    prefix: int
    mtu: int
    port: int
    fwmark: int
    table: int
    members: dict


@dataclass
class Overlay:
    """One Ethernet segment for the pods of all nodes: a bridge on each, joined by the host `switch`.

    A member's address is its bridge's. `cni: overlay` attaches a node's pods there.
    """
    bridge: str
    port: str
    switch: str
    prefix: int
    mtu: int
    members: dict


@dataclass
class Host:
    """One namespace. A node is a host with pods; `nat` makes it a home router."""
    name: str
    addresses: dict = field(default_factory=dict)
    routes: list = field(default_factory=list)
    rules: list = field(default_factory=list)
    sysctls: dict = field(default_factory=dict)
    router: bool = False
    nat: dict = None
    cni: str = None
    pod_subnets: list = field(default_factory=list)
    masquerade: str = "none"
    firewall: bool = False
    pods: list = field(default_factory=list)

    @property
    def is_node(self):
        return self.cni is not None


@dataclass
class Topology:
    name: str
    description: str
    hosts: dict
    links: list
    mesh: Mesh
    overlay: Overlay
    cluster_subnets: list
    pod_ports: list
    client: str

    def nodes(self):
        return [name for name, host in self.hosts.items() if host.is_node]

    def internal_ip(self, node):
        """In the mesh where there is one, else the first that the node has."""
        if self.mesh and node in self.mesh.members:
            return self.mesh.members[node]["address"]
        addresses = (a for listed in self.hosts[node].addresses.values() for a in listed)
        return next(a.split("/")[0] for a in addresses if ":" not in a)

    def pods(self):
        """(pod, node) pairs."""
        return [(pod, host.name) for host in self.hosts.values() for pod in host.pods]


def find(name):
    """A name of the topologies folder, or a path."""
    for path in (name, os.path.join(DIRECTORY, f"{name}.yaml")):
        if os.path.isfile(path):
            return path
    known = sorted(n.removesuffix(".yaml") for n in os.listdir(DIRECTORY))
    raise TopologyError(f"no topology '{name}': give a path or one of {', '.join(known)}")


def load(name):
    path = find(name)
    with open(path) as file:
        raw = yaml.safe_load(file)
    try:
        hosts = {n: Host(name=n, **(h or {})) for n, h in raw["hosts"].items()}
        topology = Topology(
            name=os.path.basename(path).removesuffix(".yaml"),
            description=raw.get("description", ""), hosts=hosts,
            links=[tuple(end.split() for end in link) for link in raw["links"]],
            mesh=Mesh(**raw["mesh"]) if raw.get("mesh") else None,
            overlay=Overlay(**raw["overlay"]) if raw.get("overlay") else None,
            cluster_subnets=raw.get("cluster_subnets", []),
            pod_ports=[str(p) for p in raw.get("pod_ports", [])], client=raw.get("client"))
    except (KeyError, TypeError) as error:
        raise TopologyError(f"{path}: {error}") from error
    _check(path, topology)
    return topology


def _check(path, topology):
    def need(condition, text):
        if not condition:
            raise TopologyError(f"{path}: {text}")

    for link in topology.links:
        for host, _ in link:
            need(host in topology.hosts, f"links: no host '{host}'")
    for name in topology.mesh.members if topology.mesh else ():
        need(name in topology.hosts, f"mesh.members: no host '{name}'")
    overlay = topology.overlay
    for name in [overlay.switch, *overlay.members] if overlay else ():
        need(name in topology.hosts, f"overlay: no host '{name}'")
    for host in topology.hosts.values():
        need(host.cni != "overlay" or overlay and host.name in overlay.members,
             f"{host.name}.cni: 'overlay', and the node is no member of one")
        need(len(host.name) <= 20, f"hosts: name '{host.name}' is longer than 20 letters")
        need(host.cni in (None, *CNI_TYPES), f"{host.name}.cni: '{host.cni}' is not known")
        need(host.masquerade in MASQUERADES,
             f"{host.name}.masquerade: '{host.masquerade}' is not one of {MASQUERADES}")
        for subnet in host.pod_subnets + topology.cluster_subnets:
            ipaddress.ip_network(subnet)
    pods = [pod for pod, _ in topology.pods()]
    need(len(pods) == len(set(pods)), "a pod name is used twice")
