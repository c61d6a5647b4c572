#!/usr/bin/python3
"""The server in every pod: says what peer address it saw, then echoes, and can push on its own.

  podserver.py NAME PORT|LOW-HIGH ... [--bind ADDRESS ...]

TCP: a greeting line on connect, then an echo of whatever comes.
UDP: every answer is the greeting line followed by the packet.
A message that starts with "M " belongs to a numbered stream: "M <number> <push>". While push is
1 and messages keep coming the server also sends "P <number>" every 10 ms. "STOP" is answered
with "T <received> <pushed>", and ends the stream.
"""

import selectors
import socket
import sys
import time

STEP = 0.01          # seconds between pushed messages
SILENCE = 1.0        # a UDP peer silent for so long gets no more pushes
BACKLOG = 64 << 20   # bytes a TCP peer may leave unread
UNREAD = 16 << 20    # bytes of datagrams that wait while this process does: none is lost to a busy machine
SO_RCVBUFFORCE = 33


class Flow:
    """What is known of one stream: a TCP connection or a UDP peer."""

    def __init__(self, send):
        self.send = send
        self.received = 0
        self.pushed = 0
        self.pushing = False
        self.ended = False
        self.seen = time.monotonic()
        self.next = self.seen
        self.echo = None     # TCP: decided by the first bytes
        self.rest = b""      # TCP: an unfinished line
        self.waiting = b""   # TCP: what the peer has no room for yet


class Server:
    def __init__(self, name):
        self.name = name
        self.selector = selectors.DefaultSelector()
        self.flows = {}

    def listen(self, family, address, port):
        for kind, handle in ((socket.SOCK_STREAM, self.accept), (socket.SOCK_DGRAM, self.datagram)):
            sock = socket.socket(family, kind)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if kind == socket.SOCK_DGRAM:
                sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, UNREAD)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address, port))
            if kind == socket.SOCK_STREAM:
                sock.listen(128)
            self.selector.register(sock, selectors.EVENT_READ, handle)

    def greeting(self, peer, local):
        return (f"pod={self.name} peer={peer[0]} pport={peer[1]} "
                f"local={local[0]} lport={local[1]}\n").encode()

    def accept(self, listener):
        conn, peer = listener.accept()
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conn.setblocking(False)
        self.flows[conn] = Flow(lambda data: self.send(conn, data))
        self.selector.register(conn, selectors.EVENT_READ, self.stream)
        self.send(conn, self.greeting(peer, conn.getsockname()))

    def send(self, conn, data):
        """Never blocks: a peer that does not read must not stop the others."""
        flow = self.flows.get(conn)
        if not flow:
            return
        flow.waiting += data
        try:
            flow.waiting = flow.waiting[conn.send(flow.waiting):]
        except BlockingIOError:
            pass
        except OSError:
            self.close(conn)
            return
        if len(flow.waiting) > BACKLOG:
            self.close(conn)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if flow.waiting else 0)
        if self.selector.get_key(conn).events != events:
            self.selector.modify(conn, events, self.stream)

    def close(self, conn):
        if self.flows.pop(conn, None):
            self.selector.unregister(conn)
            conn.close()

    def stream(self, conn):
        if conn in self.flows and self.flows[conn].waiting:
            self.send(conn, b"")
        flow = self.flows.get(conn)
        if not flow:
            return
        try:
            data = conn.recv(65536)
            if not data:
                self.close(conn)
                return
            if flow.echo is None:
                flow.echo = not data.startswith(b"M ")
            if flow.echo:
                self.send(conn, data)
                return
            *lines, flow.rest = (flow.rest + data).split(b"\n")
            for line in lines:
                self.message(flow, line, b"")
        except BlockingIOError:
            pass
        except OSError:
            self.close(conn)

    def datagram(self, sock):
        data, peer = sock.recvfrom(65536)
        hello = self.greeting(peer, sock.getsockname())
        try:
            if not data.startswith((b"M ", b"STOP")):
                sock.sendto(hello + data, peer)
                return
            key = (sock.fileno(), peer)
            if key not in self.flows:
                self.flows[key] = Flow(lambda answer: sock.sendto(answer, peer))
            self.message(self.flows[key], data.rstrip(b"\n"), hello)
        except OSError:
            pass

    def message(self, flow, line, hello):
        """One line of a numbered stream."""
        if line == b"STOP":
            flow.pushing, flow.ended = False, True
            flow.send(hello + b"T %d %d\n" % (flow.received, flow.pushed))
            return
        if flow.ended:      # UDP: another stream from the same port
            flow.ended, flow.received, flow.pushed = False, 0, 0
        flow.received += 1
        flow.seen = time.monotonic()
        if line.endswith(b" 1") and not flow.pushing:
            flow.pushing, flow.next = True, flow.seen + STEP
        flow.send(hello + line + b"\n")

    def push(self):
        """Sends what is due; returns seconds until the next is, None when nobody wants any."""
        now = time.monotonic()
        nearest = None
        for key, flow in list(self.flows.items()):
            if isinstance(key, tuple) and now - flow.seen > SILENCE:
                flow.pushing = False
            if not flow.pushing:
                continue
            if flow.next <= now:
                flow.next = max(flow.next + STEP, now)
                flow.pushed += 1
                try:
                    flow.send(b"P %d\n" % flow.pushed)
                except OSError:
                    flow.pushing = False
            nearest = min(nearest or flow.next, flow.next)
        return None if nearest is None else max(0, nearest - now)

    def serve(self):
        while True:
            for key, _ in self.selector.select(self.push()):
                key.data(key.fileobj)


def main(arguments):
    binds, ports = [], []
    words = iter(arguments[1:])
    for word in words:
        if word == "--bind":
            binds.append(next(words))
        else:
            low, _, high = word.partition("-")
            ports += range(int(low), int(high or low) + 1)
    server = Server(arguments[0])
    for address in binds or ["0.0.0.0", "::"]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        for port in ports:
            server.listen(family, address, port)
    print("ready", len(ports), flush=True)
    server.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
