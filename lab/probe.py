"""One-shot probes: dial from a namespace once and say who answered, and what it saw."""

import errno
import re
import select
import socket
import struct
import time
from dataclasses import dataclass

from . import netns

IP_RECVERR, IPV6_RECVERR, IP_MTU_DISCOVER = 11, 25, 10
SO_RCVBUFFORCE = 33
_GREETING = re.compile(r"pod=(\S+) peer=(\S+) pport=(\d+) local=(\S+) lport=(\d+)")


@dataclass
class Probe:
    """`error` is None, "refused", "timeout", "unreachable" or the text of another error."""
    proto: str
    dialled: str
    port: int
    answered: bool = False
    pod: str = None
    peer: str = None
    peer_port: int = None
    local: str = None
    local_port: int = None
    replied_from: str = None
    replied_port: int = None
    source_port: int = None
    echoed: int = 0
    error: str = None
    seconds: float = 0.0

    @property
    def reply_matches(self):
        return (self.replied_from, self.replied_port) == (self.dialled, self.port)


def _family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def open_socket(ns, proto, address, source=None, source_port=0):
    """A socket that lives in `ns`, fit to dial `address`."""
    kind = socket.SOCK_STREAM if proto == "tcp" else socket.SOCK_DGRAM
    with netns.entered(ns):
        sock = socket.socket(_family(address), kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if kind == socket.SOCK_DGRAM:       # an ICMP error for any packet becomes an error here
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        else:
            sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
    if source or source_port:
        sock.bind((source or ("::" if sock.family == socket.AF_INET6 else "0.0.0.0"), source_port))
    return sock


def _error_name(error):
    if isinstance(error, TimeoutError):
        return "timeout"
    if error.errno == errno.ECONNREFUSED:
        return "refused"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "unreachable"
    return str(error)


def _tcp(sock, result, size):
    sock.connect((result.dialled, result.port))
    result.source_port = sock.getsockname()[1]
    file = sock.makefile("rb")
    line = file.readline().decode()
    payload = b"z" * size
    sender = memoryview(payload)
    while len(sender) or result.echoed < size:      # both at once: more than the buffers hold
        readable, writable, _ = select.select([sock], [sock] if len(sender) else [], [],
                                              sock.gettimeout())
        if not readable and not writable:
            raise TimeoutError("echo")
        if writable:
            sender = sender[sock.send(sender[:65536]):]
        if readable:
            data = sock.recv(65536)
            if not data:
                raise ConnectionResetError("closed before the echo was complete")
            result.echoed += len(data)
    result.replied_from, result.replied_port = sock.getpeername()[:2]
    return line


def _udp(sock, result, size, may_fragment):
    if may_fragment:
        sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, 0)
    sock.sendto(b"z" * size, (result.dialled, result.port))
    result.source_port = sock.getsockname()[1]
    data, peer = sock.recvfrom(70000)
    result.replied_from, result.replied_port = peer[:2]
    line, _, rest = data.partition(b"\n")
    result.echoed = len(rest)
    return line.decode()


def probe(ns, proto, address, port, timeout=5.0, size=4, source=None, source_port=0,
          may_fragment=False):
    """Dials once from `ns`; never raises for what the network did."""
    result = Probe(proto, address, port)
    began = time.monotonic()
    sock = open_socket(ns, proto, address, source, source_port)
    with sock:
        sock.settimeout(timeout)
        try:
            line = _tcp(sock, result, size) if proto == "tcp" else _udp(sock, result, size,
                                                                        may_fragment)
            match = _GREETING.match(line)
            if match:
                result.pod, result.peer, result.local = match[1], match[2], match[4]
                result.peer_port, result.local_port = int(match[3]), int(match[5])
                result.answered = result.echoed == size
            else:
                result.error = f"unexpected answer {line!r}"
        except OSError as error:
            result.error = _error_name(error)
    result.seconds = time.monotonic() - began
    return result


def _checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xffff)
    return ~(total + (total >> 16)) & 0xffff


def _echo_request(sequence):
    head = struct.pack("!BBHHH", 8, 0, 0, 77, sequence)
    return struct.pack("!BBHHH", 8, 0, _checksum(head), 77, sequence)


def wait_pings(pairs, timeout):
    """Pings each (namespace, address) every 50 ms until all have answered."""
    socks = {}
    for ns, address in pairs:
        with netns.entered(ns):
            sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        sock.setblocking(False)
        socks[sock] = (ns, address)
    deadline = time.monotonic() + timeout * netns.PATIENCE
    sequence = 0
    try:
        while socks:
            if time.monotonic() > deadline:
                missing = ", ".join(f"{ns} -> {address}" for ns, address in socks.values())
                raise TimeoutError(f"no ping in {timeout:g} s: {missing}")
            sequence = (sequence + 1) & 0xffff
            for sock, (_, address) in socks.items():
                try:
                    sock.sendto(_echo_request(sequence), (address, 0))
                except OSError:
                    pass
            _collect_pings(socks, 0.05)
    finally:
        for sock in socks:
            sock.close()


def _collect_pings(socks, seconds):
    until = time.monotonic() + seconds
    while socks and (left := until - time.monotonic()) > 0:
        for sock in select.select(list(socks), [], [], left)[0]:
            data, peer = sock.recvfrom(2048)
            if peer[0] == socks[sock][1] and data[20] == 0:
                del socks[sock]
                sock.close()
