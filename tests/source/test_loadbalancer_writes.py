"""Addresses that nodes hold, by a faulty API server: annotations, Services' statuses and Events on their
way there."""

import json
import os
import time

import pytest
from kube_help import Agent, Namespace, World, node, until

CLASS = "reweave.levk.dev/node-address"
ADDRESSES = "reweave.levk.dev/addresses"
OPTIONS = ("--features", "loadbalancer", "--overlay", "weave")
EDGE_A = "198.51.100.10"  # each namespace's eth0


@pytest.fixture
def world(tmp_path):
    w = World(tmp_path, f"kb{os.getpid()}")
    yield w
    w.close()


def held(name="web", address=EDGE_A, **spec):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "games"},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": CLASS, "loadBalancerIP": address,
                     "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]} | spec}


def started(world):
    agent = world.agent("edge-a", *OPTIONS)
    until(lambda: published(world) == EDGE_A, lambda: f"the addresses\n{agent.log()}")
    return agent


def published(world):
    return world.server.get("nodes", "", "edge-a")["metadata"].get("annotations", {}).get(ADDRESSES)


def shown(world, name="web"):
    status = world.server.get("services", "games", name).get("status", {})
    return [i["ip"] for i in status.get("loadBalancer", {}).get("ingress", [])]


def shows(world, address=EDGE_A, name="web"):
    until(lambda: shown(world, name) == [address],
          lambda: f"status of {name}: {shown(world, name)}\n{world.agents[0].log()}")


def told(world, name=None):
    """Names of the Services that Events were made for."""
    posts = [r["body"]["regarding"] for r in world.server.asked("POST events")]
    return [p["name"] for p in posts if p["kind"] == "Service" and name in (None, p["name"])]


def test_a_conflict_is_decided_again(world):
    started(world)

    def meanwhile(r):
        o = world.server.get("services", "games", "web")
        o["metadata"]["labels"] = {"someone": "else"}
        world.server.put(o)
        return False
    world.server.fault("PATCH services", meanwhile)
    world.server.put(held())
    shows(world)
    versions = [int(r["body"]["metadata"]["resourceVersion"])
                for r in world.server.asked("PATCH services")]
    assert len(versions) == 2 and versions[0] < versions[1]
    assert "event=source" not in world.agents[0].log()


def test_one_status_is_one_write(world):
    """Passes that run before the watch has shown what was written do not write it again."""
    started(world)

    def slow(r):
        until(lambda: world.server.get("nodes", "", "n19"), "more passes")
        return False
    world.server.fault("PATCH services", slow)
    world.server.put(held())
    for i in range(20):
        world.server.put(node(f"n{i}", f"10.9.1.{i}"))
    shows(world)
    time.sleep(1)  # nothing must happen
    assert len(world.server.asked("PATCH services")) == 1
    assert len(world.server.asked("PATCH nodes")) == 1


def test_what_a_node_says_comes_before_many_statuses(world):
    started(world)
    for i in range(300):
        world.server.put(held(f"w{i}", ports=[{"port": 1000 + i, "protocol": "TCP"}]))
    until(lambda: len(world.server.asked("PATCH services")) > 110, "more than the burst")
    start = time.monotonic()
    world.namespaces["edge-a"].run("ip", "addr", "add", "203.0.113.9/32", "dev", "eth0")
    until(lambda: "203.0.113.9" in published(world), "the address")
    took = time.monotonic() - start
    assert len(world.server.asked("PATCH services")) < 300, "the statuses are no longer on their way"
    assert took < 1
    until(lambda: all(shown(world, f"w{i}") for i in range(300)), "all statuses", 30)


def test_rights_that_lack_are_told_and_make_it_not_ready(world):
    world.server.fault("PATCH nodes", lambda r: r.status(403, "Forbidden", "no rights"), times=3)
    agent = world.agent("edge-a", *OPTIONS)
    status, text = until(lambda: (a := agent.ready())[0] == 503 and "no rights" in a[1] and a,
                         "not ready")
    assert "1 statuses were not taken, first that of Node edge-a" in text
    until(lambda: published(world) == EDGE_A, "the addresses", 30)
    until(lambda: agent.ready()[0] == 200, "ready")
    assert agent.log().count("a status was not taken") == 1, agent.log()


