"""Following a faulty API server: watches, relists, waiting. By `portolan agent`, whose answer to what
it sees is a status."""

import json
import os
import subprocess
import time

import pytest
from faulty_server import status
from kube_help import World, conditions, portmap, portmap_class, until


@pytest.fixture
def world(tmp_path, request):
    w = World(tmp_path, f"ks{os.getpid()}")
    yield w
    w.close()


WATCHED = ["nodes", "namespaces", "endpointslices", "portmaps", "portmapclasses"]


def watches(world, plural):
    return [r["query"] for r in world.server.asked(f"WATCH {plural}")]


def settled(world):
    """All is listed, and a watch of each kind runs."""
    world.agent()
    world.server.put(portmap("first"))
    world.accepted("first")
    until(lambda: all(watches(world, p) for p in WATCHED), "watches of all kinds")


# ---- the plain course ----


def test_a_change_is_seen_and_answered(world):
    settled(world)
    world.server.put(portmap("web", 4000))
    world.accepted("web", 2)
    until(lambda: conditions(world.server, "web").get("Programmed") == ("True", "AllNodesReady"),
          "programmed", 5)
    assert world.agents[0].ready()[0] == 200


def test_only_what_is_needed_is_watched(world):
    settled(world)
    keys = {r["key"] for r in world.server.requests}
    assert keys <= {f"{v} {p}" for v in ("LIST", "WATCH") for p in WATCHED} | {
        "PATCH portmaps", "PATCH portmapclasses", "POST events"}
    for plural in WATCHED:
        for query in watches(world, plural):
            assert query.get("allowWatchBookmarks") == "true"
            assert 300 <= int(query["timeoutSeconds"]) <= 600
            selector = "kubernetes.io/service-name" if plural == "endpointslices" else None
            assert query.get("labelSelector") == selector


def test_a_deleted_object_goes(world):
    settled(world)
    world.server.put(portmap("second", 3000))
    until(lambda: conditions(world.server, "second").get("Accepted") == ("False", "PortConflict"),
          "the port is taken")
    world.server.delete("portmaps", "games", "first")
    world.accepted("second", 3)


def test_the_state_comes_by_a_watch_where_the_server_can(world):
    world.server.streams = True
    settled(world)
    assert world.server.asked("LIST portmaps") == []
    assert watches(world, "portmaps")[0]["sendInitialEvents"] == "true"
    assert watches(world, "portmaps")[0]["resourceVersionMatch"] == "NotOlderThan"
    world.server.put(portmap("web", 4000))
    world.accepted("web", 2)


@pytest.mark.parametrize("first", [False, True])
def test_a_state_the_server_cannot_stream_is_listed(world, first):
    """As one whose etcd does not report progress; `first`: some of the state did come."""
    world.server.streams = True

    def fails(r):
        if r.query.get("sendInitialEvents") != "true":
            return False
        r.begin()
        for o in list(world.server.objects[r.plural].values())[:first]:
            r.chunk({"type": "ADDED", "object": o})
        r.chunk({"type": "ERROR", "object": status(500, "InternalError",
                                                   "RequestWatchProgress is disabled")})
        return r.end()
    world.server.fault("WATCH", fails, times=99)
    settled(world)
    for plural in WATCHED:
        asked = [q for q in watches(world, plural) if "sendInitialEvents" in q]
        assert len(asked) == 1 and len(world.server.asked(f"LIST {plural}")) == 1
    assert "level=error" not in world.agents[0].log(), world.agents[0].log()


def test_a_stream_cut_before_its_end_is_no_state(world):
    """Nothing may be called gone, or complete, by half a state."""
    world.server.streams = True

    def cut(r):
        r.begin()
        r.chunk({"type": "ADDED", "object": world.server.get("nodes", "", "edge-a")})
        r.reset()
    world.server.fault("WATCH nodes", cut)
    settled(world)
    assert len(watches(world, "nodes")) >= 2
    assert "resourceVersion" not in watches(world, "nodes")[1]


# ---- ends of watches ----


