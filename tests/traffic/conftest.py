"""Nodes with four links, real BIRD and the agent on each; see lab/links.py.

PORTOLAN_BIN names the program (default build/portolan). LAB_SOURCE says where the agents have their
objects: in a folder, or in a real API server (`kube`) with the rights of the shipped roles alone.
"""

import os
import signal
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

from lab.links import KubeFolder, LinksLab  # noqa: E402
from lab.netns import wait_until  # noqa: E402

SOURCE = os.environ.get("LAB_SOURCE", "folder")
AWAY = 2  # seconds after which BIRD's routes are stale
SESSIONS = {"hybrid": 4, "two-tables": 4, "one-table": 4}


def pytest_configure(config):
    """A run that is told to end takes its lab down."""
    config.addinivalue_line("markers", "folder_only(why): left out with an API server")

    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupt)


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items
                if not (SOURCE == "kube" and item.get_closest_marker("folder_only"))]
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
def kube(tmp_path_factory):
    """An API server with what is shipped installed, for all labs; None without one."""
    if SOURCE != "kube":
        yield None
        return
    sys.path.append(os.path.join(ROOT, "tests/api"))
    from apiserver import ApiServer
    with ApiServer(tmp_path_factory.mktemp("api")) as api:
        for folder in ("deploy/crds", "deploy"):
            api.kubectl("apply", "--server-side", "-k", os.path.join(ROOT, folder))
        path = "/apis/net.renner.uno/v1alpha1/trafficclasses"
        wait_until(lambda: api.call("GET", path)[0] == 200, 60, f"{path} to be served")
        token = api.account_token("portolan-system", "portolan", seconds=12 * 3600)
        yield KubeFolder(api.port, api.file("ca.crt"), api.admin_token,
                         api.write_kubeconfig("agent", token=token))


def start(lab, binary, design, *flags, features="trafficclass", **routes):
    """The design's classes, then agents and BIRDs, until their sessions are up."""
    lab.design = design
    lab.classes = lab.put_sample(design, **routes)
    for node in lab.nodes:
        lab.start_agent(node, binary, "--bird-away-seconds", str(AWAY), *flags,
                        features=features)
    for node in lab.nodes:
        lab.start_bird(node)
    lab.wait_sessions(SESSIONS[design])
    for agent in lab.agents.values():  # which may have met BIRD after that
        agent.wait_log("event=bird_configured")


@pytest.fixture
def make_lab(binary, kube):
    """make_lab(design, **routes) -> a lab with agents and BIRDs whose sessions are up."""
    labs = []

    def make(design, **routes):
        if kube:
            kube.clear()
        lab = LinksLab(name=f"{os.environ.get('LAB_NAME', 'v')}{os.getpid()}", kube=kube)
        lab.__enter__()
        labs.append(lab)
        start(lab, binary, design, **routes)
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
