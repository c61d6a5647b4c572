"""The lab: brings a topology up in namespaces of its own, and takes every trace of it away."""

import contextlib
import json
import os
import re
from dataclasses import asdict

from . import build, firewall, mesh, netns, pods, probe, stream, topology
from .agents import Agent
from .host import Host
from .instance import ROOT, Instance
from .manifests import write_atomically

RELAY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools", "relay.py")
NAME = re.compile(r"^[a-z0-9]{1,32}$")


class Lab(Instance):
    """Use as `with Lab("three-nodes", name="mine") as lab:` or with up() and down()."""

    def __init__(self, topology_name="three-nodes", name="lab"):
        if not NAME.match(name):
            raise ValueError(f"lab name '{name}': lower case letters and digits, at most 32")
        super().__init__(name)
        self.topology = topology.load(topology_name)
        self.topology_name = topology_name
        self.pods = {}
        self._agents = {}

    @classmethod
    def attach(cls, name="lab"):
        """The instance another process brought up."""
        try:
            with open(os.path.join(ROOT, name, "lab.json")) as file:
                saved = json.load(file)
        except FileNotFoundError:
            raise LookupError(f"no lab '{name}' is up") from None
        lab = cls(saved["topology"], name)
        for entry in saved["pods"]:
            entry["addresses"] = {int(f): a for f, a in entry["addresses"].items()}
            lab.pods[entry["name"]] = pods.Pod(**entry)
        return lab

    def __enter__(self):
        return self.up()

    def __exit__(self, *_):
        self.down()

    # Up and down

    def up(self):
        """Starts from nothing: what an earlier run of this name left is removed first."""
        self.down()
        self.make_state()
        try:
            self._build()
            self._save()
        except BaseException:
            self.down()
            raise
        return self

    def _build(self):
        spec = self.topology
        pod_names = [f"pod-{pod}" for pod, _ in spec.pods()]
        build.namespaces([self.ns(name) for name in [*spec.hosts, *pod_names]])
        build.wires(spec, self.ns)
        if spec.mesh:
            mesh.start_daemons(spec, self.processes, self.state, self.ns)
        for host in spec.hosts.values():
            build.host(host, self.ns(host.name))
        if spec.overlay:
            build.overlay(spec.overlay, self.ns)
        if spec.mesh:
            mesh.configure(spec, self.processes, self.state, self.ns)
        for host in spec.hosts.values():
            build.policy_rules(host, self.ns(host.name))
        for pod, node in spec.pods():
            self._attach_pod(pod, node)
        for name in spec.nodes():       # a kernel without nftables does for who has neither
            if spec.hosts[name].masquerade != "none":
                self.masquerade(name, spec.hosts[name].masquerade)
            if spec.hosts[name].firewall:
                self.firewall(name)
        self._wait_ready()

    def _wait_ready(self):
        for pod in self.pods.values():
            pods.wait_server(self.processes, f"pod-{pod.name}", self._pod_log(pod.name))
        if self.topology.mesh:
            members = self.topology.mesh.members
            probe.wait_pings([(self.ns(a), members[b]["address"])
                              for a in members for b in members if a != b], 15)

    def down(self):
        super().down()
        self.pods.clear()
        self._agents.clear()

    def _save(self):
        write_atomically(os.path.join(self.state, "lab.json"), json.dumps({
            "topology": topology.find(self.topology_name),
            "pods": [asdict(pod) for pod in self.pods.values()]}))

    # Machines

    def host(self, name):
        if name not in self.topology.hosts:
            raise LookupError(f"no host '{name}' in {self.topology.name}: "
                              f"{', '.join(self.topology.hosts)}, or a pod as pod-NAME")
        return Host(self, name)

    node = host

    @property
    def client(self):
        return self.host(self.topology.client)

    def nodes(self):
        return [self.host(name) for name in self.topology.nodes()]

    def mesh_address(self, node):
        return self.topology.mesh.members[node]["address"]

    def internal_ip(self, node):
        return self.topology.internal_ip(node)

    def mesh_allow(self, node, addresses):
        """The node's peers accept these addresses for it, and no others."""
        mesh.allow(self.topology.mesh, self.state, node, addresses)

    # Pods

    def pod(self, name):
        return self.pods[name]

    def _pod_log(self, name):
        return os.path.join(self.state, f"pod-{name}.log")

    def _attach_pod(self, name, node):
        ns = self.ns(f"pod-{name}")
        self.pods[name] = pods.attach(name, ns, self.ns(node), self.topology.hosts[node],
                                      self.state, self.topology.overlay)
        self.start_pod(name, wait=False)

    def start_pod(self, name, wait=True):
        """Starts the server of a pod (again)."""
        label = f"pod-{name}"
        log = pods.start_server(self.processes, label, name, self.pods[name].ns,
                                self.topology.pod_ports, self.state)
        if wait:
            pods.wait_server(self.processes, label, log)

    def stop_pod(self, name):
        """Ends the server; the pod keeps its address, its ports refuse."""
        self.processes.stop(f"pod-{name}")

    def add_pod(self, name, node):
        build.namespaces([self.ns(f"pod-{name}")])
        self._attach_pod(name, node)
        pods.wait_server(self.processes, f"pod-{name}", self._pod_log(name))
        self._save()
        return self.pods[name]

    def remove_pod(self, name):
        pod = self.pods[name]
        self.stop_pod(name)
        pods.detach(pod, self.ns(pod.node), self.topology.hosts[pod.node], self.state,
                    self.topology.overlay)
        build.delete_namespaces([pod.ns])
        del self.pods[name]
        self._save()

    def move_pod(self, name, node):
        """A pod of the same name on another node, with other addresses."""
        self.remove_pod(name)
        return self.add_pod(name, node)

    def host_network_pod(self, name, node, ports=(9090,), bound=False):
        """A server in the node's own network; its address is the node's InternalIP.

        `bound` to it alone, it answers UDP from there whichever way the answer takes.
        """
        pod = pods.Pod(name, node, self.ns(node), {4: self.internal_ip(node)}, host_network=True)
        label = f"pod-{name}"
        log = pods.start_server(self.processes, label, name, pod.ns, list(map(str, ports)),
                                self.state, [pod.address()] if bound else ())
        pods.wait_server(self.processes, label, log)
        self.pods[name] = pod
        return pod

    def remove_host_network_pod(self, name):
        self.stop_pod(name)
        del self.pods[name]

    # What surrounds the agent on a node

    def masquerade(self, node, style):
        """Replaces the CNI's masquerade: flannel, cilium or none."""
        spec = self.topology.hosts[node]
        self.host(node).nft(firewall.masquerade(style, spec.pod_subnets,
                                                self.topology.cluster_subnets))

    def firewall(self, node, on=True, trusted=("lo", "wt0", "cni0", "veth*", "weave")):
        """Switches the node's host firewall, which drops new connections to its addresses."""
        if on:
            ports = [self.topology.mesh.port] if self.topology.mesh else []
            self.host(node).nft(firewall.host_firewall(trusted, ports))
        else:
            self.host(node).run("nft", "delete", "table", "inet", firewall.HOST_FIREWALL,
                                check=False)

    def flush_conntrack(self):
        for node in self.nodes():
            node.flush_conntrack()

    # Traffic

    def _ns_of(self, source):
        return self.pods[source].ns if source in self.pods else self.host(source).ns

    def probe(self, proto, address, port, source=None, **options):
        """Dials once from the outside client, or from the host or pod `source`."""
        return probe.probe(self._ns_of(source or self.topology.client), proto, address, port,
                           **options)

    def stream(self, proto, address, port, source=None, **options):
        """A running numbered stream; see lab/stream.py."""
        return stream.Stream(self._ns_of(source or self.topology.client), proto, address, port,
                             **options)

    # Agents

    def connect(self, port):
        """127.0.0.1:PORT of each node leads to that of the machine, where an API server listens."""
        self.disconnect()
        log = os.path.join(self.state, "relay.log")
        self.processes.start("relay", ["/usr/bin/python3", "-S", "-E", RELAY, port,
                                       *(netns.path(node.ns) for node in self.nodes())], log=log)
        pods.wait_server(self.processes, "relay", log)

    def disconnect(self):
        """The nodes lose their API server: connections end, new ones are refused."""
        self.processes.stop("relay")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.state, "relay.log"))

    def agent(self, node):
        if node not in self._agents:
            self._agents[node] = Agent(self, node)
        return self._agents[node]
