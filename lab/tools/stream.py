#!/usr/bin/python3
"""One long-lived flow: numbered messages every 10 ms to a pod server, and its pushes back.

  stream.py tcp|udp HOST PORT SECONDS [--push] [--source-port N]

Runs for SECONDS or until stdin closes, then waits for what is still on its way. Prints one JSON
object a line: {"event": "pod", ...} whenever another pod answers, and the report last.
"""

import argparse
import json
import select
import socket
import sys
import time

STEP = 0.01
NOTABLE = 0.05        # silences longer than this are listed
DRAIN = 10.0          # seconds to wait for the last answers
UNREAD = 16 << 20     # bytes that wait while this process does: none is lost to a busy machine
SO_RCVBUFFORCE = 33
SILENCE = 1.0         # UDP: after so long without any, those that are missing are lost


class Stream:
    def __init__(self, options):
        self.proto = options.proto
        self.push = options.push
        self.peer = (options.host, options.port)
        self.source_port = options.source_port
        self.sent = self.echoed = self.pushes = self.refused = 0
        self.totals = None
        self.pods, self.peers, self.gaps = [], [], []
        self.buffer = b""
        self.ended = "ok"

    def open(self):
        family = socket.AF_INET6 if ":" in self.peer[0] else socket.AF_INET
        kind = socket.SOCK_STREAM if self.proto == "tcp" else socket.SOCK_DGRAM
        self.sock = socket.socket(family, kind)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.proto == "udp":
            self.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, UNREAD)
        if self.source_port:
            self.sock.bind(("", self.source_port))
        self.sock.settimeout(5)
        self.sock.connect(self.peer)
        if self.proto == "tcp":
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.last = time.monotonic()

    def transmit(self, data):
        try:
            self.sock.send(data)
            return True
        except BlockingIOError:
            return False
        except PermissionError:             # UDP: dropped before it left this host
            self.refused += 1
            return True
        except ConnectionRefusedError:      # UDP: the answer to an earlier packet
            self.refused += 1
            return self.transmit(data)

    def receive(self):
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return
        except ConnectionRefusedError:
            if self.proto == "tcp":
                raise
            self.refused += 1
            return
        if not data and self.proto == "tcp":
            raise EOFError
        now = time.monotonic()
        if now - self.last > NOTABLE:
            self.gaps.append([round(self.last, 4), round(now, 4)])
        self.last = now
        lines = (self.buffer + data).split(b"\n")
        self.buffer = lines.pop() if self.proto == "tcp" else b""
        for line in lines:
            self.line(line, now)

    def line(self, line, now):
        if line.startswith(b"M "):
            self.echoed += 1
        elif line.startswith(b"P "):
            self.pushes += 1
        elif line.startswith(b"T "):
            self.totals = [int(word) for word in line.split()[1:]]
        elif line.startswith(b"pod="):
            pod, peer = (word.split("=", 1)[1] for word in line.decode().split()[:2])
            if peer not in self.peers:
                self.peers.append(peer)
            if not self.pods or self.pods[-1] != pod:
                self.pods.append(pod)
                say({"event": "pod", "pod": pod, "time": now})

    def loop(self, seconds):
        """Sends and receives until the time is up or stdin closes."""
        start = following = time.monotonic()
        try:
            self.exchange(start + seconds, following)
        finally:
            now = time.monotonic()
            if now - self.last > NOTABLE:
                self.gaps.append([round(self.last, 4), round(now, 4)])

    def exchange(self, until, following):
        while (now := time.monotonic()) < until:
            if now >= following:
                if self.transmit(b"M %d %d\n" % (self.sent, self.push)):
                    self.sent += 1
                following = max(following + STEP, now)
            ready, _, _ = select.select([self.sock, sys.stdin], [], [], max(0, following - now))
            if self.sock in ready:
                self.receive()
            if sys.stdin in ready and not sys.stdin.buffer.read1(64):
                return

    def drain(self):
        """Asks for the server's totals and waits for what is still on its way."""
        began, asked, refused = time.monotonic(), 0.0, self.refused
        while (now := time.monotonic()) < began + DRAIN:
            if not self.totals and now - asked > (0.2 if self.proto == "udp" else DRAIN):
                if self.transmit(b"STOP\n"):
                    asked = now
            if self.totals and self.echoed >= self.sent and self.pushes >= self.totals[1]:
                return
            if (self.proto == "udp" and now - max(began, self.last) > SILENCE
                    and (self.totals or self.refused > refused)):
                return
            if select.select([self.sock], [], [], 0.02)[0]:
                self.receive()

    def report(self):
        received, pushed = self.totals or (None, None)
        longest = max((end - begin for begin, end in self.gaps), default=0.0)
        return {"proto": self.proto, "pods": self.pods, "peers": self.peers,
                "sent": self.sent, "echoed": self.echoed, "server_received": received,
                "pushed": pushed, "pushes": self.pushes,
                "refused": self.refused, "gaps": self.gaps, "longest_gap": round(longest, 4),
                "ended": self.ended}


def say(record):
    print(json.dumps(record), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("proto", choices=("tcp", "udp"))
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--push", action="store_true")
    parser.add_argument("--source-port", type=int, default=0)
    options = parser.parse_args()
    stream = Stream(options)
    try:
        stream.open()
        stream.loop(options.seconds)
        stream.drain()
    except (OSError, EOFError) as error:
        stream.ended = type(error).__name__
    say(stream.report())


if __name__ == "__main__":
    main()
