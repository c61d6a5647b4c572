"""The API server restarts, is away for a minute, forgets its history: the kernel keeps what it has."""

import contextlib
import json
import time
import urllib.request

import pytest

from cluster import portmap_path
from kube_help import endpoint_slice, portmap, portmap_class
from monitor import Monitor

ABSENCE = 60
RETRY = 30  # the longest pause between two tries
AWAY = ("Connection", "connection", "SSL", "Could not connect", "refused", "reset", "seen yet")


@pytest.fixture
def world(cluster):
    cluster.nodes(["edge-a", "edge-b"])
    cluster.put(portmap_class("edge-a", "edge-b"))
    cluster.put(endpoint_slice("edge-a"))
    cluster.put(portmap("first"))
    for node in ("edge-a", "edge-b"):
        cluster.agent(node, cluster.config(token=cluster.token()))
    cluster.programmed("first")
    for agent in cluster.agents:
        cluster.until(lambda agent=agent: agent.ready()[0] == 200, "agent that is ready")
    return cluster


@pytest.fixture
def monitors(world):
    """One for each agent's namespace."""
    with contextlib.ExitStack() as stack:
        made = [Monitor(agent.namespace) for agent in world.agents]
        for monitor in made:
            stack.callback(monitor.close)
        yield made


def is_away(agent):
    """It says that it has no API server."""
    code, text = agent.ready()
    return code == 503 and any(word in text for word in AWAY)


def check_added(monitors, port):
    """On the pod's node; no other is concerned, and no other line has changed."""
    lines, none = (monitor.seen() for monitor in monitors)
    print(lines)
    assert lines and all(line.startswith("add element") and f" {port} " in line for line in lines)
    assert none == []


def test_a_restart_of_the_server_is_no_event_for_the_kernel(world, monitors):
    world.api.restart()
    begin = time.monotonic()
    world.put(portmap("web", 4000))
    world.programmed("web", RETRY)
    print(f"served {time.monotonic() - begin:.1f} s after the restart")
    check_added(monitors, 4000)
    assert all("level=error" not in agent.log() for agent in world.agents), world.logs()


def test_a_minute_without_the_server(world, monitors):
    """One agent lives through it, one is restarted in it."""
    begin = time.monotonic()
    stays, restarts = world.agents
    world.api.stop("kube-apiserver")
    try:
        world.until(lambda: is_away(stays), "agent that misses its server")
        restarts.stop()
        restarts = world.agent("edge-b", restarts.config)
        world.until(lambda: is_away(restarts), "new agent that misses its server")
        while time.monotonic() - begin < ABSENCE:
            assert is_away(stays) and is_away(restarts)
            time.sleep(1)  # between two looks
        assert [monitor.seen() for monitor in monitors] == [[], []]
    finally:
        world.api.start("kube-apiserver")
    begin = time.monotonic()
    world.put(portmap("web", 4000))
    world.programmed("web", RETRY + 10)
    print(f"served {time.monotonic() - begin:.1f} s after the return")
    for agent in (stays, restarts):
        world.until(lambda agent=agent: agent.ready()[0] == 200, "agent that is ready", RETRY)
    check_added(monitors, 4000)
    assert stays.log().count("level=error") == 1, stays.log()  # told once, not for each kind


# ---- history ----


def compact(api):
    """etcd forgets all that was before now."""
    def etcd(path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{api.etcd_port}/v3/kv/{path}",
                                         json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
    revision = etcd("range", {"key": "AA=="})["header"]["revision"]
    etcd("compaction", {"revision": revision, "physical": True})


@contextlib.contextmanager
def unwatched(world):
    """Meanwhile no agent is connected; after that, all before it is forgotten."""
    portmaps = "/apis/kuport.wlz.li/v1alpha1/portmaps"
    world.relay.cut()
    version = world.api.call("GET", portmaps)[1]["metadata"]["resourceVersion"]
    yield
    compact(world.api)
    world.api.restart()
    watch = f"{portmaps}?watch=1&timeoutSeconds=1&resourceVersion={version}"
    world.until(lambda: "too old resource version" in str(world.api.call("GET", watch)),
                "server that does not go on from there")
    world.relay.join()


def test_a_new_list_after_compaction_touches_no_rule(world, monitors):
    with unwatched(world):
        for i in range(5):  # history that is then forgotten
            world.put(portmap("other", className="nobody's"))
            world.delete(portmap_path("other"))
    for agent in world.agents:
        world.until(lambda agent=agent: agent.ready()[0] == 200, "agent that is ready", RETRY)
    assert [monitor.seen() for monitor in monitors] == [[], []]


def test_a_new_list_after_compaction_is_told_by_difference(world, monitors):
    world.put(portmap("goes", 5000))
    world.programmed("goes")
    for monitor in monitors:
        monitor.seen()
    with unwatched(world):
        world.delete(portmap_path("goes"))
        world.put(portmap("comes", 6000))
    world.programmed("comes", RETRY)
    lines, none = (monitor.seen() for monitor in monitors)
    assert all(" 5000 " in line or " 6000 " in line for line in lines), lines
    assert any(line.startswith("delete") and " 5000 " in line for line in lines), lines
    assert none == []
