"""One API server for the whole run; see apiserver.py. Tests keep apart by namespaces of their own."""

import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from apiserver import ROOT, ApiServer, wait_for  # noqa: E402
from cluster import Cluster  # noqa: E402
from manifests import DEPLOY, NAMESPACE, kustomized  # noqa: E402


def pytest_configure():
    """A run that is told to end stops its servers."""
    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupt)


@pytest.fixture(scope="session")
def binary():
    return os.path.abspath(os.environ.get("PORTOLAN_BIN", ROOT / "build/portolan"))


@pytest.fixture(scope="session")
def api(tmp_path_factory):
    """A bare API server."""
    with ApiServer(tmp_path_factory.mktemp("api")) as api:
        yield api


@pytest.fixture(scope="session")
def crds(api):
    """The API server, with Portolan's CRDs."""
    api.kubectl("apply", "--server-side", "-k", ROOT / "deploy/crds")
    for name in ("portmaps", "portmapclasses"):
        api.kubectl("wait", "--for=condition=Established", f"crd/{name}.kuport.wlz.li")
        wait_for(lambda: api.call("GET", f"/apis/kuport.wlz.li/v1alpha1/{name}")[0] == 200,
                 f"API for {name}")
    return api


@pytest.fixture(scope="module")
def installed(crds):
    """deploy/ as it stands, applied; taken away again so that others may install."""
    crds.kubectl("apply", "--server-side", "-k", DEPLOY)
    yield crds
    for kind, name in kustomized(crds):
        if kind != "Namespace":  # nothing here would finish its deletion
            crds.kubectl("delete", kind, name, "-n", NAMESPACE)


@pytest.fixture
def cluster(installed, tmp_path):
    """No nodes yet; agents have the rights of deploy/ by cluster.token()."""
    for kind in ("portmaps", "portmapclasses"):  # what other tests left would take ports
        installed.kubectl("delete", kind, "--all", "-A")
    with Cluster(installed, tmp_path, f"ka{os.getpid()}") as cluster:
        cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "games"}})
        yield cluster


@pytest.fixture
def namespace(api, request):
    """The name of a fresh namespace."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**10}-{os.getpid()}"
    status, answer = api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert status == 201, answer
    return name


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what the servers said."""
    report = (yield).get_result()
    api = getattr(item, "funcargs", {}).get("api") or getattr(item, "funcargs", {}).get("crds")
    if api and report.failed and report.when != "teardown":
        report.sections += [(f"{name}.log", api.log(name)) for name in ("etcd", "kube-apiserver")]
