"""Nodes with four links, real BIRD and the agent on each; see lab/links.py, and lab/fixtures.py for
what the environment says."""

import os
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

from lab import fixtures  # noqa: E402
from lab.fixtures import binary  # noqa: E402, F401
from lab.links import KubeFolder, LinksLab  # noqa: E402
from lab.netns import wait_until  # noqa: E402

AWAY = 2  # seconds after which BIRD's routes are stale
SESSIONS = {"hybrid": 4, "two-tables": 4, "one-table": 4}
ROUTES = {"hybrid": 2, "two-tables": 2, "one-table": 8}    # of BIRD on a node, by family


def pytest_configure(config):
    fixtures.configure(config)


def pytest_collection_modifyitems(config, items):
    fixtures.leave_out(config, items, fixtures.of_another_source)


@pytest.fixture(scope="session")
def kube(tmp_path_factory):
    """An API server with what is shipped installed, for all labs; None without one."""
    with fixtures.an_api_server(tmp_path_factory.mktemp("api"),
                                "net.renner.uno/v1alpha1/trafficclasses") as api:
        yield KubeFolder(*fixtures.agents_access(api)) if api else None


def routes_of_birds(lab):
    return [sum("proto bird" in route for route in lab.routes(node, "all", family))
            for node in lab.nodes for family in (4, 6)]


def start(lab, binary, design, *flags, features="trafficclass", **routes):
    """The design's classes, then agents and BIRDs, until their sessions and routes are there."""
    lab.design = design
    lab.classes = lab.put_sample(design, **routes)
    for node in lab.nodes:
        lab.start_agent(node, binary, "--bird-away-seconds", str(AWAY), *flags,
                        features=features)
    for node in lab.nodes:
        lab.start_bird(node)
    lab.wait_sessions(SESSIONS[design])
    wait_until(lambda: all(count >= ROUTES[design] for count in routes_of_birds(lab)), 30,
               lambda: f"{ROUTES[design]} routes of each BIRD: {routes_of_birds(lab)}")
    for agent in lab.agents.values():  # which may have met BIRD after that
        agent.wait_log("event=bird_configured")


@pytest.fixture
def make_lab(binary, kube):
    """make_lab(design, **routes) -> a lab with agents and BIRDs whose sessions and routes are there."""
    labs = []

    def make(design, **routes):
        if kube:
            kube.clear()
        lab = LinksLab(name=fixtures.instance_name(), kube=kube)
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
