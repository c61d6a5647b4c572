"""A second lab: nodes with four links each, as VLANs would be, and real BIRD on every node.

                 mgmt0 ───┬───────┬───────┬─── gw ─── world 203.0.113.10, lan 10.99.0.10
              ingress0 ───┼───────┼───────┼───/
                  pod0 ───┼───────┼───────┤        each ─── is a segment of its own (a bridge in
                 node0 ───┴───────┴───────┘        namespace sw); only mgmt0 and ingress0 have a
                        k8s-1   k8s-2   k8s-3      router, which sends nothing back between nodes

Each node has two pods behind cilium_host, a default route in main through mgmt0, the CNI's routes
to the other nodes' pods over node0, a masquerade of pods that leave the cluster, and two services. Every packet
a node sends is counted by link, source and destination; so is every packet the router receives.

    with LinksLab(name="mine") as lab:
        lab.put_samples("hybrid"); lab.start()
        lab.wait_sessions()
        lab.probe("p1a", lab.pod(2, "a", 4)).links      # {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}}
"""

import collections
import json
import os
import re
import select
import socket

import yaml

from . import netns, pods, probe
from .agents import Agent
from .instance import Instance
from .kube import PLURALS, KubeError, KubeSource, path_of
from .manifests import write_atomically

SAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                       "deploy", "samples")
RELAY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools", "relay.py")
SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools", "podserver.py")
BIRD = "/usr/sbin/bird"
LINKS = {"mgmt0": 40, "node0": 46, "ingress0": 47, "pod0": 48}
WORLD = {4: "203.0.113.10", 6: "2001:db8:113::10"}
LAN = {4: "10.99.0.10", 6: "fd00:99::10"}
SERVICE_FAR = {4: "10.96.0.10", 6: "fd00:96::10"}   # p2a behind a service's address
SERVICE_NEAR = {4: "10.96.0.11", 6: "fd00:96::11"}  # p1b
PORT = 7777

COUNT = """
table inet count {
  set four { type ifname . ipv4_addr . ipv4_addr; flags dynamic; size 65535; counter; }
  set six { type ifname . ipv6_addr . ipv6_addr; flags dynamic; size 65535; counter; }
  chain count { type filter hook %s;
    tcp sport 179 return
    tcp dport 179 return
    udp dport { 3784, 3785 } return
    meta l4proto { tcp, udp } update @four { %s . ip saddr . ip daddr }
    meta l4proto { tcp, udp } update @six { %s . ip6 saddr . ip6 daddr }
  }
}
"""
MASQUERADE = """
table inet cni {
  chain post { type nat hook postrouting priority srcnat;
    ip saddr 10.244.0.0/16 ip daddr != 10.0.0.0/8 oifname != "cilium_host" masquerade
    ip6 saddr fd00:244::/32 ip6 daddr != fd00::/8 oifname != "cilium_host" masquerade
  }
  chain pre { type nat hook prerouting priority dstnat;
    ip daddr 10.96.0.10 dnat ip to 10.244.2.10
    ip daddr 10.96.0.11 dnat ip to 10.244.1.11
    ip6 daddr fd00:96::10 dnat ip6 to fd00:244:2::10
    ip6 daddr fd00:96::11 dnat ip6 to fd00:244:1::11
  }
}
"""
QUIET = {"net.ipv6.conf.all.accept_dad": 0, "net.ipv6.conf.default.accept_dad": 0,
         "net.ipv6.conf.default.accept_ra": 0, "net.ipv6.conf.default.dad_transmits": 0,
         "net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.default.rp_filter": 0}
FORWARDS = {"net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1,
            "net.ipv4.conf.all.send_redirects": 0, "net.ipv4.conf.default.send_redirects": 0}
UNBRIDGED = {f"net.bridge.bridge-nf-call-{x}": 0 for x in ("iptables", "ip6tables", "arptables")}

Seen = collections.namedtuple("Seen", "answers peer links router")


class Folder:
    """What agents read."""

    def __init__(self, directory):
        self.directory = directory
        os.makedirs(directory, exist_ok=True)

    @property
    def arguments(self):
        return ["--source", f"dir:{self.directory}"]

    def _path(self, kind, name):
        return os.path.join(self.directory, f"{kind.lower()}.{name}.yaml")

    def put(self, object_):
        write_atomically(self._path(object_["kind"], object_["metadata"]["name"]),
                         yaml.safe_dump(object_))

    def get(self, kind, name):
        with open(self._path(kind, name)) as file:
            return yaml.safe_load(file)

    def delete(self, kind, name):
        os.unlink(self._path(kind, name))


