"""Long-lived numbered flows between a namespace and a pod server, as processes of their own."""

import json
import os
import subprocess
import threading
from dataclasses import dataclass, field

from . import netns

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools", "stream.py")


@dataclass
class Report:
    """What a stream saw. Times are of the monotonic clock, gaps are (begin, end) over 50 ms."""
    proto: str
    pods: list
    peers: list             # addresses the pods saw
    sent: int
    echoed: int
    server_received: int
    pushed: int
    pushes: int
    refused: int
    gaps: list = field(default_factory=list)
    longest_gap: float = 0.0
    ended: str = "ok"

    @property
    def lost_out(self):
        """Messages the pod never got; only meaningful when one pod served the whole stream."""
        return None if self.server_received is None else self.sent - self.server_received

    @property
    def lost_back(self):
        """Answers and pushes that did not come back."""
        if self.server_received is None:
            return None
        return (self.server_received - self.echoed) + (self.pushed - self.pushes)

    @property
    def nothing_lost(self):
        return self.ended == "ok" and self.lost_out == 0 and self.lost_back == 0


class Stream:
    """Start one, do something to the network, stop it, read the report."""

    def __init__(self, ns, proto, address, port, seconds=300, push=False, source_port=0):
        argv = ["/usr/bin/python3", "-S", "-E", TOOL, proto, address, str(port), str(seconds)]
        argv += ["--push"] if push else []
        argv += ["--source-port", str(source_port)] if source_port else []
        with netns.entered(ns):
            self.child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          text=True, env=netns.ENV, start_new_session=True)
        self.pod_changes = []       # (time, pod), the first is the pod that answered first
        self.last = None
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.child.stdout:
            record = json.loads(line)
            if record.get("event") == "pod":
                self.pod_changes.append((record["time"], record["pod"]))
            else:
                self.last = Report(**record)

    def wait_answer(self, timeout=5):
        """Returns self once a pod has answered."""
        netns.wait_until(lambda: self.pod_changes or self.last, timeout, "the stream to be served")
        if not self.pod_changes:
            raise RuntimeError(f"the stream ended unserved: {self.last}")
        return self

    def wait_change(self, count, timeout=5):
        """The time at which the pod that answers was another for so many times, the first included."""
        netns.wait_until(lambda: len(self.pod_changes) >= count, timeout,
                         lambda: f"{count} pods to serve the stream: {self.pod_changes}")
        return self.pod_changes[count - 1][0]

    def wait_pod(self, pod, timeout=5):
        """The time at which `pod` first answered."""
        def seen():
            return [time for time, name in list(self.pod_changes) if name == pod]
        return netns.wait_until(seen, timeout, f"{pod} to serve the stream")[0]

    def stop(self, timeout=60):
        """Ends the stream and returns its Report."""
        self.child.stdin.close()
        self.child.wait(timeout)
        self.reader.join(timeout)
        self.child.stdout.close()
        return self.last
