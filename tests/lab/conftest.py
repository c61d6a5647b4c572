"""One lab for the whole run; for each test a fresh manifest folder and fresh agents.

PORTOLAN_BIN names the program (default build/portolan), so that the same tests run with a
sanitizer build.
"""

import os
import signal
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

from lab import Lab  # noqa: E402
from world import a_world, agent_logs, leftovers, remove_leftovers  # noqa: E402


def pytest_configure():
    """A run that is told to end takes its lab down."""
    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupt)


def pytest_collection_modifyitems(items):
    if os.geteuid() != 0:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="the lab needs root"))


@pytest.fixture(scope="session")
def binary():
    path = os.environ.get("PORTOLAN_BIN", os.path.join(ROOT, "build", "portolan"))
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is not built")
    return os.path.abspath(path)


@pytest.fixture(scope="session")
def lab():
    with Lab("three-nodes", name=f"{os.environ.get('LAB_NAME', 't')}{os.getpid()}") as lab:
        yield lab


@pytest.fixture
def quiet_nodes(lab):
    """No agent runs and nothing of one is left, before and after."""
    remove_leftovers(lab)
    lab.flush_conntrack()
    yield
    assert leftovers(lab) == {}


@pytest.fixture
def world(lab, binary, tmp_path):
    """A cluster of three nodes without agents yet; see world.py."""
    with a_world(lab, binary, str(tmp_path / "source")) as world:
        yield world


@pytest.fixture
def cluster(world):
    """A cluster with an agent on every node."""
    return world.start_agents()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what the agents said."""
    report = (yield).get_result()
    lab = getattr(item, "funcargs", {}).get("lab")
    if lab and report.failed and report.when != "teardown":
        report.sections += agent_logs(lab)