OVERLAY = "reweave.levk.dev/weave"


def published_before(world):
    """As an agent that had the feature has left the Node."""
    left = world.server.get("nodes", "", "edge-a") or node("edge-a", "10.9.0.1")
    world.server.put(left | {"metadata": {
        "name": "edge-a", "annotations": {ADDRESSES: EDGE_A, OVERLAY: "10.32.0.1,02:00:00:00:00:01",
                                          "example.org/other": "stays"}}})


def test_without_the_feature_what_was_published_is_taken_back(world):
    published_before(world)
    agent = world.agent()
    left = until(lambda: not published(world) and world.server.get("nodes", "", "edge-a"), agent.log)
    assert left["metadata"]["annotations"] == {"example.org/other": "stays"}
    until(lambda: agent.ready()[0] == 200, "ready")
    assert len(world.server.asked("PATCH nodes")) == 1


@pytest.mark.parametrize("status, reason", [(403, "Forbidden"), (422, "Invalid")])
def test_without_the_right_to_it_it_stays_which_is_told_once(world, status, reason):
    """The rights may lack, or a policy refuse it. Another Node of that name is asked for anew."""
    published_before(world)
    world.server.fault("PATCH nodes", lambda r: r.status(status, reason, "no rights"), times=1)
    agent = world.agent()
    until(lambda: "it stays as it is" in agent.log(), agent.log)
    until(lambda: agent.ready()[0] == 200, lambda: agent.ready()[1])
    for i in range(3):  # each is a pass, which asks for the same again
        passes = agent.metric("portolan_passes_total")
        world.server.put(node(f"n{i}", f"10.9.1.{i}"))
        until(lambda: agent.metric("portolan_passes_total") > passes, agent.log)
    assert len(world.server.asked("PATCH nodes")) == 1
    assert agent.log().count("no rights") == 1, agent.log()
    assert agent.ready()[0] == 200 and agent.metric(
        r"portolan_status_writes_total.*failed") == 0
    assert published(world) == EDGE_A
    world.server.delete("nodes", "", "edge-a")
    published_before(world)
    until(lambda: not published(world), agent.log)


def test_two_agents_of_one_node_do_not_fight_without_limit(tmp_path):
    world = World(tmp_path, f"kf{os.getpid()}", ["edge-a", "elsewhere"])
    try:
        world.namespaces["elsewhere"].run("ip", "addr", "add", "198.51.100.99/24", "dev", "eth0")
        one = started(world)
        (tmp_path / "elsewhere").mkdir()
        other = Agent(world.namespaces["elsewhere"], tmp_path / "elsewhere", world.config, "edge-a",
                      *OPTIONS)
        world.agents.append(other)
        says = "another agent writes what node edge-a says of itself; is --node right?"
        told = until(lambda: [a for a in (one, other) if says in a.log()], "one says so", 40)
        times = [r["time"] for r in world.server.asked("PATCH nodes")]
        assert len(times) < 20 and times[-1] - times[0] > 1.5
        assert says in told[0].ready()[1]
        world.agents.remove(other)
        other.stop()
        until(lambda: published(world) == EDGE_A, "its own addresses", 40)
    finally:
        world.close()


