"""Real WireGuard between the nodes, in user space (wireguard-go), one /32 per peer."""

import base64
import json
import os
import socket

from . import netns


def _keypair():
    private = netns.run(["wg", "genkey"]).stdout.strip()
    public = netns.run(["wg", "pubkey"], stdin=private).stdout.strip()
    return private, public


def _hex(key):
    return base64.b64decode(key).hex()


def run_directory(state, host):
    """The /run a node's daemons and `lab exec` see: every node has its own /run/wireguard."""
    return os.path.join(state, "run", host)


def _talk(control, lines):
    """One request to a daemon's socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5 * netns.PATIENCE)
        sock.connect(control)
        sock.sendall(("\n".join(lines) + "\n\n").encode())
        answer = ""
        while not answer.endswith("\n\n") and (data := sock.recv(4096)):
            answer += data.decode()
    if "errno=0" not in answer:
        raise RuntimeError(f"{control}: wireguard refused: {answer.strip()}")


def _listens(control):
    """The socket is there a moment before anybody listens."""
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(control) == 0


def _control(state, mesh, name):
    return os.path.join(run_directory(state, name), "wireguard", f"{mesh.interface}.sock")


def _configure(control, mesh, name, keys):
    """Speaks the cross-platform WireGuard configuration protocol to the daemon's socket."""
    lines = ["set=1", f"private_key={_hex(keys[name][0])}", f"listen_port={mesh.port}",
             f"fwmark={mesh.fwmark}", "replace_peers=true"]
    reachable = "endpoint" in mesh.members[name] and not mesh.members[name].get("default_route")
    for peer, member in mesh.members.items():
        if peer == name:
            continue
        lines.append(f"public_key={_hex(keys[peer][1])}")
        # A public node learns where its peers are; those behind NAT punch through.
        if not reachable:
            lines.append(f"endpoint={member['endpoint']}:{mesh.port}")
        lines += ["persistent_keepalive_interval=5", "replace_allowed_ips=true",
                  f"allowed_ip={member['address']}/32"]
    _talk(control, lines)


def start_daemons(topology, processes, state, ns):
    """Starts one wireguard-go per member; `ns` maps host names to namespaces."""
    for name in topology.mesh.members:
        directory = run_directory(state, name)
        os.makedirs(os.path.join(directory, "wireguard"))
        # `ip netns exec` gives a mount namespace of its own, so this bind is seen by nobody else.
        script = f'mount --bind {directory} /run && exec wireguard-go -f {topology.mesh.interface}'
        processes.start(f"mesh-{name}", netns.exec_argv(ns(name), ["sh", "-c", script]),
                        log=os.path.join(state, f"mesh-{name}.log"), env={"LOG_LEVEL": "error"})


def configure(topology, processes, state, ns):
    mesh = topology.mesh
    keys = {name: _keypair() for name in mesh.members}
    with open(os.path.join(state, "mesh-public.json"), "w") as file:
        json.dump({name: public for name, (_, public) in keys.items()}, file)
    for name, member in mesh.members.items():
        control = _control(state, mesh, name)
        netns.wait_until(lambda: _listens(control), 5, f"{name}: wireguard-go to listen")
        _configure(control, mesh, name, keys)
        device = mesh.interface
        lines = [f"addr add {member['address']}/{mesh.prefix} dev {device}",
                 f"link set {device} mtu {mesh.mtu} up"]
        if member.get("default_route"):
            lines.append(f"route add default dev {device} table {mesh.table}")
        netns.ip_batch(ns(name), lines)


def allow(mesh, state, name, addresses):
    """From now on the others take exactly these addresses from, and send them to, `name`."""
    with open(os.path.join(state, "mesh-public.json")) as file:
        public = json.load(file)[name]
    for other in mesh.members:
        if other != name:
            _talk(_control(state, mesh, other),
                  ["set=1", f"public_key={_hex(public)}", "replace_allowed_ips=true",
                   *[f"allowed_ip={address}/32" for address in addresses]])
