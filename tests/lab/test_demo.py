"""`make demo`, as a person sees it."""

import os
import re
import subprocess
import time

import pytest

from lab import topology

DEMO = os.path.join(os.path.dirname(topology.DIRECTORY), "demo")


@pytest.fixture
def name():
    name = f"{os.environ.get('LAB_NAME', 't')}{os.getpid()}d"
    yield name
    done = subprocess.run([DEMO, "--down", "--name", name], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "demo: every trace is removed\n"), done.stderr


@pytest.mark.folder_only("the demo brings a folder of its own")
def test_every_row_is_right_and_nothing_is_older_than_the_demo(name, binary):
    start = time.monotonic()
    done = subprocess.run([DEMO, "--name", name], capture_output=True, text=True,
                          env=os.environ | {"PORTOLAN_BIN": binary})
    took = time.monotonic() - start
    assert done.returncode == 0, done.stdout + done.stderr
    ages = [int(age) for age in re.findall(r"^games .* True +True +(\d+)s ", done.stdout, re.M)]
    assert len(ages) == 7 and max(ages) <= took + 1, (ages, took)
