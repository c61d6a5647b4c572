"""Nodes with four links, real BIRD and the agent on each; see lab/links.py.

PORTOLAN_BIN names the program (default build/portolan).
"""

import os
import signal
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

from lab.links import LinksLab  # noqa: E402

AWAY = 2  # seconds after which BIRD's routes are stale
SESSIONS = {"hybrid": 4, "two-tables": 4, "one-table": 4}


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


@pytest.fixture
def make_lab(binary):
    """make_lab(design, **routes) -> a lab with agents and BIRDs whose sessions are up."""
    labs = []

    def make(design, **routes):
        lab = LinksLab(name=f"{os.environ.get('LAB_NAME', 'v')}{os.getpid()}")
        lab.__enter__()
        labs.append(lab)
        lab.design = design
        lab.put_sample(design, **routes)
        for node in lab.nodes:
            lab.start_agent(node, binary, "--bird-away-seconds", str(AWAY))
        for node in lab.nodes:
            lab.start_bird(node)
        lab.wait_sessions(SESSIONS[design])
        return lab
    try:
        yield make
    finally:
        for lab in labs:
            for agent in lab.agents.values():
                agent.check_sanitizer()
            lab.down()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what the agents said."""
    report = (yield).get_result()
    lab = getattr(item, "funcargs", {}).get("lab")
    if lab and report.failed:
        report.sections += [(f"agent on {node}", agent.log()[-4000:])
                            for node, agent in lab.agents.items()]
