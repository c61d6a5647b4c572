"""Network namespaces without names, the processes in them, and what a process has used.

A namespace lives as long as a file descriptor or a process holds it, so nothing is left behind,
whichever way the bench ends. Processes die with the bench by their parent-death signal.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)


class Namespace:
    def __init__(self):
        thread = threading.Thread(target=self._make)
        thread.start()
        thread.join()

    def _make(self):
        _check(_libc.unshare(CLONE_NEWNET), "unshare (root is needed)")
        self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    def close(self):
        os.close(self.fd)

    @property
    def path(self):
        """For `ip link set DEV netns PATH`."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    @contextlib.contextmanager
    def entered(self):
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        _check(_libc.setns(self.fd, CLONE_NEWNET), "setns")
        try:
            yield
        finally:
            _check(_libc.setns(home, CLONE_NEWNET), "setns")
            os.close(home)

    def run(self, *argv, text=None, cpu=None):
        """Its standard output; a failure raises with what it said."""
        with self.entered():
            done = subprocess.run([str(a) for a in argv], input=text, capture_output=True,
                                  text=True, preexec_fn=_child(cpu), timeout=600)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, argv))[:200]}: exit {done.returncode}: "
                               f"{done.stderr.strip()[-2000:]}")
        return done.stdout

    def start(self, *argv, cpu=None, **options):
        with self.entered():
            return subprocess.Popen([str(a) for a in argv], preexec_fn=_child(cpu), **options)

    def ip(self, *lines):
        self.run("ip", "-batch", "-", text="\n".join(lines) + "\n")

    def sysctl(self, **values):
        """net__ipv4__ip_forward=1"""
        with self.entered():
            for key, value in values.items():
                Path("/proc/sys", key.replace("__", "/")).write_text(str(value))


def _child(cpu):
    def prepare():
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setpriority(os.PRIO_PROCESS, 0, -20)  # whatever else runs on the machine shows less
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
    return prepare


def stop(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def usage(pid):
    """CPU ns, switches and read and write calls so far, over all threads; memory in KiB."""
    used = {"cpu_ns": 0, "switches": 0, "calls": 0}
    for task in Path(f"/proc/{pid}/task").iterdir():
        used["cpu_ns"] += int((task / "schedstat").read_text().split()[0])
        for line in (task / "status").read_text().splitlines():
            if "ctxt_switches" in line:
                used["switches"] += int(line.split()[1])
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("sysc"):
            used["calls"] += int(line.split()[1])
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Rss:", "Pss:")):
            used[line[:3].lower()] = int(line.split()[1])
    return used


def nftables_listeners():
    """Sockets on this machine, in any namespace, that want to hear of nftables' changes. With one of
    them the kernel tells of every element of every namespace's commits, heard or not, which
    slows big ones down several times."""
    group = 1 << 6  # NFNLGRP_NFTABLES
    spaces = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            spaces[os.readlink(process / "ns/net")] = process
    found = 0
    for process in spaces.values():
        with contextlib.suppress(OSError):
            for line in (process / "net/netlink").read_text().splitlines()[1:]:
                _, family, _, groups = line.split()[:4]
                found += family == "12" and bool(int(groups, 16) & group)
    return found


def wait_idle(pid, still=0.3, timeout=120):
    """Until the process has not run for `still` seconds; when it last had, on the monotonic clock."""
    deadline = time.monotonic() + timeout
    before, since = None, time.monotonic()
    while time.monotonic() - since < still:
        switches = usage(pid)["switches"]
        if switches != before:
            before, since = switches, time.monotonic()
        if time.monotonic() > deadline:
            raise TimeoutError(f"pid {pid} is still busy after {timeout} s")
        time.sleep(0.02)
    return since
