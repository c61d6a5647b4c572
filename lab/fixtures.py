"""What the suites that use a lab have in common; their conftest.py import it.

PORTOLAN_BIN names the program (default build/portolan), so that the same tests run with a sanitizer
build. LAB_SOURCE says where the objects are: in a `folder` (the default), or in a real API server
(`kube`), where agents have the rights of the shipped roles alone. LAB_NAME begins the name of every
instance, to which the process id is added: runs do not meet.
"""

import contextlib
import os
import signal
import sys

import pytest

from .netns import wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = ("folder", "kube")
SOURCE = os.environ.get("LAB_SOURCE", SOURCES[0])


def instance_name(suffix=""):
    return f"{os.environ.get('LAB_NAME', 't')}{os.getpid()}{suffix}"


@pytest.fixture(scope="session")
def binary():
    path = os.environ.get("PORTOLAN_BIN", os.path.join(ROOT, "build", "portolan"))
    if not os.access(path, os.X_OK):
        pytest.skip(f"{path} is not built")
    return os.path.abspath(path)


@pytest.fixture(params=[4, 6], ids=["v4", "v6"])
def family(request):
    return request.param


def configure(config):
    """The markers of the sources; and a run that is told to end takes its lab down."""
    if SOURCE not in SOURCES:
        raise pytest.UsageError(f"LAB_SOURCE={SOURCE}: one of {', '.join(SOURCES)}")
    for source in SOURCES:
        config.addinivalue_line("markers", f"{source}_only(reason): there is nothing to ask with "
                                           "another LAB_SOURCE")

    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupt)


def of_another_source(item):
    return any(item.get_closest_marker(f"{source}_only") for source in SOURCES if source != SOURCE)


def leave_out(config, items, when):
    """Takes the items for which `when(item)` out of the run; none runs without root."""
    other = [item for item in items if when(item)]
    if other:
        config.hook.pytest_deselected(items=other)
    items[:] = [item for item in items if item not in other]
    if os.geteuid() != 0:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="the lab needs root"))


@contextlib.contextmanager
def an_api_server(directory, *kinds):
    """An ApiServer with what is shipped installed, once our `kinds` (group and version/plural) are
    served; None where objects are in a folder."""
    if SOURCE != "kube":
        yield None
        return
    sys.path.append(os.path.join(ROOT, "tests/api"))
    from apiserver import ApiServer
    with ApiServer(directory) as api:
        for folder in ("deploy/crds", "deploy"):
            api.kubectl("apply", "--server-side", "-k", os.path.join(ROOT, folder))
        for path in (f"/apis/{kind}" for kind in kinds):
            wait_until(lambda: api.call("GET", path)[0] == 200, 60, f"{path} to be served")
        yield api


def agents_access(api):
    """Arguments of a KubeSource: its own requests are an admin's, those of agents the shipped
    account's."""
    token = api.account_token("portolan-system", "portolan", seconds=12 * 3600)
    return (api.port, api.file("ca.crt"), api.admin_token,
            api.write_kubeconfig("agent", token=token))
