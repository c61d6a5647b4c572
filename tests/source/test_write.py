"""Statuses and Events on their way to a faulty API server. By `portolan agent`."""

import os
import threading
import time

import pytest
from kube_help import Agent, World, conditions, endpoint_slice, node, portmap, portmap_class, until

NODES = [f"node-{i:02}" for i in range(12)]


@pytest.fixture
def world(tmp_path):
    w = World(tmp_path, f"kw{os.getpid()}")
    yield w
    w.close()


def started(world):
    world.agent()
    until(lambda: world.row("edge-a"), "the row of edge-a")
    world.server.put(portmap("first"))
    world.accepted("first")


def rows_written(world):
    return [r for r in world.server.asked("PATCH portmapclasses")
            if r["headers"]["Content-Type"] == "application/apply-patch+yaml"]


def test_rows_of_many_agents_all_land(tmp_path):
    world = World(tmp_path, f"kr{os.getpid()}", NODES)
    try:
        for n in NODES:
            world.agent(n)
        until(lambda: all(world.row(n) for n in NODES), "every row", 60)
        world.server.put(portmap_class(*NODES, interface="eth9"))  # all have something to say
        until(lambda: all(not world.row(n)["ready"] for n in NODES), "every row anew", 60)
        rows = world.server.get("portmapclasses", "", "public")["status"]["nodes"]
        assert sorted(r["name"] for r in rows) == NODES
        applies = rows_written(world)
        assert {r["query"]["fieldManager"] for r in applies} == {f"portolan-{n}" for n in NODES}
        assert all(r["query"]["force"] == "true" for r in applies)
    finally:
        world.close()


def test_a_row_that_met_a_crowd_is_sent_again(world):
    world.server.fault("PATCH portmapclasses", lambda r: r.status(409, "Conflict"), times=2)
    world.agent()
    until(lambda: world.row("edge-a"), "the row")
    assert "event=source" not in world.agents[0].log()


def test_nothing_is_written_when_nothing_changed(world):
    started(world)
    until(lambda: "Programmed" in conditions(world.server, "first"), "all said")
    time.sleep(1)  # nothing must happen
    before = len(world.server.requests)
    for i in range(5):
        world.server.put(node("edge-a"))  # as a kubelet's heartbeat
    world.server.put(portmap("last", 5000))
    world.accepted("last")
    written = [r for r in world.server.requests[before:] if r["key"].startswith("PATCH")]
    assert {r["name"] for r in written} == {"last"}


def test_one_status_is_one_write(world):
    """Passes that run before the watch has shown what was written do not write it again."""
    started(world)

    def slow(r):
        until(lambda: world.server.get("nodes", "", "n99"), "more passes")
        return False
    world.server.fault("PATCH portmaps", slow)
    world.server.put(portmap("web", 4000))
    for i in range(100):
        world.server.put(node(f"n{i}", f"10.9.1.{i}"))
    world.accepted("web")
    time.sleep(1)  # nothing must happen
    writes = [r for r in world.server.asked("PATCH portmaps") if r["name"] == "web"]
    assert len(writes) <= 2  # accepted; then programmed, if that was not one


def test_a_conflict_is_decided_again(world):
    started(world)

    def meanwhile(r):
        o = world.server.get("portmaps", "games", "web")
        o["metadata"]["labels"] = {"someone": "else"}
        world.server.put(o)
        return False
    world.server.fault("PATCH portmaps", meanwhile)
    world.server.put(portmap("web", 4000))
    world.accepted("web")
    writes = [r for r in world.server.asked("PATCH portmaps") if r["name"] == "web"]
    versions = [int(r["body"]["metadata"]["resourceVersion"]) for r in writes]
    assert versions == sorted(set(versions)) and len(versions) >= 2
    assert "event=source" not in world.agents[0].log()


@pytest.mark.parametrize("code", [500, 503, 429, 422, 403])
def test_a_refused_status_is_sent_again_and_told_once(world, code):
    started(world)
    refusals = iter(range(3))
    world.server.fault("PATCH portmaps", lambda r: r.name == "web" and
                       next(refusals, None) is not None and r.status(code), times=99)
    world.server.put(portmap("web", 4000))
    world.accepted("web", 30)
    log = world.agents[0].log()
    assert log.count("a status was not taken") == 1, log
    times = [r["time"] for r in world.server.asked("PATCH portmaps") if r["name"] == "web"]
    assert all(b - a > 0.2 for a, b in zip(times[:3], times[1:4]))