def test_two_agents_of_one_node_do_not_fight_over_a_folder(tmp_path):
    """The same two, whose objects are in a folder that both machines share."""
    names = [f"kd{os.getpid()}-{i}" for i in range(2)]
    namespaces, agents = [], []
    manifests, record = tmp_path / "objects", tmp_path / "objects/.status/nodes/edge-a.json"
    manifests.mkdir()
    (manifests / "node.json").write_text(json.dumps(node("edge-a")))
    says = "another agent writes what node edge-a says of itself; is --node right?"

    def written():
        o = json.loads(record.read_text()) if record.exists() else {"metadata": {}}
        return (int(o["metadata"].get("resourceVersion", 0)),
                o["metadata"].get("annotations", {}).get(ADDRESSES))
    try:
        for i, name in enumerate(names):
            namespaces.append(Namespace(name, f"198.51.100.{10 + i}"))
            (tmp_path / f"{i}").mkdir()
            agents.append(Agent(namespaces[i], tmp_path / f"{i}", "", "edge-a", "--source",
                                f"dir:{manifests}", *OPTIONS))
            until(lambda: written()[1] == f"198.51.100.{10 + i}", "its addresses")
        told = until(lambda: [a for a in agents if says in a.log()], "one says so", 40)
        assert written()[0] < 20
        assert says in told[0].ready()[1]
        agents.pop().stop()
        until(lambda: written()[1] == EDGE_A, "its own addresses", 40)
        namespaces[0].run("ip", "addr", "add", "203.0.113.9/32", "dev", "eth0")
        until(lambda: written()[1] == f"{EDGE_A},203.0.113.9", "what is new is written at once", 2)
    finally:
        for a in agents:
            a.stop()
        for n in namespaces:
            n.close()


# ---- Events ----


def test_a_problem_is_an_event_once(world):
    started(world)
    world.server.put(held(address="192.0.2.1"))
    until(lambda: told(world), "an Event")
    event = next(r["body"] for r in world.server.asked("POST events")
                 if r["body"]["regarding"]["kind"] == "Service")
    web = world.server.get("services", "games", "web")
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Service", "namespace": "games",
                                  "name": "web", "uid": web["metadata"]["uid"]}
    assert (event["type"], event["reason"]) == ("Warning", "NoHolder")
    assert event["note"].startswith('spec.loadBalancerIP "192.0.2.1": ')
    for i in range(10):  # passes in which it stands
        world.server.put(node(f"n{i}", f"10.9.1.{i}"))
    time.sleep(62)  # nothing must happen: a series would be counted after a minute
    assert told(world) == ["web"] and not world.server.asked("PATCH events")


def test_what_is_over_at_once_is_no_event(world):
    started(world)
    world.server.put(held(address="192.0.2.1"))
    until(lambda: "NoHolder" in world.agents[0].log(), "the problem")
    world.server.put(held(address=EDGE_A))
    shows(world)
    world.server.put(held("gone", "192.0.2.1"))
    until(lambda: world.agents[0].log().count("NoHolder") > 1, "the problem of another")
    world.server.delete("services", "games", "gone")
    world.server.put(held("lasts", "192.0.2.1"))
    until(lambda: told(world, "lasts"), "an Event")
    assert told(world) == ["lasts"]


def test_of_one_object_a_few_problems_are_told(world):
    """In the log and by Events; /metrics counts them all."""
    agent = started(world)
    world.server.put(held())
    shows(world)
    world.server.put(held(loadBalancerSourceRanges=[f"bad{i}" for i in range(5000)]))
    until(lambda: agent.metric('portolan_problems.*InvalidCIDR') == 5000, "the problems")
    until(lambda: len(told(world)) >= 11, lambda: f"Events {told(world)}")
    lines = [line for line in agent.log().splitlines()
             if "event=problem" in line and "loadBalancerSourceRanges" in line]
    assert len(lines) == 11, lines
    assert "one of 4990 more problems of this object" in lines[-1]
    world.server.put(held("later", "192.0.2.1"))
    until(lambda: told(world, "later"), "an Event of another")
    assert len(told(world)) == 12


def test_many_problems_are_told_in_turn(world):
    """More than are remembered of what is over, and each but once."""
    started(world)
    n = 300
    for i in range(n):
        world.server.put(held(f"w{i}", "192.0.2.1"))
    until(lambda: len(told(world)) >= 30, "Events", 40)
    for i in range(10):
        world.server.put(node(f"n{i}", f"10.9.1.{i}"))
    until(lambda: len(told(world)) >= 35, "more Events", 40)
    assert len(set(told(world))) == len(told(world))
    assert told(world)[0] == "w0"
    times = [r["time"] for r in world.server.asked("POST events")]
    assert len(times) <= 25 + (times[-1] - times[0]) + 2
    assert not world.server.asked("PATCH events")
