"""What nodes' kernels say of changes in nftables, from netlink itself.

`nft monitor` 1.0.6 says the same in words, but ends now and then, by a segmentation fault or for want
of memory as it says, over elements of sets with intervals; who waits to hear nothing hears nothing.
"""

import ipaddress
import select
import socket
import struct
import threading
import time

from . import netns
from .probe import SO_RCVBUFFORCE

NETLINK_NETFILTER, NFNLGRP_NFTABLES = 12, 7
SOL_NETLINK, NETLINK_ADD_MEMBERSHIP = 270, 1
NFT_MSG_NEWSETELEM, NFT_MSG_DELSETELEM = 10 << 8 | 12, 10 << 8 | 14     # with the subsystem
PROTOCOL = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP}


class NftEvents:
    """From its making to its end; `events` are (time, node, message's type, the message)."""

    def __init__(self, nodes):
        """`nodes` are {what it is called here: namespace}."""
        self.events, self.error = [], None
        self.sockets = {_listen(ns): called for called, ns in nodes.items()}
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._hear, daemon=True)
        self.thread.start()

    def _hear(self):
        while True:
            last = self.ending.is_set()     # what was said before the end is still read
            ready = select.select(list(self.sockets), [], [], 0.05)[0]
            if last and not ready:
                return
            for sock in ready:
                try:
                    data, now = sock.recv(1 << 20), time.monotonic()
                except OSError as error:    # ENOBUFS: some were lost
                    self.error = error
                    return
                self.events += [(now, self.sockets[sock], kind, message)
                                for kind, message in _messages(data)]

    def stop(self):
        """All events. Raises what kept it from hearing them."""
        self.ending.set()
        self.thread.join()
        for sock in self.sockets:
            sock.close()
        if self.error:
            raise self.error
        return self.events


def key_of(address, protocol, port):
    """`address . protocol . port` as the kernel has it: each part fills four bytes."""
    return (ipaddress.ip_address(address).packed + struct.pack("!B3x", PROTOCOL[protocol])
            + struct.pack("!H2x", port))


class Elements(NftEvents):
    """When one element of a set or map comes and goes: `changes` are (time, node, whether it comes)."""

    def __init__(self, nodes, name, key):
        """`name` is the set's, `key` the element's."""
        self.wanted = name.encode() + b"\0", key
        super().__init__(nodes)

    @property
    def changes(self):
        return [(when, node, kind == NFT_MSG_NEWSETELEM) for when, node, kind, message in self.events
                if kind in (NFT_MSG_NEWSETELEM, NFT_MSG_DELSETELEM)
                and all(part in message for part in self.wanted)]

    def stop(self, count):
        """The changes, once there are so many."""
        try:
            netns.wait_until(lambda: len(self.changes) >= count, 5,
                             lambda: f"{count} changes: {self.changes}")
        finally:
            super().stop()
        return self.changes


def _listen(ns):
    with netns.entered(ns):
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    sock.bind((0, 0))   # one without a number of its own hears nothing
    sock.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES)
    return sock


def _messages(data):
    while len(data) >= 16:
        size, kind = struct.unpack_from("=IH", data)
        yield kind, data[16:size]
        data = data[(size + 3) & ~3:]
