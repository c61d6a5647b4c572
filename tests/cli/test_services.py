"""What `plan` prints of services, taken by nft: the golden cases, in a network namespace of its own."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = os.path.abspath(os.environ.get("PORTOLAN_BIN", ROOT / "build/portolan"))
CASES = sorted((ROOT / "tests/golden").glob("service-*"))


def options(case):
    words = []
    for line in (case / "options").read_text().splitlines():
        name, _, value = line.partition(" ")
        words += [f"--{name}"] + ([value] if value else [])
    return words


def plan(case):
    done = subprocess.run([BIN, "plan", "--node", "edge-a", "-o", "json", "--source",
                           f"dir:{case}", "--host", case / "hosts.yaml", *options(case)],
                          capture_output=True, text=True, timeout=30)
    return json.loads(done.stdout)


def test_there_are_cases():
    assert len(CASES) > 15


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


def test_health_checks_are_in_the_json():
    checks = plan(ROOT / "tests/golden/service-health-check")["healthChecks"]
    assert checks == [
        {"port": 30997, "namespace": "a", "service": "elsewhere", "localEndpoints": 0},
        {"port": 30998, "namespace": "a", "service": "both", "localEndpoints": 2}]
