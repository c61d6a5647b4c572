"""Hears from nodes' kernels when an element of an nftables set or map comes and goes.

From netlink itself: `nft monitor` 1.0.6 ends now and then over an interval that was deleted.
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
BEGINS = {10 << 8 | 12: True, 10 << 8 | 14: False}      # NFT_MSG_NEWSETELEM, NFT_MSG_DELSETELEM
PROTOCOL = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP}


def key_of(address, protocol, port):
    """`address . protocol . port` as the kernel has it: each part fills four bytes."""
    return (ipaddress.ip_address(address).packed + struct.pack("!B3x", PROTOCOL[protocol])
            + struct.pack("!H2x", port))


class Elements:
    """From its making to its end; `changes` are (time, node, whether it comes)."""

    def __init__(self, nodes, name, key):
        """`nodes` are {what it is called here: Host}, `name` the set's, `key` the element's."""
        self.changes = []
        self.wanted = name.encode() + b"\0", key
        self.sockets = {_listen(node.ns): called for called, node in nodes.items()}
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._hear, daemon=True)
        self.thread.start()

    def _hear(self):
        while not self.ending.is_set():
            for sock in select.select(list(self.sockets), [], [], 0.05)[0]:
                data, now = sock.recv(1 << 20), time.monotonic()
                self.changes += [(now, self.sockets[sock], begins)
                                 for begins in _changes(data, *self.wanted)]

    def stop(self, count):
        """The changes, once there are so many."""
        try:
            netns.wait_until(lambda: len(self.changes) >= count, 5,
                             lambda: f"{count} changes: {self.changes}")
        finally:
            self.ending.set()
            self.thread.join()
            for sock in self.sockets:
                sock.close()
        return self.changes


def _listen(ns):
    with netns.entered(ns):
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    sock.bind((0, 0))   # one without a number of its own hears nothing
    sock.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES)
    return sock


def _changes(data, name, key):
    while len(data) >= 16:
        size, kind = struct.unpack_from("=IH", data)
        if kind in BEGINS and name in data[:size] and key in data[:size]:
            yield BEGINS[kind]
        data = data[(size + 3) & ~3:]
