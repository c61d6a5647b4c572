"""Streams of UDP, a packet every ten milliseconds, while agents and BIRDs end and start again."""

import re
import select
import threading
import time

import pytest

from lab import probe
from lab.links import PORT, WORLD
from lab.netns import wait_until

STEP = 0.01
SETTLE = 3.0  # seconds that what is sent last has to come back


class Stream(threading.Thread):
    """Sends until stop(), which gives (sent, lost, longest silence in seconds)."""

    def __init__(self, lab, source, address):
        super().__init__()
        self.sock = probe.open_socket(lab.ns(source), "udp", address)
        self.address = address
        self.sent, self.seen = 0, {}
        self.ending = threading.Event()
        self.start()

    def run(self):
        next_ = time.monotonic()
        end = None
        while end is None or time.monotonic() < end and len(self.seen) < self.sent:
            if end is None and time.monotonic() >= next_:
                try:
                    self.sock.sendto(b"#%d#" % self.sent, (self.address, PORT))
                except OSError:
                    pass  # lost, and counted as such
                self.sent += 1
                next_ += STEP
                if self.ending.is_set():
                    end = time.monotonic() + SETTLE
            if select.select([self.sock], [], [], STEP / 2)[0]:
                try:
                    data = self.sock.recv(2048)
                except OSError:
                    continue
                self.seen[int(re.search(rb"#(\d+)#", data)[1])] = time.monotonic()

    def stop(self):
        self.ending.set()
        self.join()
        self.sock.close()
        missing = [n for n in range(self.sent) if n not in self.seen]
        longest = run = 0
        for before, now in zip([None, *missing], missing):
            run = run + 1 if before == now - 1 else 1
            longest = max(longest, run)
        return self.sent, len(missing), longest * STEP


def sessions_back(lab):
    lab.wait_sessions(4)


@pytest.mark.parametrize("design", ["hybrid", "two-tables"])
@pytest.mark.parametrize("family", [4, 6])
def test_nothing_is_lost_over_restarts(make_lab, design, family):
    lab = make_lab(design)
    streams = {"pod to pod": Stream(lab, "p1a", lab.pod(2, "a", family)),
               "pod to world": Stream(lab, "p1a", WORLD[family])}
    try:
        wait_until(lambda: all(len(s.seen) > 20 for s in streams.values()), 10, "the streams")
        agent = lab.agents["k8s-1"]
        agent.stop()
        agent.restart()
        agent.kill()
        agent.clear_log()
        agent.restart()
        agent.wait_log("event=bird_configured")
        for node in ("k8s-2", "k8s-1"):
            lab.run(node, "kill", "-9", str(lab.bird_pid(node)))
            lab.start_bird(node)
            sessions_back(lab)
            lab.stop_bird(node)
            lab.start_bird(node)
            sessions_back(lab)
    finally:
        ended = {name: stream.stop() for name, stream in streams.items()}
    assert {name: lost for name, (_, lost, _) in ended.items()} == \
        {"pod to pod": 0, "pod to world": 0}, ended


@pytest.mark.parametrize("bfd, limit", [(False, 15), (True, 5)])
def test_a_silent_cut_of_the_mesh_is_noticed(make_lab, bfd, limit):
    """Figures: no session ends by itself; without BFD the hold time of 9 s says it."""
    lab = make_lab("hybrid")
    if bfd:
        class_ = lab.folder.get("TrafficClass", "pods")
        class_["spec"]["routes"]["mesh"]["bfd"] = True
        lab.folder.put(class_)
        wait_until(lambda: all("Up" in lab.birdc(n, "show", "bfd", "sessions")
                               for n in lab.nodes), 30, "BFD sessions")
        lab.wait_sessions(4)
    stream = Stream(lab, "p1a", lab.pod(2, "a", 4))
    try:
        wait_until(lambda: len(stream.seen) > 20, 10, "the stream")
        lab.ip("sw", "link set k8s-1-pod0 nomaster")  # neither end's link goes down
        cut, before = time.monotonic(), len(stream.seen)
        wait_until(lambda: any(t > cut + 0.5 for t in list(stream.seen.values())), limit + 5,
                   "answers over the other link")
    finally:
        sent, lost, silence = stream.stop()
    print(f"bfd={bfd}: silence {silence:.2f} s, {lost} of {sent} lost")
    assert 0 < silence < limit
