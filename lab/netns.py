"""Network namespaces: enter one, run a command in it, wait for something to become true.

A thread that has entered a namespace creates its sockets and children there; both stay in that
namespace for life. So most of the lab needs no helper process: it opens a socket where it wants.
"""

import contextlib
import ctypes
import os
import subprocess
import time

CLONE_NEWNET = 0x40000000
ENV = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
# What every deadline is multiplied with. They are there to end what hangs, and machines have other
# things to do. How soon something happens is judged by promptly.py.
PATIENCE = float(os.environ.get("LAB_PATIENCE", "4"))
_libc = ctypes.CDLL(None, use_errno=True)


class CommandError(RuntimeError):
    """A command failed; the message holds the command and what it said."""


def _setns(fd):
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "setns")


def path(ns):
    return f"/run/netns/{ns}"


def exists(ns):
    return os.path.exists(path(ns))


@contextlib.contextmanager
def entered(ns):
    """The calling thread is inside `ns` for the length of the block."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(path(ns), os.O_RDONLY)
        try:
            _setns(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(home)


def run(argv, stdin=None, check=True, timeout=60):
    """Runs a command where the calling thread is; returns CompletedProcess with text."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, env=ENV,
                          timeout=timeout)
    if check and done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise CommandError(f"{' '.join(map(str, argv))}: exit {done.returncode}: {said}")
    return done


def run_in(ns, argv, **options):
    """Runs a command in `ns`. Its /sys is the host's; use exec_argv() where that matters."""
    with entered(ns):
        return run(argv, **options)


def exec_argv(ns, argv):
    """The command line that runs `argv` in `ns` with a /sys of that namespace."""
    return ["ip", "netns", "exec", ns, *map(str, argv)]


def ip_batch(ns, lines, family=None):
    """Feeds lines to one `ip -batch` in `ns`; stops at the first that fails."""
    lines = list(lines)
    if lines:
        run_in(ns, ["ip", *([f"-{family}"] if family else []), "-batch", "-"],
               stdin="\n".join(lines) + "\n")


def set_sysctls(ns, values):
    """Writes {"net.ipv4.ip_forward": 1, ...}; a knob the kernel lacks is left alone."""
    with entered(ns):
        for key, value in values.items():
            file = "/proc/sys/" + key.replace(".", "/")
            if os.path.exists(file):
                with open(file, "w") as out:
                    out.write(str(value))


def get_sysctl(ns, key):
    with entered(ns), open("/proc/sys/" + key.replace(".", "/")) as file:
        return file.read().strip()


def wait_until(condition, timeout, what, interval=0.005):
    """Calls `condition` until it returns something true, which is returned.

    `what` says what was waited for: a string, or a function that says it at the deadline.
    """
    deadline = time.monotonic() + timeout * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            text = what() if callable(what) else what
            raise TimeoutError(f"waited {timeout * PATIENCE:g} s for: {text}")
        time.sleep(interval)