@pytest.mark.parametrize("code", [403, 401])
def test_a_refused_status_makes_the_agent_not_ready(world, code):
    started(world)
    agent = world.agents[0]
    until(lambda: agent.ready()[0] == 200, "ready")
    writes = 'portolan_status_writes_total.result="%s"'
    until(lambda: conditions(world.server, "first").get("Programmed", " ")[0] == "True", "all said")
    until(lambda: agent.metric(writes % "written") ==
          len(world.server.asked("PATCH portmaps") + world.server.asked("PATCH portmapclasses")),
          "all are counted")
    assert agent.metric(writes % "failed") == 0
    world.server.fault("PATCH portmaps", lambda r: r.status(code, "Refused", "as the test wants it"),
                       times=99)
    before = agent.metric(writes % "written")
    world.server.put(portmap("web", 4000))
    status, text = until(lambda: (a := agent.ready())[0] == 503 and a, "not ready")
    assert "1 statuses were not taken, first that of PortMap games/web" in text
    assert str(code) in text and "as the test wants it" in text
    assert agent.metric(writes % "failed") >= 1 and agent.metric(writes % "written") == before
    world.server.faults.clear()
    world.accepted("web", 40)
    until(lambda: agent.ready()[0] == 200, "ready again")
    assert agent.log().count("the status is taken now") == 1
    assert agent.metric(writes % "written") > before


def test_an_object_that_went_is_written_no_more(world):
    started(world)

    def went(r):
        if world.server.get("portmaps", "games", "web") and r.name == "web":
            world.server.delete("portmaps", "games", "web")
        return False
    world.server.fault("PATCH portmaps", went, times=99)
    world.server.put(portmap("web", 4000))
    until(lambda: not world.server.get("portmaps", "games", "web"), "it is gone")
    world.server.put(portmap("last", 5000))
    world.accepted("last")
    assert "event=source" not in world.agents[0].log()


def test_one_that_gets_no_answer_holds_up_nothing(world):
    started(world)
    over = threading.Event()
    cut = iter([True])
    world.server.fault("PATCH portmaps", lambda r: over.wait(60) if r.name == "web" else
                       next(cut, False) and r.reset(), times=99)
    world.server.put(portmap("web", 4000))
    world.server.put(portmap("last", 5000))
    try:
        world.accepted("last", 5)
    finally:
        over.set()


def test_two_agents_of_one_node_do_not_fight_without_limit(tmp_path):
    world = World(tmp_path, f"kt{os.getpid()}", ["edge-a", "elsewhere"])
    try:
        world.server.put(portmap_class("edge-a"))
        world.namespaces["elsewhere"].run("ip", "link", "set", "eth0", "down")
        one = world.agent("edge-a")
        until(lambda: world.row("edge-a"), "the row")
        (tmp_path / "elsewhere").mkdir()
        other = Agent(world.namespaces["elsewhere"], tmp_path / "elsewhere", world.config, "edge-a")
        world.agents.append(other)
        says = "another agent writes what node edge-a says of itself; is --node right?"
        told = until(lambda: [a for a in (one, other) if says in a.log()], "one says so", 40)
        times = [r["time"] for r in rows_written(world)]
        assert len(times) < 20 and times[-1] - times[0] > 1.5  # unhindered, a tenth of a second
        assert says in told[0].ready()[1]
        world.agents.remove(other)
        other.stop()
        until(lambda: world.row("edge-a")["ready"], "the row is mended", 40)
    finally:
        world.close()


def test_rows_of_nodes_that_left_go_and_others_stay(tmp_path):
    world = World(tmp_path, f"kl{os.getpid()}", ["edge-a", "edge-b"])
    try:
        world.agent("edge-a")
        world.agent("edge-b")
        until(lambda: world.row("edge-a") and world.row("edge-b"), "both rows")
        world.server.put(portmap_class("edge-a"))
        until(lambda: not world.row("edge-b"), "the row of edge-b is gone")
        assert world.row("edge-a")["ready"]
    finally:
        world.close()


