"""The system calls of a running process and its children, by strace."""

import subprocess

from . import netns

ATTACHED = 10   # seconds it may take
DETACHED = 10   # strace waits for every thread to stop, now and then for ever


class Strace:
    """Between entering and leaving; then `lines` are the calls. `calls` is strace's expression,
    `log` a file to write."""

    def __init__(self, pid, calls, log):
        self.pid, self.log, self.lines = pid, log, []
        self.command = ["strace", "-f", "-qq", "-s", "256", "-o", log, "-e", f"trace={calls}",
                        "-p", str(pid)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True)
        try:
            netns.wait_until(lambda: self.process.poll() is not None
                             or _tracer(self.pid) == self.process.pid, ATTACHED, "strace to attach")
        except TimeoutError:
            self._end()
            raise
        return self

    def __exit__(self, *problem):
        error = self._end()
        assert error is None, f"strace ended: {error}"
        with open(self.log) as file:
            self.lines = [line for line in file if "(" in line]

    def _end(self):
        """Its error message if it had ended by itself."""
        ended = self.process.poll() is not None
        self.process.terminate()
        try:
            _, error = self.process.communicate(timeout=DETACHED)
        except subprocess.TimeoutExpired:
            self.process.kill()     # the kernel then lets go of what it traced
            _, error = self.process.communicate(timeout=DETACHED)
        return error if ended else None


def _tracer(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(next(line for line in file if line.startswith("TracerPid:")).split()[1])