def test_a_watch_that_ends_is_resumed_where_it_was(world):
    world.server.watch_seconds = 2
    settled(world)
    lists = len(world.server.asked("LIST portmaps"))
    for i in range(3):
        n = len(watches(world, "portmaps"))
        until(lambda: len(watches(world, "portmaps")) > n, "the next watch")
        world.server.put(portmap(f"m{i}", 4000 + i))
        world.accepted(f"m{i}")
    assert len(world.server.asked("LIST portmaps")) == lists
    versions = [int(q["resourceVersion"]) for q in watches(world, "portmaps")
                if "resourceVersion" in q]
    assert versions == sorted(versions) and versions[-1] > versions[0]


def test_a_bookmark_moves_the_place_to_resume_from(world):
    def act(r):
        r.begin()
        r.chunk(world.server.bookmark("portmaps", 987654))
        r.end()
    world.server.fault("WATCH portmaps", lambda r: False)  # the one that asks for the state
    world.server.fault("WATCH portmaps", act)
    world.server.fault("WATCH portmaps", lambda r: r.status(500), times=1)
    world.agent()
    until(lambda: any(q.get("resourceVersion") == "987654" for q in watches(world, "portmaps")),
          "a watch from the bookmark")


def test_410_lists_again_and_tells_only_the_difference(world):
    settled(world)
    until(lambda: world.agents[0].metric("portolan_passes_total"), "passes")
    world.server.forget()
    until(lambda: len(world.server.asked("LIST portmaps")) == 2, "a second list")
    world.server.put(portmap("web", 4000))
    world.accepted("web")
    assert conditions(world.server, "first")["Accepted"] == ("True", "Valid")
    log = world.agents[0].log()
    assert log.count("event=applied") == 2, log  # the first mapping; the second


def test_410_in_a_loop_slows_down(world):
    settled(world)
    world.server.fault("WATCH portmaps", lambda r: r.status(410, "Expired"), times=99)
    begin = time.monotonic()
    world.server.forget()
    until(lambda: len(world.server.asked("LIST portmaps")) >= 4, "lists")
    took = time.monotonic() - begin
    assert took > 1.5, f"four lists in {took} s"
    world.server.faults.clear()
    world.server.put(portmap("web", 4000))
    world.accepted("web")


@pytest.mark.parametrize("code, lists_again", [(410, True), (500, False), (429, False)])
def test_an_error_event(world, code, lists_again):
    settled(world)
    lists = len(world.server.asked("LIST portmaps"))

    def act(r):
        world.server.closing = False
        r.begin()
        r.chunk({"type": "ERROR", "object": status(code, "X", "as the test wants it",
                                                   details={"retryAfterSeconds": 1})})
        r.end()
    world.server.fault("WATCH portmaps", act)
    world.server.closing = True  # ends the watches that run
    until(lambda: not world.server.faults[0]["times"], "the error event was sent")
    world.server.put(portmap("web", 4000))
    world.accepted("web")
    assert (len(world.server.asked("LIST portmaps")) > lists) == lists_again


def test_watches_that_end_at_once_slow_down(world):
    """Each counts once: two of them are no reason to list again."""
    ended = []

    def at_once(r):
        if "resourceVersion" not in r.query:
            return False  # the one that asks for the state
        ended.append(time.monotonic())
        r.begin()
        return r.end()
    world.server.fault("WATCH namespaces", at_once, times=3)
    settled(world)
    until(lambda: len(watches(world, "namespaces")) == 4, "a watch that stays")
    assert ended[1] - ended[0] > 0.2 and len(world.server.asked("LIST namespaces")) == 1


def through_one_watch(world, *lines, end=True):
    """The next watch of portmaps gets these lines; they may have versions up to 200."""
    world.server.version = 200
    def act(r):
        world.server.closing = False
        r.begin()
        for line in lines:
            r.chunk(line)
        if end:
            r.end()
        else:
            r.reset()
    world.server.fault("WATCH portmaps", act)
    world.server.closing = True  # ends the watches that run, until this one
    until(lambda: not world.server.faults[-1]["times"], "the lines were sent")


