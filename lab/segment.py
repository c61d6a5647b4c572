"""A TCP segment that belongs to no sequence a connection expects: conntrack calls it invalid."""

import contextlib
import ipaddress
import random
import socket
import struct

from . import netns


def send_stray_segment(ns, source, target, mark):
    """From (address, port) to (address, port) an acknowledgement of what was never sent, with a
    random sequence number; `mark` is its urgent pointer, by which a witness knows it."""
    family = socket.AF_INET6 if ":" in source[0] else socket.AF_INET
    head = struct.pack("!HHIIBBHHH", source[1], target[1], random.getrandbits(32),
                       random.getrandbits(32), 5 << 4, 0x10, 512, 0, mark)
    packed = [ipaddress.ip_address(address).packed for address, _ in (source, target)]
    pseudo = (b"".join(packed) + struct.pack("!HH", socket.IPPROTO_TCP, len(head))
              if family == socket.AF_INET else
              b"".join(packed) + struct.pack("!II", len(head), socket.IPPROTO_TCP))
    data = pseudo + head
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xffff)
    total += total >> 16
    head = head[:16] + struct.pack("!H", ~total & 0xffff) + head[18:]
    with netns.entered(ns):
        sock = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP)
    with sock:
        sock.bind((source[0], 0))
        sock.sendto(head, (target[0], 0))


@contextlib.contextmanager
def arriving(ns):
    """`with arriving(ns) as marks: marks()` is the set of urgent pointers that came since."""
    socks, seen = [], set()
    with netns.entered(ns):
        for family in (socket.AF_INET, socket.AF_INET6):
            socks.append(socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP))

    def marks():
        for sock in socks:
            with contextlib.suppress(BlockingIOError):
                while data := sock.recv(2048, socket.MSG_DONTWAIT):
                    start = (data[0] & 15) * 4 if sock.family == socket.AF_INET else 0
                    seen.add(struct.unpack_from("!H", data, start + 18)[0])
        return seen
    try:
        yield marks
    finally:
        for sock in socks:
            sock.close()
