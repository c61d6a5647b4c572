"""One lab for the whole run; for each test an empty cluster and fresh agents.

PORTOLAN_BIN names the program (default build/portolan), so that the same tests run with a
sanitizer build. LAB_SOURCE says where the objects are: in a `folder` for each test (the default),
or in a real API server for all (`kube`), where agents have the rights of the shipped roles alone.
"""

import os
import signal
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

from lab import Folder, Kube, Lab, wait_until  # noqa: E402
from lb_world import MODES, an_lb_world  # noqa: E402
from proxy_world import FLAGS, a_proxy_world  # noqa: E402
from world import a_world, agent_logs, leftovers, remove_leftovers  # noqa: E402


SOURCE = os.environ.get("LAB_SOURCE", "folder")
SOURCES = ("folder", "kube")


def pytest_configure(config):
    """A run that is told to end takes its lab down."""
    if SOURCE not in SOURCES:
        raise pytest.UsageError(f"LAB_SOURCE={SOURCE}: one of {', '.join(SOURCES)}")
    for source in SOURCES:
        config.addinivalue_line("markers", f"{source}_only(reason): there is nothing to ask with "
                                           "another LAB_SOURCE")
    config.addinivalue_line("markers", "overlay_only(mode, reason): there is nothing to ask with "
                                       "another of lb_world.MODES")
    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupt)


def other_overlay(item):
    marker = item.get_closest_marker("overlay_only")
    return marker and item.callspec.params["lb_of_module"] != marker.args[0]


def pytest_collection_modifyitems(config, items):
    other = [item for item in items
             if other_overlay(item) or any(item.get_closest_marker(f"{source}_only")
                                           for source in SOURCES if source != SOURCE)]
    config.hook.pytest_deselected(items=other)
    items[:] = [item for item in items if item not in other]
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


@pytest.fixture(scope="session")
def api_server(tmp_path_factory):
    """With what is shipped installed; None when objects are in a folder."""
    if SOURCE != "kube":
        yield None
        return
    sys.path.append(os.path.join(ROOT, "tests/api"))
    from apiserver import ApiServer
    with ApiServer(tmp_path_factory.mktemp("api")) as api:
        for folder in ("deploy/crds", "deploy"):
            api.kubectl("apply", "--server-side", "-k", os.path.join(ROOT, folder))
        for plural in ("portmaps", "portmapclasses"):
            path = f"/apis/kuport.wlz.li/v1alpha1/{plural}"
            wait_until(lambda: api.call("GET", path)[0] == 200, 60, f"{path} to be served")
        yield api


@pytest.fixture(scope="session")
def kube(lab, api_server):
    """An API server in reach of the nodes; None without one."""
    if not api_server:
        return None
    api = api_server
    token = api.account_token("portolan-system", "portolan", seconds=12 * 3600)
    lab.connect(api.port)
    return Kube(api.port, api.file("ca.crt"), api.admin_token,
                api.write_kubeconfig("agent", token=token))


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


@pytest.fixture(scope="session")
def proxy_lab(kube):
    """The cluster of the service proxy's tests."""
    with Lab("cluster", name=f"{os.environ.get('LAB_NAME', 't')}{os.getpid()}p") as lab:
        if kube:
            lab.connect(kube.port)
        yield lab


@pytest.fixture(scope="session")
def weave_lab(kube):
    """Three nodes whose pods share an L2 overlay."""
    with Lab("weave", name=f"{os.environ.get('LAB_NAME', 't')}{os.getpid()}w") as lab:
        if kube:
            lab.connect(kube.port)
        yield lab


@pytest.fixture(scope="module")
def proxy_of_module(proxy_lab, binary, source_at, tmp_path_factory):
    with a_proxy_world(proxy_lab, binary, source_at(tmp_path_factory.mktemp("proxy"))) as world:
        yield world


@pytest.fixture
def proxy(proxy_of_module):
    """node-a with the service proxy, the usual flags and no Service; see proxy_world.py."""
    world = proxy_of_module
    world.lab.flush_conntrack()
    yield world
    world.clear()
    world.agent.check_sanitizer()
    if not world.agent.pid:
        world.start()
    elif world.flags != FLAGS:
        world.restart()


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


@pytest.fixture(params=[4, 6], ids=["v4", "v6"])
def family(request):
    return request.param


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what the agents said."""
    report = (yield).get_result()
    fixtures = getattr(item, "funcargs", {})
    lab = getattr(fixtures.get("lb"), "lab", None) or fixtures.get("proxy_lab") or \
        fixtures.get("lab")
    if lab and report.failed and report.when != "teardown":
        report.sections += agent_logs(lab)