class KubeFolder(KubeSource):
    """The same in an API server, which clear() empties of classes and Nodes."""

    @staticmethod
    def _path(kind, name=""):
        api = {"Node": "v1", "TrafficClass": "net.renner.uno/v1alpha1"}[kind]
        return path_of(api, PLURALS[kind], name)

    def put(self, object_):
        kind, name = object_["kind"], object_["metadata"]["name"]
        main = {key: value for key, value in object_.items() if key != "status"}
        main["metadata"] = {key: object_["metadata"][key] for key in ("name", "annotations", "labels")
                            if key in object_["metadata"]}
        if kind == "Node":
            self.client.apply_node(self._path(kind, name), main, object_["status"])
        else:  # replaced: what is applied as an empty list is left out, and has its default again
            self._replace(kind, name, main)

    def _replace(self, kind, name, main):
        try:
            before = self.get(kind, name)["metadata"]
        except KubeError as error:
            if error.status != 404:
                raise
            self.client("POST", self._path(kind), main)
        else:
            main["metadata"]["resourceVersion"] = before["resourceVersion"]
            try:
                self.client("PUT", self._path(kind, name), main)
            except KubeError as error:
                if error.status != 409:  # an agent has written its status meanwhile
                    raise
                self._replace(kind, name, main)

    def get(self, kind, name):
        return self.client("GET", self._path(kind, name))

    def delete(self, kind, name):
        self.client("DELETE", self._path(kind, name))

    def clear(self):
        for kind in ("TrafficClass", "Node"):
            self.client("DELETE", self._path(kind))


