#!/usr/bin/python3
"""Connects again and again, and remembers each time what happened.

  hammer.py ADDRESS PORT SECONDS PAUSE

Each connection reads the pod server's greeting and is closed by a reset, which leaves no TIME_WAIT
behind. Runs for SECONDS or until stdin closes, PAUSE seconds between two. Prints one JSON object:
{"connects": [[began, stood or null, ended, pod or null, error or null, retransmits], ...],
"peers": [...]}.
"""

import json
import select
import socket
import struct
import sys
import time

TCP_INFO_TOTAL_RETRANS = 100    # offset of tcpi_total_retrans in struct tcp_info
PATIENCE = 10.0


def retransmits(sock):
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return struct.unpack_from("I", info, TCP_INFO_TOTAL_RETRANS)[0]


def state(sock):
    """Of the TCP connection, as the kernel numbers them: 1 established, 2 SYN sent."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def connect(family, address, port, peers):
    pod = error = stood = None
    sent_again = 0
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(PATIENCE)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            sock.connect((address, port))
            stood = time.monotonic()
            sent_again = retransmits(sock)
            words = dict(word.split("=", 1) for word in sock.recv(256).decode().split())
            pod = words.get("pod")
            peers.add(words.get("peer"))
        except OSError as problem:
            error = f"{problem}, port {sock.getsockname()[1]}, state {state(sock)}"
            sent_again = retransmits(sock)
    return stood, pod, error, sent_again


def main():
    address, port = sys.argv[1], int(sys.argv[2])
    seconds, pause = float(sys.argv[3]), float(sys.argv[4])
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connects, peers = [], set()
    until = time.monotonic() + seconds
    print("ready", flush=True)
    while (began := time.monotonic()) < until:
        stood, pod, error, sent_again = connect(family, address, port, peers)
        connects.append([began, stood, time.monotonic(), pod, error, sent_again])
        if select.select([sys.stdin], [], [], pause)[0]:
            break
    print(json.dumps({"connects": connects, "peers": sorted(filter(None, peers))}), flush=True)


if __name__ == "__main__":
    main()
