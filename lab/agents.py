"""Runs the program under test on the nodes of a lab, and reads what it says."""

import os
import signal

from . import netns, procs

SANITIZER_MARKS = ("AddressSanitizer", "LeakSanitizer", "runtime error:",
                   "UndefinedBehaviorSanitizer")
# A sanitizer build reports to stderr and ends; another build ignores these.
SANITIZER_ENV = {"ASAN_OPTIONS": "halt_on_error=1:detect_leaks=1:abort_on_error=0:log_path=stderr",
                 "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1:log_path=stderr"}


class SanitizerError(AssertionError):
    """The program is built with a sanitizer and it complained."""


class Agent:
    """`portolan agent` on one node. Its log goes on over restarts until clear_log()."""

    def __init__(self, lab, node):
        self.lab = lab
        self.node = node
        self.label = f"agent-{node}"
        self.log_path = os.path.join(lab.state, f"agent-{node}.log")
        self.state_dir = os.path.join(lab.state, f"agent-{node}")
        self.command = None

    def argv(self, binary, source, extra_args=()):
        return netns.exec_argv(self.lab.ns(self.node), [
            os.path.abspath(binary), "agent", "--node", self.node, *source.arguments,
            "--state-dir", self.state_dir, "--log-level", "info", *extra_args])

    def start(self, binary, source, extra_args=()):
        """`source` is a Folder or a Kube."""
        os.makedirs(self.state_dir, exist_ok=True)
        self.command = self.argv(binary, source, extra_args)
        self.lab.processes.start(self.label, self.command, log=self.log_path, env=SANITIZER_ENV)
        return self

    @property
    def pid(self):
        return self.lab.processes.running(self.label)

    @property
    def returncode(self):
        child = self.lab.processes.children.get(self.label)
        return child.poll() if child else None

    def stop(self, timeout=10):
        """SIGTERM, as soon as it is heard; returns the exit status. Raises when a sanitizer has
        complained."""
        child = self.lab.processes.children.get(self.label)
        if child:
            netns.wait_until(lambda: child.poll() is not None or
                             procs.catches(child.pid, signal.SIGTERM), 5,
                             lambda: f"{self.node} to begin; it said:\n{self.log()[-2000:]}")
        code = self._end(signal.SIGTERM, timeout)
        self.check_sanitizer()
        return code

    def kill(self):
        """SIGKILL, as a crash would."""
        return self._end(signal.SIGKILL, 5)

    def _end(self, sig, timeout):
        child = self.lab.processes.children.get(self.label)
        if not child:
            return None
        if child.poll() is None:
            child.send_signal(sig)
        code = child.wait(timeout * netns.PATIENCE)
        self.lab.processes.forget(self.label)
        return code

    def restart(self):
        """Starts the last command again; end it first with stop() or kill()."""
        self.lab.processes.start(self.label, self.command, log=self.log_path, env=SANITIZER_ENV)

    def log(self):
        try:
            with open(self.log_path, errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def clear_log(self):
        if os.path.exists(self.log_path):
            os.truncate(self.log_path, 0)

    def wait_log(self, text, timeout=5):
        netns.wait_until(lambda: text in self.log(), timeout,
                         lambda: f"{self.node} to log '{text}'; it said:\n{self.log()[-2000:]}")

    def check_sanitizer(self):
        text = self.log()
        for mark in SANITIZER_MARKS:
            if mark in text:
                start = max(0, text.index(mark) - 200)
                raise SanitizerError(f"{self.node}: {text[start:start + 4000]}")
