"""lab/secondkernel/run: a command in another kernel, and nothing of it left."""

import os
import platform
import signal
import subprocess
import time
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[2] / "lab/secondkernel/run"


@pytest.fixture
def run(tmp_path):
    """Runs it; its folders of its own are below tmp_path, and none may be left."""
    env = os.environ | {"TMPDIR": str(tmp_path)}

    def run(*words, more={}, **options):
        return subprocess.run([RUN, *words], capture_output=True, text=True, env=env | more,
                              **options)
    run.env = env
    yield run
    assert list(tmp_path.glob("secondkernel.*")) == []
    assert processes_of(tmp_path) == []


def processes_of(folder):
    """The kernels whose job is below a folder, and what they run; without those that have ended."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"job={folder}".encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:     # gone meanwhile
            pass
    return found


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_command_runs_in_another_kernel_over_the_same_files(run, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    script = ('uname -r; pwd; echo "$WORD"; id -u; echo late >&2; '
              'touch /etc/portolan-was-here; echo inside >"$1/file"; exit 7')
    done = run("--write", kept, "sh", "-c", script, "sh", kept, cwd="/etc",
               more={"WORD": "it's two  words"})
    lines = done.stdout.splitlines()
    assert done.returncode == 7, done
    assert lines[0] != platform.release()
    assert lines[1:] == ["/etc", "it's two  words", "0", "late"], lines
    assert (kept / "file").read_text() == "inside\n"
    assert not os.path.exists("/etc/portolan-was-here")


def test_it_ends_in_time(run):
    began = time.monotonic()
    done = run("--timeout", "5", "sleep", "1000")
    assert done.returncode == 124 and time.monotonic() - began < 15


def test_a_kernel_that_fails_says_so(run):
    done = run("--timeout", "60", "sh", "-c", "echo c >/proc/sysrq-trigger; sleep 60")
    assert done.returncode == 125 and "sysrq triggered crash" in done.stderr, done


def test_a_process_that_is_left_over_does_not_hold_it(run):
    done = run("--timeout", "60", "sh", "-c", "sleep 1000 & echo done")
    assert (done.returncode, done.stdout) == (0, "done\n"), done


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 130), (signal.SIGINT, 130),
                                            (signal.SIGKILL, -signal.SIGKILL)])
def test_told_to_end_it_takes_everything_along(run, tmp_path, number, status):
    child = subprocess.Popen([RUN, "sh", "-c", "echo up; sleep 1000"], env=run.env,
                             stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout.readline() == b"up\n"
        assert processes_of(tmp_path)
        child.send_signal(number)
        assert child.wait(10) == status
        wait_until(lambda: not processes_of(tmp_path) and not list(tmp_path.iterdir()))
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_what_cannot_be_run_is_said(run, tmp_path):
    assert "no such folder" in run("--write", tmp_path / "none", "true").stderr
    assert "no command" in run().stderr
    done = run("true", more={"SECOND_KERNEL": "/nonexistent"})
    assert done.returncode == 2 and "user-mode-linux" in done.stderr
