"""When nothing changes the agent does nothing."""

import os
import shutil
import time

import pytest

from lab import wait_until
from lab.nft_events import NftEvents
from lab.strace import Strace

QUIET = 3.0     # seconds to watch
SETTLED = 4.0   # an Event is made of a fault that has lasted three


@pytest.fixture
def settled(cluster):
    cluster.public({"edge-a": ["enp1s0", "wt0"]})
    for proto in ("tcp", "udp"):
        cluster.expose(f"near-{proto}", ["a1"], proto, 3000, families=(4, 6))
        cluster.expose(f"far-{proto}", ["b1"], proto, 3010, families=(4, 6))
    cluster.service("empty", [], [("main", "TCP", 8080)])
    cluster.portmap("empty", "tcp", 3100)
    cluster.refused_with("empty", "Programmed", "NoReadyEndpoint")
    wait_settled(cluster)
    return cluster


def wakeups(agent):
    """How often the agent has gone to sleep so far."""
    with open(f"/proc/{agent.pid}/status") as file:
        return next(line for line in file if line.startswith("voluntary_ctxt_switches"))


def wait_settled(cluster):
    """A while in which no status and no log changes and no agent wakes up."""
    seen = {"state": None, "since": 0.0}

    def state():
        return (cluster.status.versions(), [(agent.log(), wakeups(agent))
                                        for agent in cluster.agents()])

    def still():
        if (now := state()) != seen["state"]:
            seen.update(state=now, since=time.monotonic())
        return time.monotonic() - seen["since"] > SETTLED

    wait_until(still, 15, lambda: f"the agents to settle: {state()[1]}", interval=0.05)


def test_it_logs_nothing_and_writes_no_status(settled):
    before = settled.status.versions()
    logs = [agent.log() for agent in settled.agents()]
    time.sleep(QUIET)   # nothing may happen for a while
    assert [agent.log() for agent in settled.agents()] == logs
    assert settled.status.versions() == before


@pytest.mark.kube_only("a folder is not asked")
def test_it_asks_the_api_server_nothing(settled):
    """It was told all by its watches, which go on for minutes."""
    def asked():
        return [line for node in settled.lab.nodes()
                for line in node.out("curl", "-s", "127.0.0.1:10266/metrics").splitlines()
                if line.startswith(("portolan_api_requests_total{", "portolan_watch_restarts"))]
    before = asked()
    assert any('verb="WATCH"' in line or 'verb="PATCH"' in line for line in before), before
    time.sleep(QUIET)   # nothing may happen for a while
    assert asked() == before


def test_it_changes_nothing_in_the_kernel(settled, lab):
    """It tells of no change in nftables, and `ip monitor` stays silent."""
    rulesets = NftEvents({node.name: node.ns for node in lab.nodes()})
    watchers = [(node, node.popen("ip", "-ts", "monitor", "link", "address", "route", "rule"))
                for node in lab.nodes()]
    time.sleep(QUIET)
    for _, watcher in watchers:
        watcher.terminate()
    said = [(node.name, text) for node, watcher in watchers if (text := watcher.communicate()[0])]
    assert said == [] and rulesets.stop() == []


def test_it_sends_nothing_to_the_kernel(settled):
    """No netlink message at all, not even a question, as strace sees it."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    for agent in settled.agents():
        with Strace(agent.pid, "sendto,sendmsg,sendmmsg,write",
                    f"{agent.state_dir}/strace") as calls:
            time.sleep(QUIET)
        lines = [line for line in calls.lines
                 if "AF_NETLINK" in line or "nl" in line or "msg" in line]
        assert lines == [], f"{agent.node}: {''.join(lines[:20])}"


@pytest.mark.parametrize("change", [
    pytest.param("touch", marks=pytest.mark.folder_only("only a file can be touched")),
    "rewrite", "label"])
def test_a_change_that_means_nothing_sends_nothing(settled, lab, change):
    """The same content again, and content that no decision depends on."""
    node = lab.node("edge-a")
    ruleset = NftEvents({node.name: node.ns})
    mapping = ("PortMap", "near-tcp", "games")
    if change == "touch":
        os.utime(settled.objects.path(*mapping))
    else:
        settled.objects.put_again(*mapping, labels={"a": "b"} if change == "label" else None)
    time.sleep(0.5)     # nothing may happen for a while
    assert ruleset.stop() == []