def answered(world, name):
    """The agent has seen it, whether the server has it or not."""
    until(lambda: any(r["name"] == name for r in world.server.asked("PATCH portmaps")),
          f"a status of {name}")


def test_a_bad_object_breaks_no_watch(world):
    settled(world)
    good, bad = portmap("web", 4000), portmap("bad", port="x")
    bad["metadata"]["resourceVersion"] = "150"
    good["metadata"]["resourceVersion"] = "151"
    huge = json.loads(json.dumps(bad))
    huge["zzz"] = "x" * (5 << 20)
    through_one_watch(world, {"type": "ADDED", "object": bad}, {"type": "ADDED", "object": huge},
                      {"type": "ADDED", "object": good})
    answered(world, "web")
    log = world.agents[0].log()
    assert "games/bad: spec.port is" in log and "larger than 4 MiB" in log
    assert len(world.server.asked("LIST portmaps")) == 1


def test_an_object_that_cannot_be_read_at_the_start_takes_nothing_away(world):
    settled(world)
    until(lambda: world.agents[0].ready()[0] == 200, "ready")
    namespace = world.namespaces["edge-a"]
    before = namespace.run("nft", "-s", "list", "table", "inet", "portolan")
    world.agents[0].stop()
    bad = portmap_class("edge-a")
    bad["spec"]["nodes"] = ["edge-a"]
    good = world.server.get("portmapclasses", "", "public")
    world.server.put(bad)
    agent = world.agent()
    status, text = until(lambda: (a := agent.ready())[0] == 503 and "public" in a[1] and a, "held")
    assert "PortMapClass public: spec.nodes is a list" in text and "mend it, or delete it" in text
    assert 'portolan_objects_refused{resource="portmapclasses"} 1' in namespace.fetch("/metrics")[1]
    assert namespace.run("nft", "-s", "list", "table", "inet", "portolan") == before
    world.server.put(good)
    until(lambda: agent.ready()[0] == 200, "ready again")
    assert agent.metric("portolan_objects_refused") == 0


def test_a_bad_mapping_at_the_start_costs_itself_only(world):
    settled(world)
    world.agents[0].stop()
    world.server.put(portmap("bad", port="x"))
    agent = world.agent()
    until(lambda: agent.ready()[0] == 200, "ready")
    assert agent.metric('portolan_objects_refused.resource="portmaps"') == 1


def test_a_line_in_many_pieces_is_one_event(world):
    settled(world)
    o = portmap("web", 4000)
    o["metadata"]["resourceVersion"] = "150"
    line = json.dumps({"type": "ADDED", "object": o}).encode() + b"\n"
    through_one_watch(world, *[line[i:i + 3] for i in range(0, len(line), 3)])
    answered(world, "web")


@pytest.mark.parametrize("line", [b'{"type": "ADDED", "object": {"metad\n', b"hello\n", b"{}\n"])
def test_a_line_that_is_no_event_lists_again(world, line):
    settled(world)
    through_one_watch(world, line)
    until(lambda: len(world.server.asked("LIST portmaps")) == 2, "a second list")
    world.server.put(portmap("web", 4000))
    world.accepted("web")


def test_half_a_line_at_the_end_is_dropped(world):
    settled(world)
    through_one_watch(world, b'{"type": "DELETED", "object": {"metadata": {"name": "first", '
                      b'"namespace": "games"}}}', end=False)
    world.server.put(portmap("web", 4000))
    world.accepted("web")
    assert conditions(world.server, "first")["Accepted"] == ("True", "Valid")
    assert len(world.server.asked("LIST portmaps")) == 1


def test_an_older_version_of_an_object_is_not_taken(world):
    settled(world)
    old = world.server.get("portmaps", "games", "first")
    old["metadata"]["resourceVersion"] = "1"
    old["spec"]["className"] = "other"
    through_one_watch(world, {"type": "MODIFIED", "object": old})
    world.server.put(portmap("web", 4000))
    world.accepted("web")
    assert conditions(world.server, "first")["Accepted"] == ("True", "Valid")


# ---- away ----


