"""tools/kernel builds once, whole or not at all. Nothing is compiled here: dpkg, tar and make are ours."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/kernel"
# As the kernel's do: the configuration first, then the program. It counts its runs, takes no line
# that $REFUSED matches, and waits while there is a file `wait`.
MAKE = """
[ "${MAKEFLAGS+set}" ] && exit 9
case "$*" in
*allnoconfig) grep -v "^CONFIG_${REFUSED:-none}=" "$KCONFIG_ALLCONFIG" >.config ;;
*linux) echo built >>"$HOME/built"
    while [ -e "$HOME/wait" ]; do sleep 0.02; done
    [ -z "${BROKEN-}" ] || { echo "net/ipv4/route.c: no such luck"; exit 7; }
    echo kernel >linux ;;
esac
"""


def program(folder, name, script="exit 0"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def start(tmp_path):
    """Starts it with a cache, a home and a PATH of its own."""
    for name, script in (("dpkg-query", "echo installed ${VERSION:-6.12.1-1}"), ("make", MAKE),
                         ("tar", "exit 0"), ("strip", "exit 0")):
        program(tmp_path / "bin", name, script)
    started = []

    def start(*words, **env):
        started.append(subprocess.Popen(
            [TOOL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path),
                 "PORTOLAN_CACHE": str(tmp_path / "cache")} | env))
        return started[-1]
    yield start
    (tmp_path / "wait").unlink(missing_ok=True)
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def run(start):
    """Its exit status, stdout and stderr."""
    def run(*words, **env):
        child = start(*words, **env)
        out, err = child.communicate(timeout=20)
        return child.returncode, out, err
    return run


def built(tmp_path):
    """How many builds began."""
    path = tmp_path / "built"
    return len(path.read_text().split()) if path.exists() else 0


def wait_built(tmp_path, times):
    deadline = time.monotonic() + 10
    while built(tmp_path) < times:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_builds_once_and_says_where(run, tmp_path):
    assert run("--list") == (1, "", "")
    status, path, _ = run(MAKEFLAGS=" -- ALSO=switch")
    assert status == 0 and Path(path.strip()).read_text() == "kernel\n"
    assert path.startswith(f"{tmp_path}/cache/kernel-") and path.count("\n") == 1
    assert run() == (0, path, "") and run("--list") == (0, path, "")
    assert built(tmp_path) == 1
    assert sorted(os.listdir(tmp_path / "cache")) == [Path(path).parent.name, "kernel-lock"]


def test_another_release_of_the_source_is_another_kernel(run, tmp_path):
    old, new = run()[1], run(VERSION="6.12.2-1")[1]
    assert old != new and built(tmp_path) == 2


def test_a_kernel_that_is_named_comes_first(run, tmp_path):
    program(tmp_path, "mine")
    assert run(SECOND_KERNEL=str(tmp_path / "mine")) == (0, f"{tmp_path}/mine\n", "")
    status, out, err = run(SECOND_KERNEL="/nonexistent/linux")
    assert (status, out) == (1, "") and "SECOND_KERNEL: no /nonexistent/linux" in err
    assert built(tmp_path) == 0


def test_a_package_that_is_missing_is_told_plainly(run, tmp_path):
    program(tmp_path / "bin", "dpkg-query", "exit 1")
    for words in ((), ("--list",)):
        assert run(*words) == (1, "", "tools/kernel: the package linux-source-6.12 is not installed; "
                                      "run: tools/deps kernel\n")
    assert not (tmp_path / "cache").exists()


def test_what_the_source_does_not_take_is_named(run, tmp_path):
    status, out, err = run(REFUSED="IP_VS_RR")
    assert (status, out) == (1, "") and "does not take CONFIG_IP_VS_RR=y\n" in err
    assert built(tmp_path) == 0 and os.listdir(tmp_path / "cache") == ["kernel-lock"]


def test_a_build_that_fails_is_shown_and_leaves_nothing(run, tmp_path):
    status, out, err = run(BROKEN="yes")
    assert (status, out) == (1, "")
    assert "no such luck" in err and "linux` failed with status 7" in err
    assert os.listdir(tmp_path / "cache") == ["kernel-lock"]
    assert run()[0] == 0


def test_two_at_a_time_build_once(start, tmp_path):
    (tmp_path / "wait").touch()
    children = [start(), start()]
    wait_built(tmp_path, 1)
    (tmp_path / "wait").unlink()
    paths = {child.communicate(timeout=20)[0] for child in children}
    assert len(paths) == 1 and Path(paths.pop().strip()).exists() and built(tmp_path) == 1


def test_killed_it_leaves_no_kernel_and_the_next_waits_for_its_make(start, run, tmp_path):
    (tmp_path / "wait").touch()
    killed = start()
    wait_built(tmp_path, 1)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert run("--list") == (1, "", "")
    following = start()
    with pytest.raises(subprocess.TimeoutExpired):
        following.wait(0.5)     # nothing may happen for a while
    assert built(tmp_path) == 1
    (tmp_path / "wait").unlink()
    path = following.communicate(timeout=20)[0].strip()
    assert Path(path).read_text() == "kernel\n" and built(tmp_path) == 2
    assert not (tmp_path / "cache/kernel-build").exists()
