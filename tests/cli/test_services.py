"""What `plan` prints of services, taken by nft: the golden cases, in a network namespace of its own."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = os.path.abspath(os.environ.get("PORTOLAN_BIN", ROOT / "build/portolan"))
CASES = sorted((ROOT / "tests/golden").glob("service-*"))
IPVS_CASES = sorted((ROOT / "tests/golden").glob("ipvs-*"))


def options(case):
    words = []
    for line in (case / "options").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name != "show-rules":    # to the goldens' program alone
            words += [f"--{name}"] + ([value] if value else [])
    return words


def plan_text(case, *more):
    hosts = case / "hosts.yaml" if (case / "hosts.yaml").exists() else case.parent / "hosts.yaml"
    return subprocess.run([BIN, "plan", "--node", "edge-a", "--source", f"dir:{case}", "--host", hosts,
                           *options(case), *more], capture_output=True, text=True, timeout=30).stdout


def plan(case):
    return json.loads(plan_text(case, "-o", "json"))


def test_there_are_cases():
    assert len(CASES) > 15 and len(IPVS_CASES) > 15


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_nft_takes_the_ruleset(case):
    """Not of IPv6 affinity: nft 1.0.6 runs out of registers, which the kernel has."""
    ruleset = plan(case)["ruleset"]
    if "update @affinity6" in ruleset:
        assert "sessionAffinity: ClientIP" in (case / "cluster.yaml").read_text()
        return
    done = subprocess.run(["unshare", "-n", "sh", "-c", "nft -f - && nft -j list ruleset"],
                          input=ruleset, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    objects = json.loads(done.stdout)["nftables"]
    held = sum(len(o.get("map", o.get("set", {})).get("elem", [])) for o in objects)
    assert held == ruleset.count("add element ")


def golden(case, kind):
    lines = (case / "expected.edge-a.txt").read_text().splitlines()
    return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} ")]


@pytest.mark.parametrize("case", IPVS_CASES, ids=lambda c: c.name)
def test_ipvs_is_in_text_and_json_and_nftables_only_where_it_is_needed(case):
    whole, text = plan(case), plan_text(case)
    portmap = "portmap" in (case / "options").read_text()
    assert ("ruleset" in whole) == portmap
    assert ("table inet portolan" in text) == portmap
    entries = [f"{group['owner']} {entry}" for group in whole["ipvs"]["groups"]
               for entry in group["entries"]]
    assert entries == golden(case, "ipvs")
    assert [f"{s['path']} = {s['value']}" for s in whole["sysctls"]] == golden(case, "sysctl")
    assert all(f"ipvs {entry}\n" in text for entry in entries)
    for rules in (whole["ipvs"]["iptables"], whole["ipvs"]["ip6tables"]):
        assert rules.startswith("*nat\n:KUBE-SERVICES - [0:0]\n") and rules.endswith("\nCOMMIT\n")
        assert f"--noflush\n{rules}\n" in text


def test_node_address_may_be_given_twice_and_with_commas():
    case = ROOT / "tests/golden/ipvs-node-port"
    servers = [line for line in plan_text(case, "--node-address", "203.0.113.9,192.0.2.1",
                                          "--node-address", "2001:db8:113::9").splitlines()
               if ":30080 rr" in line]
    assert servers == ["ipvs service/a/web TCP 203.0.113.9:30080 rr",
                       "ipvs service/a/web TCP [2001:db8:113::9]:30080 rr"]


def test_node_ports_of_the_mode_ipvs_answer_on_the_primary_address_when_told_so():
    case = ROOT / "tests/golden/ipvs-node-port"
    text = plan_text(case, "--nodeport-addresses", "primary")
    assert text.count(":30080 rr") == 2 and "203.0.113.9:30080" not in text


def test_health_checks_are_in_the_json():
    checks = plan(ROOT / "tests/golden/service-health-check")["healthChecks"]
    assert checks == [
        {"port": 30997, "namespace": "a", "service": "elsewhere", "localEndpoints": 0},
        {"port": 30998, "namespace": "a", "service": "both", "localEndpoints": 2}]
