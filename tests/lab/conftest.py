"""One lab for the whole run; for each test an empty cluster and fresh agents. See lab/fixtures.py for
what the environment says: with LAB_SOURCE=folder each test has a folder of its own."""

import contextlib
import os
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

from lab import Folder, Kube, Lab, fixtures  # noqa: E402
from lab.fixtures import binary, family  # noqa: E402, F401
from lb_world import MODES, an_lb_world  # noqa: E402
from proxy_world import a_proxy_world, one_test  # noqa: E402
from world import a_world, agent_logs, leftovers, remove_leftovers  # noqa: E402


def pytest_configure(config):
    fixtures.configure(config)
    config.addinivalue_line("markers", "overlay_only(mode, reason): there is nothing to ask with "
                                       "another of lb_world.MODES")


def other_overlay(item):
    marker = item.get_closest_marker("overlay_only")
    return marker and item.callspec.params["lb_of_module"] != marker.args[0]


def pytest_collection_modifyitems(config, items):
    fixtures.leave_out(config, items,
                       lambda item: other_overlay(item) or fixtures.of_another_source(item))


@pytest.fixture(scope="session")
def lab():
    with Lab("three-nodes", name=fixtures.instance_name()) as lab:
        yield lab


@pytest.fixture(scope="session")
def api_server(tmp_path_factory):
    """With what is shipped installed; None when objects are in a folder."""
    with fixtures.an_api_server(tmp_path_factory.mktemp("api"), "kuport.wlz.li/v1alpha1/portmaps",
                                "kuport.wlz.li/v1alpha1/portmapclasses") as api:
        yield api


@pytest.fixture(scope="session")
def kube(lab, api_server):
    """An API server in reach of the nodes; None without one."""
    if not api_server:
        return None
    lab.connect(api_server.port)
    return Kube(*fixtures.agents_access(api_server))


@pytest.fixture(scope="session")
def source_at(kube):
    """source_at(directory): an empty cluster; the directory matters to a manifest folder only."""
    return lambda directory: kube or Folder(str(directory))


@pytest.fixture
def quiet_nodes(lab):
    """No agent runs and nothing of one is left, before and after."""
    remove_leftovers(lab)
    lab.flush_conntrack()
    yield
    assert leftovers(lab) == {}


@pytest.fixture
def world(lab, binary, source_at, tmp_path):
    """A cluster of three nodes without agents yet; see world.py."""
    with a_world(lab, binary, source_at(tmp_path / "source")) as world:
        yield world


@pytest.fixture
def cluster(world):
    """A cluster with an agent on every node."""
    return world.start_agents()


@pytest.fixture
def serving(cluster):
    """Near and far mappings for tcp and udp, IPv4 and IPv6: ports 3000 (a1) and 3010 (b1)."""
    cluster.public()
    for proto in ("tcp", "udp"):
        cluster.expose(f"near-{proto}", ["a1"], proto, 3000, families=(4, 6))
        cluster.expose(f"far-{proto}", ["b1"], proto, 3010, families=(4, 6))
    return cluster


@contextlib.contextmanager
def a_connected_lab(topology, suffix, kube):
    with Lab(topology, name=fixtures.instance_name(suffix)) as lab:
        if kube:
            lab.connect(kube.port)
        yield lab


@pytest.fixture(scope="session")
def proxy_lab(kube):
    """The cluster of the service proxy's tests."""
    with a_connected_lab("cluster", "p", kube) as lab:
        yield lab


@pytest.fixture(scope="session")
def weave_lab(kube):
    """Three nodes whose pods share an L2 overlay."""
    with a_connected_lab("weave", "w", kube) as lab:
        yield lab


@pytest.fixture(scope="module")
def proxy_of_module(proxy_lab, binary, source_at, tmp_path_factory):
    with a_proxy_world(proxy_lab, binary, source_at(tmp_path_factory.mktemp("proxy"))) as world:
        yield world


@pytest.fixture
def proxy(proxy_of_module):
    """node-a with the service proxy, the usual flags and no Service; see proxy_world.py."""
    yield from one_test(proxy_of_module)


@pytest.fixture(scope="module", params=MODES)
def lb_of_module(request, binary, source_at, api_server, tmp_path_factory):
    """On each topology in turn."""
    if api_server:
        rights = os.path.join(ROOT, "deploy/loadbalancer.yaml")
        api_server.kubectl("apply", "--server-side", "-f", rights)
    mode = MODES[request.param]
    lab = request.getfixturevalue("weave_lab" if mode.topology == "weave" else "lab")
    source = source_at(tmp_path_factory.mktemp("balancer"))
    with an_lb_world(lab, mode, binary, source) as world:
        yield world


@pytest.fixture
def lb(lb_of_module):
    """Agents with --features loadbalancer on all nodes and no Service; see lb_world.py."""
    world = lb_of_module
    world.ensure_running()
    world.lab.flush_conntrack()
    yield world
    world.clear()
    for agent in world.agents():
        agent.check_sanitizer()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what the agents said."""
    report = (yield).get_result()
    fixtures = getattr(item, "funcargs", {})
    lab = getattr(fixtures.get("lb"), "lab", None) or fixtures.get("proxy_lab") or \
        fixtures.get("lab")
    if lab and report.failed and report.when != "teardown":
        report.sections += agent_logs(lab)
