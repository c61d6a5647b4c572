"""Asks an HTTP server from inside a namespace."""

import http.client
import socket
from dataclasses import dataclass

from . import netns


@dataclass
class Answer:
    status: int
    headers: dict
    text: str


class _Connection(http.client.HTTPConnection):
    def __init__(self, ns, address, port):
        super().__init__(f"[{address}]" if ":" in address else address, port, timeout=10)
        self.ns, self.address = ns, address

    def connect(self):
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        with netns.entered(self.ns):
            self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.address, self.port))


def fetch(ns, address, port, path="/"):
    """Header names are in lower case. Raises OSError when nobody answers."""
    connection = _Connection(ns, address, port)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, headers, answer.read().decode())
    finally:
        connection.close()
