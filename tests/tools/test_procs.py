"""lab/procs: processes are ended by pid and start time, also those that end by themselves."""

import json
import os
import signal
import subprocess

import pytest

from lab import procs, wait_until


@pytest.fixture
def processes(tmp_path):
    processes = procs.Processes(str(tmp_path))
    yield processes
    processes.stop_all()


@pytest.mark.parametrize("start", [None, 1])
def test_one_that_has_ended_is_not_waited_for(start):
    """It ended between the look that saw it run and the one for its start time."""
    child = subprocess.Popen(["true"])
    child.wait()
    procs.end_pids({child.pid: start}, timeout=0.1)


def test_killed_and_started_again_at_once(processes):
    for _ in range(100):
        child = processes.start("sleep", ["sleep", "60"])
        os.kill(child.pid, 9)
    processes.stop("sleep")
    assert processes.labels() == []


def test_one_that_ended_before_it_was_recorded_does_not_run(processes, tmp_path):
    child = processes.start("true", ["true"])
    child.wait()
    (tmp_path / "true.json").write_text(json.dumps({"pid": child.pid, "start": None, "argv": []}))
    assert procs.Processes(str(tmp_path)).running("true") is None


def test_who_has_a_handler_for_a_signal(processes):
    child = processes.start("deaf", ["sleep", "60"])
    assert not procs.catches(child.pid, signal.SIGTERM)
    child = processes.start("hears", ["sh", "-c", "trap exit TERM; read line"],
                            stdin=subprocess.PIPE)
    wait_until(lambda: procs.catches(child.pid, signal.SIGTERM), 5, "the shell to listen")
    assert not procs.catches(child.pid, signal.SIGHUP)
    child.kill()
    child.communicate()
    assert not procs.catches(child.pid, signal.SIGTERM)
