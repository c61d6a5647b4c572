"""Tests that need a kernel with what the development kernel lacks: IPVS, dummy, ipset, VLANs.

They run in the guest of lab/secondkernel, all in one pytest, over the same lab as tests/lab:

  lab/secondkernel/run --timeout 600 /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/vm -k NAME

On a machine whose own kernel has all that they run without it. There is one processor and a fork
costs 20 to 60 ms: dial from Python, ask a command once for everything.
"""

import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests/lab")]

MODULES = ("ip_vs", "dummy", "8021q")


def pytest_configure(config):
    if subprocess.run(["modprobe", "-qa", *MODULES], check=False).returncode != 0:
        raise pytest.UsageError(f"this kernel has not all of {', '.join(MODULES)}: run it in "
                                "lab/secondkernel/run, see tests/vm/conftest.py")


@pytest.fixture(scope="session")
def binary():
    path = os.environ.get("PORTOLAN_BIN", os.path.join(ROOT, "build", "portolan"))
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is not built")
    return os.path.abspath(path)
