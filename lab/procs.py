"""Processes the lab has started, remembered on disk so that a later run can end exactly those.

A record holds pid and start time; a pid that now belongs to somebody else has another start time
and is left alone.
"""

import json
import os
import signal
import subprocess

from . import netns


def start_time(pid):
    """Clock ticks since boot at which `pid` started; None when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def runs(pid, began):
    """Whether `pid` is still the process that started at `began`; one that had ended before
    anybody asked for its start time (None) is not."""
    return began is not None and start_time(pid) == began


def catches(pid, sig):
    """Whether `pid` has a handler for the signal: until it has, the signal just ends it."""
    try:
        with open(f"/proc/{pid}/status") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) & 1 << sig - 1)


def end_pids(pids, timeout=5):
    """SIGTERM, then SIGKILL for those that stay. `pids` maps pid to start time."""
    alive = {pid: began for pid, began in pids.items() if runs(pid, began)}
    for sig in (signal.SIGTERM, signal.SIGKILL):
        for pid in alive:
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                pass
        try:
            netns.wait_until(lambda: not any(runs(p, b) for p, b in alive.items()),
                             timeout, "processes to end")
            return
        except TimeoutError:
            alive = {p: b for p, b in alive.items() if runs(p, b)}
    raise TimeoutError(f"pids {sorted(alive)} do not end")


class Processes:
    """Long-running processes of one lab instance, by label."""

    def __init__(self, directory):
        self.directory = directory
        self.children = {}

    def _record(self, label):
        return os.path.join(self.directory, f"{label}.json")

    def start(self, label, argv, ns=None, log=None, env=None, stdin=subprocess.DEVNULL):
        """Starts argv in `ns`, in its own session, output to the file `log`."""
        os.makedirs(self.directory, exist_ok=True)
        self.stop(label)
        argv = list(map(str, argv))
        with open(log or os.devnull, "ab") as out:
            where = netns.entered(ns) if ns else open(os.devnull)
            with where:
                child = subprocess.Popen(argv, stdin=stdin, stdout=out, stderr=out,
                                         env={**netns.ENV, **(env or {})}, start_new_session=True)
        self.children[label] = child
        with open(self._record(label), "w") as file:
            json.dump({"pid": child.pid, "start": start_time(child.pid), "argv": argv}, file)
        return child

    def _read(self, label):
        try:
            with open(self._record(label)) as file:
                return json.load(file)
        except FileNotFoundError:
            return None
        except ValueError:      # whoever wrote it was killed half way
            return {"pid": None}

    def labels(self):
        """Everything ever started and not stopped."""
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            names = []
        return [name.removesuffix(".json") for name in names]

    def running(self, label):
        """The pid while the process runs, else None."""
        child = self.children.get(label)
        if child and child.poll() is not None:
            return None
        record = self._read(label)
        if record and record["pid"] and runs(record["pid"], record["start"]):
            return record["pid"]
        return None

    def stop(self, label, timeout=5):
        pid = self.running(label)
        if pid:
            end_pids({pid: start_time(pid)}, timeout)
        self.forget(label)

    def forget(self, label):
        child = self.children.pop(label, None)
        if child:
            child.wait()
        if os.path.exists(self._record(label)):
            os.unlink(self._record(label))

    def stop_all(self):
        running = {label: self.running(label) for label in self.labels()}
        end_pids({pid: start_time(pid) for pid in running.values() if pid})
        for label in running:
            self.forget(label)
