"""New connections without end from one namespace, as a process of its own."""

import json
import os
import subprocess
from dataclasses import dataclass

from . import netns

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools", "hammer.py")


# Linux sends a SYN that nothing answers again after 1 s, TCP_TIMEOUT_INIT of net/tcp.h; half of it
# is far from what a busy machine makes of the few milliseconds that any other reason takes.
UNANSWERED = 0.5


@dataclass
class Connect:
    """Times are of the monotonic clock, None if it never `stood`; `retransmits` is what the kernel
    sent again until then."""
    began: float
    stood: float
    ended: float
    pod: str
    error: str
    retransmits: int
    dialled: str = ""

    @property
    def again(self):
        """How many first packets had no answer. One that had may be sent again too: where the server
        still has a connection from the same port, whose end got lost on the way (a test flushes
        conntrack while a FIN is under way), an ACK of that one answers, the client resets it and
        sends its SYN again two ticks later (tcp_rcv_synsent_state_process, net/ipv4/tcp_input.c).
        Ports of several services may lead to one port of a pod, and the client uses the same port
        of its own towards each."""
        late = (self.stood or self.ended) - self.began > UNANSWERED
        return self.retransmits if late else 0


class Hammer:
    """Start one, do something to the network, stop it, read the Connects."""

    def __init__(self, ns, address, port, seconds=300, pause=0.0):
        argv = ["/usr/bin/python3", "-S", "-E", TOOL, address, str(port), str(seconds), str(pause)]
        with netns.entered(ns):
            self.child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          text=True, env=netns.ENV, start_new_session=True)
        self.child.stdout.readline()
        self.peers = []
        self.dialled = f"{address}:{port} from {ns}"

    def stop(self, timeout=60):
        out, _ = self.child.communicate("", timeout)
        report = json.loads(out)
        self.peers = report["peers"]
        return [Connect(*fields, self.dialled) for fields in report["connects"]]