class LinksLab(Instance):
    def __init__(self, name="links", nodes=3, kube=None):
        """`kube` is a KubeFolder; without one the agents read a folder."""
        super().__init__(name)
        self.nodes = []
        self.first_nodes = nodes
        self.kube = kube
        self.folder = None
        self.agents = {}

    def __enter__(self):
        self.down()
        self.make_state()
        self.folder = self.kube or Folder(os.path.join(self.state, "cluster"))
        try:
            self._build()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    # Building

    def _host(self, name, forwards=False):
        ns = self.ns(name)
        netns.run(["ip", "netns", "add", ns])
        netns.set_sysctls(ns, {**QUIET, **(FORWARDS if forwards else {}), **UNBRIDGED})
        netns.ip_batch(ns, ["link set lo up"])

    def ip(self, host, *lines, family=None):
        netns.ip_batch(self.ns(host), lines, family)

    def run(self, host, *argv, **options):
        return netns.run(netns.exec_argv(self.ns(host), argv), **options)

    def nft(self, host, text):
        netns.run_in(self.ns(host), ["nft", "-f", "-"], stdin=text)

    def _plug(self, host, link, number):
        port = f"{host[-6:]}-{link}"[:15]
        vlan = LINKS[link]
        self.ip("sw", f"link add {port} type veth peer name {link} netns {self.ns(host)}",
                f"link set {port} master br-{link}", f"link set {port} up")
        self.ip(host, f"addr add 10.{vlan}.0.{number}/24 dev {link}",
                f"addr add fd00:{vlan}::{number:x}/64 dev {link} nodad", f"link set {link} up")

    def _serve(self, host):
        self.processes.start(f"server-{host}", ["/usr/bin/python3", SERVER, host, PORT],
                             ns=self.ns(host))

    def _build(self):
        self._host("sw")
        for link in LINKS:
            self.ip("sw", f"link add br-{link} type bridge mcast_snooping 0",
                    f"link set br-{link} up")
        self._host("gw", forwards=True)
        for link in ("mgmt0", "ingress0"):
            self._plug("gw", link, 254)
        for host, link, net4, net6 in (("world", "wan0", "203.0.113", "2001:db8:113:"),
                                       ("lan", "lan0", "10.99.0", "fd00:99:")):
            self._host(host)
            self.ip("gw", f"link add {link} type veth peer name eth0 netns {self.ns(host)}",
                    f"addr add {net4}.1/24 dev {link}", f"addr add {net6}:1/64 dev {link} nodad",
                    f"link set {link} up")
            self.ip(host, f"addr add {net4}.10/24 dev eth0",
                    f"addr add {net6}:10/64 dev eth0 nodad", "link set eth0 up",
                    f"route add default via {net4}.1")
            self.ip(host, f"route add default via {net6}:1", family=6)
            self._serve(host)
        # What the internet would not bring back is counted on its way in, and ends here. The
        # router knows the way to p1a for who dials it from outside.
        self.ip("gw", "route add blackhole default", "route add 10.244.1.10 via 10.47.0.1")
        self.ip("gw", "route add blackhole default", "route add fd00:244:1::10 via fd00:47::1",
                family=6)
        self.nft("gw", COUNT % ("prerouting priority -400", "iifname", "iifname"))
        for _ in range(self.first_nodes):
            self.add_node()

    def add_node(self):
        """One node more, with its pods and the CNI's routes; its Node object is put()."""
        i = len(self.nodes) + 1
        host = f"k8s-{i}"
        self._host(host, forwards=True)
        for link in LINKS:
            self._plug(host, link, i)
        self.ip(host, "link add cilium_host type bridge", "link set cilium_host up",
                f"addr add 10.244.{i}.1/32 dev cilium_host",
                f"addr add fd00:244:{i}::1/128 dev cilium_host nodad",
                f"route add 10.244.{i}.0/24 dev cilium_host proto kernel src 10.244.{i}.1",
                "route add default via 10.40.0.254")
        self.ip(host, f"route add fd00:244:{i}::/64 dev cilium_host proto kernel",
                "route add default via fd00:40::fe", family=6)
        self.nft(host, COUNT % ("postrouting priority 400", "oifname", "oifname") + MASQUERADE)
        for k, n in (("a", 10), ("b", 11)):
            self._add_pod(host, i, k, n)
        self._serve(host)
        for other in self.nodes:
            self._cni_routes(host, other)
            self._cni_routes(other, host)
        self.nodes.append(host)
        os.makedirs(os.path.join(self.state, host))
        self.agents[host] = Agent(self, host)
        self.put_node(host)
        return host

    def _add_pod(self, node, i, k, n):
        pod = f"p{i}{k}"
        self._host(pod)
        self.ip(node, f"link add lxc{k} type veth peer name eth0 netns {self.ns(pod)}",
                f"link set lxc{k} master cilium_host", f"link set lxc{k} up")
        self.run(node, "bridge", "link", "set", "dev", f"lxc{k}", "isolated", "on")
        self.ip(pod, f"addr add 10.244.{i}.{n}/32 dev eth0",
                f"addr add fd00:244:{i}::{n}/128 dev eth0 nodad", "link set eth0 up",
                f"route add 10.244.{i}.1 dev eth0", f"route add default via 10.244.{i}.1")
        self.ip(pod, f"route add fd00:244:{i}::1 dev eth0",
                f"route add default via fd00:244:{i}::1", family=6)
        self._serve(pod)

    def _cni_routes(self, host, other):
        j = int(other[4:])
        self.ip(host, f"route replace 10.244.{j}.0/24 via 10.46.0.{j} dev node0 proto kernel")
        self.ip(host, f"route replace fd00:244:{j}::/64 via fd00:46::{j} dev node0 proto kernel",
                family=6)

    # Objects

    def put_node(self, host, pods=None, **annotations):
        """The Node, with what differs from right annotations; a value None leaves one out. `pods` are
        other pod ranges than its own."""
        i = int(host[4:])
        values = {"pod0-v4": f"10.48.0.{i}", "pod0-v6": f"fd00:48::{i}",
                  "egress-gw-v4": "10.47.0.254", "egress-gw-v6": "fd00:47::fe",
                  **{key.replace("_", "-"): value for key, value in annotations.items()}}
        self.folder.put({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": host, "annotations": {f"net.renner.uno/{k}": v
                                                       for k, v in values.items()
                                                       if v is not None}},
            "spec": {"podCIDRs": pods or [f"10.244.{i}.0/24", f"fd00:244:{i}::/64"]},
            "status": {"addresses": [{"type": "InternalIP", "address": f"10.46.0.{i}"}]}})

    def put_sample(self, design, **routes):
        """The classes of deploy/samples; `routes` replace fields of those that have a gateway."""
        with open(os.path.join(SAMPLES, f"{design}.yaml")) as file:
            classes = list(yaml.safe_load_all(file))
        for class_ in classes:
            if routes and "gateway" in class_["spec"].get("routes", {}):
                class_["spec"]["routes"].update(routes)
            self.folder.put(class_)
        return [class_["metadata"]["name"] for class_ in classes]

    # Agents and BIRD

    def conf(self, node):
        return os.path.join(self.state, node, "bird.conf")

    def control(self, node):
        return os.path.join(self.state, node, "bird.ctl")

    def _reach_kube(self, node):
        """The API server on the node's own loopback, as on this machine's."""
        self.processes.start(f"relay-{node}", ["/usr/bin/python3", "-S", "-E", RELAY,
                                               self.kube.port, netns.path(self.ns(node))],
                             log=os.path.join(self.state, f"relay-{node}.log"))
        pods.wait_server(self.processes, f"relay-{node}",
                         os.path.join(self.state, f"relay-{node}.log"))

    def start_agent(self, node, binary, *extra, features="trafficclass"):
        if self.kube:
            self._reach_kube(node)
        self.agents[node].start(binary, self.folder, [
            "--features", features, "--bird-conf", self.conf(node), "--bird-socket",
            self.control(node), *extra])

    def _bird(self, node):
        return [BIRD, "-f", "-R", "-c", self.conf(node), "-s", self.control(node), "-P",
                os.path.join(self.state, node, "bird.pid")]

    def start_bird(self, node):
        """As the sidecar does: when there is a configuration."""
        netns.wait_until(lambda: os.path.exists(self.conf(node)), 10, f"bird.conf on {node}")
        self.processes.start(f"bird-{node}", self._bird(node), ns=self.ns(node),
                             log=os.path.join(self.state, node, "bird.log"))

    def loop_bird(self, node):
        """Again and again, whenever it ends."""
        self.processes.start(f"bird-{node}", [
            "/bin/sh", "-c", 'trap "kill \\$!; exit" TERM; while :; do "$@" & wait; sleep 0.2; done',
            "sh", *self._bird(node)], ns=self.ns(node),
            log=os.path.join(self.state, node, "bird.log"))

    def bird_pid(self, node):
        return self.processes.running(f"bird-{node}")

    def stop_bird(self, node):
        self.processes.stop(f"bird-{node}")

    def birdc(self, node, *words):
        return netns.run(["birdc", "-s", self.control(node), *words], check=False).stdout

    def established(self, node):
        return len(re.findall(r" BGP .* Established\s*$", self.birdc(node, "show", "protocols"),
                              re.M))

    def wait_sessions(self, expected, nodes=None, timeout=30):
        nodes = nodes or self.nodes
        netns.wait_until(lambda: all(self.established(n) == expected for n in nodes), timeout,
                         lambda: f"{expected} sessions: " + str({n: self.established(n)
                                                                 for n in nodes}), 0.1)

    def routes(self, node, table, family):
        done = self.run(node, "ip", f"-{family}", "route", "show", "table", str(table),
                        check=False)
        return sorted(line.strip() for line in done.stdout.splitlines())

    def rules(self, node, family):
        out = self.run(node, "ip", f"-{family}", "rule").stdout
        return [" ".join(line.split()) for line in out.splitlines() if "proto 107" in line]

    # Traffic

    @staticmethod
    def pod(i, k, family):
        n = {"a": 10, "b": 11}[k]
        return f"10.244.{i}.{n}" if family == 4 else f"fd00:244:{i}::{n}"

    @staticmethod
    def address(i, link, family):
        vlan = LINKS[link]
        return f"10.{vlan}.0.{i}" if family == 4 else f"fd00:{vlan}::{i}"

    def _flush(self):
        for host in (*self.nodes, "gw"):
            self.nft(host, "flush set inet count four; flush set inet count six")

    def counted(self, host):
        """{(link, source, destination): packets} since the last flush."""
        ret = {}
        for name in ("four", "six"):
            listed = json.loads(netns.run_in(self.ns(host), ["nft", "-j", "list", "set", "inet",
                                                             "count", name]).stdout)
            for entry in listed["nftables"]:
                for elem in entry.get("set", {}).get("elem", []):
                    ret[tuple(elem["elem"]["val"]["concat"])] = elem["elem"]["counter"]["packets"]
        return ret

    def probe(self, source, address, count=3, timeout=0.5):
        """Sends UDP from a host; what came back, whom the other end saw, which links carried it."""
        self._flush()
        answers, peer = 0, None
        with probe.open_socket(self.ns(source), "udp", address) as sock:
            for n in range(count):
                try:
                    sock.sendto(f"{n}".encode(), (address, PORT))
                    if not select.select([sock], [], [], timeout)[0]:
                        continue
                    said = sock.recv(2048).decode(errors="replace")
                except OSError:
                    continue
                answers += 1
                peer = re.search(r"peer=(\S+)", said)[1]
        links = {}
        for node in self.nodes:
            used = {link for link, _, _ in self.counted(node) if link in LINKS}
            if used:
                links[node] = used
        router = {(link, source_): packets
                  for (link, source_, _), packets in self.counted("gw").items() if link in LINKS}
        return Seen(answers, peer, links, router)
