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
# Deadlines are there to end what hangs. Here all there is shares one slow processor.
os.environ.setdefault("LAB_PATIENCE", "5")
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests/lab")]
pytest.register_assert_rewrite("proxy_world", "services_world", "ipvs_world", *(
    f"test_serviceproxy_{name}" for name in ("cluster_ip", "external", "selection", "conntrack",
                                             "health", "kinds")))

from lab import Folder, Lab, fixtures  # noqa: E402
from lab.fixtures import binary, family  # noqa: E402, F401
from ipvs_world import NO_RULES, an_ipvs_world, restore_rules  # noqa: E402
from proxy_world import one_test  # noqa: E402

MODULES = ("ip_vs", "dummy", "8021q", "br_netfilter")
SIGNS = ("/proc/net/ip_vs", "/proc/net/vlan", "/proc/sys/net/bridge")


def pytest_configure(config):
    fixtures.configure(config)
    config.addinivalue_line("markers", "nftables: needs a kernel that has nftables as well")
    config.addinivalue_line("markers", "no_nftables: needs one that has not")
    subprocess.run(["modprobe", "-qa", *MODULES], check=False)      # they may be built in
    if missing := [sign for sign in SIGNS if not os.path.exists(sign)]:
        raise pytest.UsageError(f"this kernel has no {', '.join(missing)}: run it in "
                                "lab/secondkernel/run, see tests/vm/conftest.py")


def pytest_collection_modifyitems(config, items):
    """What needs nftables beside IPVS is asked where there are both."""
    lacks = subprocess.run(["nft", "--check", "add table inet probe"], capture_output=True).returncode
    marker = "nftables" if lacks else "no_nftables"
    fixtures.leave_out(config, items, lambda item: item.get_closest_marker(marker))


@pytest.fixture(scope="session")
def proxy_lab():
    with Lab("cluster", name=fixtures.instance_name("v")) as lab:
        restore_rules(lab.ns("node-a"), NO_RULES, NO_RULES)     # tables come with their first use
        yield lab


@pytest.fixture(scope="module")
def proxy_of_module(proxy_lab, binary, tmp_path_factory):
    source = Folder(str(tmp_path_factory.mktemp("proxy")))
    with an_ipvs_world(proxy_lab, binary, source) as world:
        yield world


@pytest.fixture
def proxy(proxy_of_module):
    """node-a with the service proxy on IPVS, the usual flags and no Service; see ipvs_world.py."""
    yield from one_test(proxy_of_module)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what the agent said."""
    report = (yield).get_result()
    world = getattr(item, "funcargs", {}).get("proxy_of_module")
    if world and report.failed and report.when != "teardown":
        report.sections.append(("agent", world.agent.log()[-8000:]))
