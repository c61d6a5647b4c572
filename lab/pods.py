"""Pods: a namespace wired by a real CNI plugin, with a server that tells what it sees."""

import ipaddress
import json
import os
from dataclasses import dataclass

from . import netns

PLUGINS = "/usr/lib/cni"
SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools", "podserver.py")


@dataclass
class Pod:
    """A pod as the API would show it. For a hostNetwork pod `ns` is the node's namespace."""
    name: str
    node: str
    ns: str
    addresses: dict          # {4: "10.244.1.2", 6: "fd00:..."}
    host_network: bool = False

    def address(self, family=4):
        return self.addresses[family]


def _config(host, state, overlay):
    kind = {"bridge": {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False,
                       "hairpinMode": True},
            "ptp": {"type": "ptp", "ipMasq": False},
            "overlay": {"type": "bridge", "bridge": overlay and overlay.bridge, "hairpinMode": True,
                        "mtu": overlay and overlay.mtu}}[host.cni]
    ranges = [[{"subnet": subnet}] for subnet in host.pod_subnets]
    if host.cni == "overlay":
        ranges = [[_part_of(overlay, overlay.members[host.name], subnet)]
                  for subnet in host.pod_subnets]
    return {"cniVersion": "0.4.0", "name": f"net-{host.name}", **kind, "ipam": {
        "type": "host-local", "dataDir": os.path.join(state, "cni"),
        "ranges": ranges,
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}


def _part_of(overlay, gateway, subnet):
    """A range of host-local: one node's part of the segment, behind the node."""
    part = ipaddress.ip_network(subnet)
    whole = ipaddress.ip_network(f"{gateway}/{overlay.prefix}", strict=False)
    return {"subnet": str(whole), "rangeStart": str(part[2]), "rangeEnd": str(part[-2]),
            "gateway": gateway}


def _call_plugin(command, pod, ns, node_ns, host, state, overlay):
    config = _config(host, state, overlay)
    env = [f"CNI_COMMAND={command}", f"CNI_CONTAINERID={pod}", f"CNI_NETNS={netns.path(ns)}",
           "CNI_IFNAME=eth0", f"CNI_PATH={PLUGINS}"]
    argv = netns.exec_argv(node_ns, ["env", *env, os.path.join(PLUGINS, config["type"])])
    done = netns.run(argv, stdin=json.dumps(config), check=False)
    if done.returncode != 0:
        raise netns.CommandError(f"CNI {command} {pod} on {host.name}: {done.stdout.strip()}")
    return done.stdout


def attach(pod, ns, node_ns, host, state, overlay=None):
    """Wires the namespace `ns` to the node; returns the Pod with the addresses it got."""
    answer = json.loads(_call_plugin("ADD", pod, ns, node_ns, host, state, overlay))
    addresses = {}
    for entry in answer["ips"]:
        address = entry["address"].split("/")[0]
        addresses[6 if ":" in address else 4] = address
    return Pod(pod, host.name, ns, addresses)


def detach(pod, node_ns, host, state, overlay=None):
    _call_plugin("DEL", pod.name, pod.ns, node_ns, host, state, overlay)


def start_server(processes, label, name, ns, ports, state, bind=()):
    """Starts the server; it is up once it has said so in its log."""
    log = os.path.join(state, f"{label}.log")
    if os.path.exists(log):
        os.unlink(log)
    argv = ["/usr/bin/python3", "-S", "-E", SERVER, name, *ports]
    for address in bind:
        argv += ["--bind", address]
    processes.start(label, argv, ns=ns, log=log)
    return log


def wait_server(processes, label, log):
    def ready():
        if not processes.running(label):
            raise RuntimeError(f"{label} ended: {_text(log)}")
        return "ready" in _text(log)

    netns.wait_until(ready, 5, lambda: f"{label} to serve: {_text(log)}")


def _text(log):
    try:
        with open(log) as file:
            return file.read()
    except FileNotFoundError:
        return ""