def test_a_storm_of_statuses_is_spread(world):
    """1,000 mappings at once: no more than the bucket has."""
    world.agent()
    until(lambda: world.row("edge-a"), "the row")
    begin = time.monotonic()
    for i in range(250):
        world.server.put(portmap(f"m{i}", 10000 + i))
    until(lambda: all("Accepted" in conditions(world.server, f"m{i}") for i in range(250)),
          "all are answered", 30)
    times = [r["time"] for r in world.server.asked("PATCH portmaps")]
    took = max(times) - begin
    assert len(times) <= 100 + 50 * (took + 1)


# ---- Events ----


def test_a_fault_is_an_event(world):
    started(world)
    world.server.put(portmap("second", 3000))
    event = until(lambda: next((o for (ns, _), o in world.server.objects["events"].items()
                                if o["regarding"]["name"] == "second"), None), "an Event")
    assert event["metadata"]["namespace"] == "games"
    assert event["type"] == "Warning" and event["reason"] == "PortConflict"
    assert "games/first" in event["note"]
    second = world.server.get("portmaps", "games", "second")
    assert event["regarding"] == {"apiVersion": "kuport.wlz.li/v1alpha1", "kind": "PortMap",
                                  "namespace": "games", "name": "second",
                                  "uid": second["metadata"]["uid"]}
    assert event["reportingController"] == "portolan" and event["reportingInstance"] == "edge-a"
    assert event["eventTime"].endswith("Z") and event["action"]


def test_a_class_fault_is_an_event_in_default(world):
    world.server.put(portmap_class("edge-a", interface="eth9"))
    world.agent()
    event = until(lambda: next((o for (ns, _), o in world.server.objects["events"].items()
                                if ns == "default"), None), "an Event")
    assert event["reason"] == "NodeNotReady" and "eth9" in event["note"]


def test_a_fault_that_is_over_at_once_is_no_event(world):
    started(world)
    second = portmap("second", 3000)
    world.server.put(second)
    until(lambda: conditions(world.server, "second").get("Accepted") == ("False", "PortConflict"),
          "the conflict")
    second["spec"]["port"] = 3001
    world.server.put(second)
    world.accepted("second")
    world.server.put(portmap("third", 3000))  # a fault that lasts
    until(lambda: world.server.asked("POST events"), "an Event")
    assert [r["body"]["regarding"]["name"] for r in world.server.asked("POST events")] == ["third"]


def test_a_slot_that_is_recorded_soon_is_no_problem(tmp_path):
    world = World(tmp_path, f"ks{os.getpid()}", ["edge-a", "worker-b"])
    try:
        for i, name in enumerate(world.namespaces):
            address = f"198.51.100.{11 + i}"
            world.namespaces[name].run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
            world.server.put(node(name, address))
        world.server.put(portmap_class("edge-a"))
        world.server.put(endpoint_slice("worker-b"))
        agent = world.agent("edge-a")
        until(lambda: world.row("edge-a"), "the row")
        world.server.put(portmap("web"))
        until(lambda: conditions(world.server, "web").get("Programmed", " ")[0] == "False",
              "there is no slot")
        world.agent("worker-b")
        until(lambda: conditions(world.server, "web").get("Programmed", " ")[0] == "True",
              lambda: f"it is programmed: {conditions(world.server, 'web')}")
        assert "ReturnPathUnavailable" not in agent.log()
    finally:
        world.close()


def test_a_fault_said_again_is_one_series(world):
    started(world)
    world.server.put(portmap("second", 3000))

    def events(verb):
        return [r for r in world.server.asked(f"{verb} events")
                if "second" in (r["name"] or r["body"]["regarding"]["name"])]
    for _ in range(2):
        until(lambda: conditions(world.server, "second").get("Accepted") == ("False", "PortConflict"),
              "the conflict")
        until(lambda: events("POST"), "its Event")
        world.server.delete("portmaps", "games", "first")
        world.accepted("second")
        first = portmap("first")
        first["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
        world.server.put(first)
    until(lambda: conditions(world.server, "second").get("Accepted") == ("False", "PortConflict"),
          "the conflict")
    patch = until(lambda: events("PATCH"), "the series", 80)[0]
    assert len(events("POST")) == 1
    assert patch["body"]["series"]["count"] == 3
    assert patch["time"] - events("POST")[0]["time"] >= 60


def test_events_that_are_refused_hold_up_nothing(world):
    world.server.fault("POST events", lambda r: r.status(403, "Forbidden"), times=99)
    started(world)
    world.server.put(portmap("second", 3000))
    until(lambda: world.server.asked("POST events"), "a try")
    world.server.put(portmap("last", 5000))
    world.accepted("last")
