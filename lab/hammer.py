"""New connections without end from one namespace, as a process of its own."""

import json
import os
import subprocess
from dataclasses import dataclass

from . import netns

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools", "hammer.py")


@dataclass
class Connect:
    """Times are of the monotonic clock; `again` counts packets sent again until it stood."""
    began: float
    ended: float
    pod: str
    error: str
    again: int
    dialled: str = ""


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