def test_a_server_that_is_away_at_the_start(world):
    world.server.put(portmap("web"))
    world.server.stop()
    agent = world.agent()
    code, text = until(lambda: agent.ready() if agent.ready()[0] else None, "its HTTP answers")
    assert code == 503 and "portmaps" in text
    until(lambda: "event=source" in agent.log(), "it says so")
    assert agent.log().count("event=source") == 1, agent.log()  # once, not for each kind
    world.restart_server()
    world.accepted("web", 30)
    until(lambda: agent.ready()[0] == 200, "ready")


def test_a_server_that_goes_and_comes_back(world):
    settled(world)
    world.server.stop()
    until(lambda: world.agents[0].ready()[0] == 503, "not ready")
    world.restart_server()
    world.server.put(portmap("web", 4000))
    world.accepted("web", 30)
    until(lambda: world.agents[0].ready()[0] == 200, "ready again")


def test_after_a_long_absence_watches_go_on_where_they_were(world):
    """A thousand nodes that list everything at once would be what ends a server that just came."""
    settled(world)
    lists = {p: len(world.server.asked(f"LIST {p}")) for p in WATCHED}
    world.server.stop()
    tries = r'portolan_api_requests_total\{verb="WATCH",code="0"'
    until(lambda: world.agents[0].metric(tries) >= 6 * len(WATCHED), "many tries", 40)
    world.restart_server()
    world.server.put(portmap("web", 4000))
    world.accepted("web", 40)
    until(lambda: world.agents[0].ready()[0] == 200, "ready again", 40)
    assert {p: len(world.server.asked(f"LIST {p}")) for p in WATCHED} == lists


def test_a_crd_that_comes_later(world):
    world.server.installed = False
    agent = world.agent()
    until(lambda: len(world.server.asked("WATCH portmaps")) >= 3, "it asks now and then")
    assert agent.log().count("CustomResourceDefinition") == 2, agent.log()  # once for each kind
    assert "level=error" not in agent.log()
    assert agent.ready()[0] == 503
    world.server.installed = True
    world.server.put(portmap("web"))
    world.accepted("web", 40)


def test_a_dead_path_is_noticed_within_30_seconds(world):
    settled(world)
    until(lambda: world.agents[0].ready()[0] == 200, "ready")
    port = world.server.port

    def nft(rules):
        subprocess.run(["ip", "netns", "exec", world.agents[0].namespace.name, "nft", "-f", "-"], input=rules,
                       text=True, check=True)
    begin = time.monotonic()
    nft(f"table ip cut {{ chain in {{ type filter hook input priority 0; tcp dport {port} drop; "
        f"tcp sport {port} drop; }}; }}")
    until(lambda: world.agents[0].ready()[0] == 503, "not ready", 45)
    assert time.monotonic() - begin < 40  # 30 to notice, then one more try that fails
    nft("delete table ip cut")
    world.server.put(portmap("web", 4000))
    world.accepted("web", 60)


# ---- credentials ----


def with_token_file(world, text):
    """The kubeconfig names a file that holds it; the file's path."""
    token = world.folder / "token"
    token.write_text(text)
    config = json.loads(open(world.config).read())
    config["users"][0]["user"] = {"tokenFile": "token"}
    open(world.config, "w").write(json.dumps(config))
    return token


def test_a_token_is_read_again_before_it_is_refused(world):
    token = with_token_file(world, "one")
    world.server.tokens = ["one", "two"]
    world.server.watch_seconds = 1  # each watch shows which one is in use
    settled(world)
    token.write_text("two")
    until(lambda: world.server.requests[-1]["headers"]["Authorization"] == "Bearer two",
          "the new token", 70)


def test_a_new_token_is_used_at_once_when_the_old_one_is_refused(world):
    token = with_token_file(world, "one")
    world.server.tokens = ["one"]
    settled(world)
    token.write_text("two")
    world.server.tokens = ["two"]
    world.server.closing = True  # watches end
    until(lambda: any("two" in r["headers"].get("Authorization", "") for r in world.server.requests),
          "the new token")
    world.server.closing = False
    world.server.put(portmap("web", 4000))
    world.accepted("web")
