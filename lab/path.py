"""Watches packets on all nodes at once and says which way a probe and its reply went.

Packet sockets see what the kernel really carried; nothing here knows how a mapping is set up.
"""

import contextlib
import ipaddress
import select
import socket
import struct
import time
from dataclasses import dataclass, field

from . import netns

ETH_P_ALL = 3
PACKET_OUTGOING = 4
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
VXLAN_HEADERS = 8 + 8 + 14      # UDP, VXLAN, inner Ethernet


@dataclass
class Packet:
    time: float
    node: str
    interface: str
    outgoing: bool
    source: tuple               # (address, port)
    target: tuple
    protocol: int
    vni: int = None             # seen inside a VXLAN packet of this number


@dataclass
class Path:
    """Steps are (node, interface) in the order of the packets; a CNI's interfaces are "pod"."""
    request: list = field(default_factory=list)
    reply: list = field(default_factory=list)

    @property
    def entry(self):
        """The node the client's packet came to first."""
        return self.request[0][0] if self.request else None

    @property
    def exit(self):
        """The node the reply left to the outside from."""
        return self.reply[-1][0] if self.reply else None

    @property
    def pod_node(self):
        return self.request[-1][0] if self.request else None

    @property
    def symmetric(self):
        return self.request == self.reply[::-1]

    def text(self):
        """`edge-a enp1s0 > pl4242 > (vxlan 4242 in wt0) > worker-b pl4242 > pod`"""
        way = _text(self.request)
        return way if self.symmetric else f"{way}; reply: {_text(self.reply)}"


def _text(steps):
    parts, node_shown, tunnel = [], None, None
    for node, interface in steps:
        if "vxlan" in interface:
            if tunnel != interface:         # sent here, received there: said once
                parts.append(f"({interface})")
            tunnel = interface
            continue
        parts.append(interface if node == node_shown else f"{node} {interface}")
        node_shown = node
    return " > ".join(parts)


def parse(data, inner_vni=None, vxlan_ports=(4790,)):
    """[(source, target, protocol, vni)] of an IP packet and, when it is VXLAN, of what is in it."""
    if len(data) < 20:
        return []
    version = data[0] >> 4
    if version == 4:
        size, protocol = (data[0] & 15) * 4, data[9]
        source, target = data[12:16], data[16:20]
    elif version == 6 and len(data) >= 40:
        size, protocol = 40, data[6]
        source, target = data[8:24], data[24:40]
    else:
        return []
    body = data[size:]
    ports = struct.unpack("!HH", body[:4]) if len(body) >= 4 else (None, None)
    found = [((str(ipaddress.ip_address(source)), ports[0]),
              (str(ipaddress.ip_address(target)), ports[1]), protocol, inner_vni)]
    if protocol == socket.IPPROTO_UDP and len(body) > VXLAN_HEADERS and inner_vni is None:
        if ports[1] in vxlan_ports:
            vni = int.from_bytes(body[12:15], "big")
            found += parse(body[VXLAN_HEADERS:], vni)
    return found


def _stamp(ancillary):
    for _, kind, value in ancillary:
        if kind == SO_TIMESTAMPNS:
            seconds, nanos = struct.unpack("qq", value[:16])
            return seconds + nanos / 1e9
    return 0.0


_keeps_clock_on = []


def _switch_clock_on():
    """Makes the kernel stamp packets on arrival.

    It begins some time after the first socket asks for it, and until then stamps packets when
    they are read, which would put them in a wrong order. One socket is kept open for good.
    """
    if _keeps_clock_on:
        return
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(1)

    def stamped_on_arrival():
        sock.sendto(b"?", sock.getsockname())
        time.sleep(0.002)
        read = time.time()
        return _stamp(sock.recvmsg(16, 64)[1]) < read

    netns.wait_until(stamped_on_arrival, 5, "the kernel to stamp packets on arrival")
    _keeps_clock_on.append(sock)


class Witness:
    """Collects packets on the nodes given, from start to close."""

    def __init__(self, nodes):
        _switch_clock_on()
        self.sockets = {}
        for node in nodes:
            with netns.entered(node.ns):
                sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
            sock.setblocking(False)
            self.sockets[sock] = node.name
        self.packets = []

    def close(self):
        for sock in self.sockets:
            sock.close()

    def collect(self, seconds=0):
        """Reads what has been captured; waits so long for more."""
        while ready := select.select(list(self.sockets), [], [], seconds)[0]:
            for sock in ready:
                self._read(sock, self.sockets[sock])

    def _read(self, sock, node):
        try:
            data, ancillary, _, origin = sock.recvmsg(65536, 64)
        except BlockingIOError:
            return
        for source, target, protocol, vni in parse(data):
            self.packets.append(Packet(_stamp(ancillary), node, origin[0],
                                       origin[2] == PACKET_OUTGOING, source, target, protocol,
                                       vni))

    def path_of(self, client, protocol):
        """The path of the packets from and to `client`, an (address, port) as the pod saw it."""
        number = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP}[protocol]
        packets = sorted((p for p in self.packets if p.protocol == number), key=lambda p: p.time)
        return Path(_steps(p for p in packets if p.source == client),
                    _steps(p for p in packets if p.target == client))


def _steps(packets):
    """Each (node, interface) once, at the place it was first seen."""
    steps = []
    for packet in packets:
        name = packet.interface
        if name.startswith("veth") or name == "cni0":
            name = "pod"
        elif packet.vni is not None:
            name = f"vxlan {packet.vni} in {name}"
        if (packet.node, name) not in steps:
            steps.append((packet.node, name))
    return steps


@contextlib.contextmanager
def witness(nodes):
    seen = Witness(nodes)
    try:
        yield seen
    finally:
        seen.close()
