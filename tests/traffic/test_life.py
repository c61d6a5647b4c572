"""Classes come and go: in which order, what stays, and what helps a BIRD that does not start."""

import contextlib
import os
import re
import shutil
import signal
import socket

import pytest

from lab import procs
from lab.links import WORLD
from lab.netns import wait_until
from test_links import FAMILIES, UNSEPARATED, bird_routes, expect, wait_conditions
from test_streams import Stream

PODS = ("10.244.", "fd00:244:")


def state(lab, node):
    return [line for f in FAMILIES for line in lab.rules(node, f) + lab.routes(node, 47, f)
            if "proto bird" not in line]


def empty(lab):
    return not any(lab.rules(n, f) or lab.routes(n, table, f)
                   for n in lab.nodes for f in FAMILIES for table in (47, 48))


def delete_all(lab, names):
    for name in names:
        lab.folder.delete("TrafficClass", name)
    wait_until(lambda: empty(lab), 15, "empty tables")


def astray(lab):
    """What the router received on its way from one pod to another."""
    return {key: n for key, n in lab.counted("gw").items()
            if key[1].startswith(PODS) and key[2].startswith(PODS)}


# ---- order -----------------------------------------------------------------------------------


def test_rules_come_after_bird_has_its_configuration(make_lab):
    """BIRD is stopped in the middle: routes are there, rules are not."""
    lab = make_lab("hybrid")
    agent, bird = lab.agents["k8s-1"], lab.bird_pid("k8s-1")
    class_ = lab.folder.get("TrafficClass", "pods")
    agent.clear_log()
    delete_all(lab, ["pods"])
    agent.wait_log("event=bird_configured sessions=0")
    os.kill(bird, signal.SIGSTOP)
    try:
        agent.clear_log()
        lab.folder.put(class_)
        wait_until(lambda: os.path.exists(lab.conf("k8s-1") + ".new"), 5, "a question to BIRD")
        agent.wait_log("event=applied")
        assert [r for r in lab.routes("k8s-1", 47, 4) if r.startswith("default")]
        assert lab.rules("k8s-1", 4) == lab.rules("k8s-1", 6) == []
        os.kill(agent.pid, signal.SIGHUP)  # nor does an audit bring them
        agent.wait_log("event=audit")
        assert lab.rules("k8s-1", 4) == lab.rules("k8s-1", 6) == []
    finally:
        os.kill(bird, signal.SIGCONT)
    wait_until(lambda: lab.rules("k8s-1", 4) and lab.rules("k8s-1", 6), 10, "rules")
    wait_until(lambda: re.search("event=bird_configured.*event=applied", agent.log(), re.DOTALL), 5,
               lambda: f"one after the other:\n{agent.log()}")


def test_routes_of_a_bird_that_died_before_its_class_are_flushed(make_lab):
    lab = make_lab("hybrid")
    wait_until(lambda: len(bird_routes(lab, "k8s-1")) == 4, 10, "routes of BIRD's")
    lab.run("k8s-1", "kill", "-9", str(lab.bird_pid("k8s-1")))
    lab.folder.delete("TrafficClass", "pods")
    wait_until(lambda: not lab.rules("k8s-1", 4), 5, "no rules")
    wait_until(lambda: not bird_routes(lab, "k8s-1"), 10, "no routes of BIRD's")


def test_the_kernel_sees_routes_before_rules_and_rules_gone_before_routes(make_lab):
    lab = make_lab("hybrid")
    class_ = lab.folder.get("TrafficClass", "pods")
    delete_all(lab, ["pods"])
    log = os.path.join(lab.state, "monitor.log")
    lab.processes.start("monitor", ["ip", "-o", "monitor", "route", "rule"], ns=lab.ns("k8s-1"),
                        log=log)

    def events():
        """(gone, rule) of what is the agent's."""
        return [(line.startswith("Deleted"), " lookup " in line)
                for line in open(log) if "proto 107" in line]

    def hears():
        lab.run("k8s-1", "ip", "route", "replace", "192.0.2.0/24", "dev", "pod0", "table", "99")
        return "192.0.2.0/24" in open(log).read()
    wait_until(hears, 5, "a monitor that hears")
    start = len(events())
    lab.folder.put(class_)
    wait_until(lambda: lab.rules("k8s-1", 4) and lab.rules("k8s-1", 6), 10, "rules")
    delete_all(lab, ["pods"])
    wait_until(lambda: len(events()[start:]) % 2 == 0 and (True, False) in events()[start:], 5,
               "both halves")
    seen = events()[start:]
    kinds = [key for i, key in enumerate(seen) if i == 0 or seen[i - 1] != key]
    assert kinds == [(False, False), (False, True), (True, True), (True, False)], seen


def test_what_guards_a_default_goes_after_it(make_lab):
    """Two tables: without the rules to main before it, traffic between pods takes the default."""
    lab = make_lab("two-tables")
    log = os.path.join(lab.state, "monitor.log")
    lab.processes.start("monitor", ["ip", "-o", "monitor", "rule"], ns=lab.ns("k8s-1"), log=log)

    def hears():
        lab.run("k8s-1", "ip", "rule", "add", "pref", "32000", "lookup", "99")
        lab.run("k8s-1", "ip", "rule", "del", "pref", "32000")
        return "32000" in open(log).read()
    wait_until(hears, 5, "a monitor that hears")
    delete_all(lab, lab.classes)
    gone = {991: [], 1001: [], 990: [], 1000: []}

    def seen():
        for n, line in enumerate(open(log)):
            found = re.match(r"Deleted (\d+):", line)
            if found and int(found[1]) in gone:
                gone[int(found[1])].append(n)
        return all(gone.values())
    wait_until(seen, 5, "the ends of all")
    assert max(gone[1001]) < min(gone[991]), open(log).read()
    assert max(gone[1000]) < min(gone[990]), open(log).read()


def test_a_bird_that_hangs_is_as_one_that_is_gone(make_lab):
    lab = make_lab("hybrid")
    wait_until(lambda: len(bird_routes(lab, "k8s-1")) == 4, 10, "routes of BIRD's")
    bird = lab.bird_pid("k8s-1")
    os.kill(bird, signal.SIGSTOP)
    try:
        lab.agents["k8s-1"].wait_log("event=bird_away cause=\"BIRD does not answer\"", 20)
        wait_until(lambda: not bird_routes(lab, "k8s-1"), 10, "no routes of BIRD's")
        for f in FAMILIES:
            expect(lab, "p1a", lab.pod(2, "a", f), UNSEPARATED)
    finally:
        os.kill(bird, signal.SIGCONT)
    lab.wait_sessions(4)
    for f in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", f), {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}})


def test_a_bird_without_neighbours_that_hangs_is_away(make_lab):
    lab = make_lab("hybrid")
    for node in ("k8s-2", "k8s-3"):
        lab.folder.delete("Node", node)
    agent = lab.agents["k8s-1"]
    agent.wait_log("event=bird_configured sessions=0", 10)
    os.kill(lab.bird_pid("k8s-1"), signal.SIGSTOP)
    try:
        agent.wait_log("event=bird_away cause=\"BIRD does not answer\"", 20)
    finally:
        os.kill(lab.bird_pid("k8s-1"), signal.SIGCONT)


def test_a_bird_that_hangs_up_does_not_end_the_agent(make_lab):
    """As one does that dies while it is asked something."""
    lab = make_lab("hybrid")
    agent = lab.agents["k8s-1"]
    lab.stop_bird("k8s-1")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(lab.control("k8s-1"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(lab.control("k8s-1"))
        listener.listen()
        listener.settimeout(10)
        agent.clear_log()
        peer, _ = listener.accept()
        with peer:
            peer.shutdown(socket.SHUT_RD)
            peer.sendall(b"0001 BIRD 2.0.12 ready.\n")
            agent.wait_log("event=bird_up")
        agent.wait_log("event=bird_away")
    os.unlink(lab.control("k8s-1"))
    lab.start_bird("k8s-1")
    lab.wait_sessions(4)
    assert agent.stop() == 0


def test_a_configuration_is_written_as_soon_as_it_can_be(make_lab, binary):
    """BIRD is well all the time, so nothing but the folder says when."""
    lab = make_lab("hybrid")
    agent, in_the_way = lab.agents["k8s-1"], lab.conf("k8s-1") + ".new"
    os.mkdir(in_the_way)
    agent.clear_log()
    lab.put_node("k8s-4")
    agent.wait_log("event=bird_refused text=", 10)
    wait_conditions(lab, binary, Programmed=("False", "ConfigurationRefused"))
    said = agent.log().count("event=bird_refused")
    os.kill(agent.pid, signal.SIGHUP)
    agent.wait_log("event=audit")
    assert (said, agent.log().count("event=bird_refused")) == (1, 1)
    os.rmdir(in_the_way)
    agent.wait_log("event=bird_configured sessions=6", 10)
    assert "10.48.0.4" in open(lab.conf("k8s-1")).read()


def test_rules_that_are_there_stay_while_bird_is_asked(make_lab):
    """A node joins, so that rules change, while BIRD does not answer: none goes before another is
    there."""
    lab = make_lab("hybrid", fallThrough=["PodCIDRs", "AttachedNetworks"])
    bird, before = lab.bird_pid("k8s-1"), lab.rules("k8s-1", 4)
    lab.agents["k8s-1"].wait_log("event=bird_configured sessions=4")
    os.kill(bird, signal.SIGSTOP)
    try:
        lab.agents["k8s-1"].clear_log()
        lab.put_node("k8s-4")
        lab.agents["k8s-1"].wait_log("event=applied")
        assert lab.rules("k8s-1", 4) == before
    finally:
        os.kill(bird, signal.SIGCONT)
    wait_until(lambda: any("10.244.4.0/24" in r for r in lab.rules("k8s-1", 4)), 10, "the new rule")


def test_without_bird_a_class_comes_up(make_lab):
    lab = make_lab("hybrid")
    class_ = lab.folder.get("TrafficClass", "pods")
    for node in lab.nodes:
        lab.stop_bird(node)
    delete_all(lab, ["pods"])
    lab.folder.put(class_)
    for f in FAMILIES:
        wait_until(lambda: all(lab.rules(n, f) for n in lab.nodes), 10, "rules")
        expect(lab, "p1a", lab.pod(2, "a", f), UNSEPARATED)
        expect(lab, "p1a", WORLD[f], {"k8s-1": {"ingress0"}}, router={"ingress0"})


@pytest.mark.parametrize("design", ["hybrid", "two-tables", "one-table"])
def test_a_class_comes_and_goes_under_traffic(make_lab, design):
    """Between pods nothing is lost and nothing goes astray. What is masqueraded changes its address
    with its link: the kernel ends such a flow, at the cost of a packet each time."""
    lab = make_lab(design)
    names = lab.classes
    delete_all(lab, names)
    lab._flush()
    streams = {}
    for f in FAMILIES:
        streams["pods", f] = Stream(lab, "p1a", lab.pod(2, "a", f))
        streams["world", f] = Stream(lab, "p2a", WORLD[f])
    try:
        wait_until(lambda: all(len(s.seen) > 20 for s in streams.values()), 10, "the streams")
        lab.put_sample(design)
        lab.wait_sessions(4)
        wait_until(lambda: len(bird_tables(lab)) >= 4, 10, "routes of BIRD's")
        for f in FAMILIES:
            wait_until(lambda: "pod0" in {key[0] for key in lab.counted("k8s-1")}, 5, "pod0")
        delete_all(lab, names)
        wait_until(lambda: lab.established("k8s-1") == 0, 10, "no sessions")
    finally:
        ended = {name: stream.stop() for name, stream in streams.items()}
    assert astray(lab) == {}
    for (kind, f), (_, lost, _) in ended.items():
        assert lost <= (0 if kind == "pods" else 4), ended


def bird_tables(lab):
    return [r for f in FAMILIES for table in (47, 48) for r in lab.routes("k8s-1", table, f)
            if "proto bird" in r]


def test_a_node_that_joins_unseen_is_not_sent_to_the_gateway(make_lab):
    """No agent looks, but the sample names the whole pod range."""
    lab = make_lab("hybrid")
    lab.agents["k8s-1"].stop()
    lab.add_node()
    for f in FAMILIES:
        expect(lab, "p1a", lab.pod(4, "a", f), {"k8s-1": {"node0"}, "k8s-4": {"node0"}})


# ---- cleanupPolicy ---------------------------------------------------------------------------


def test_what_a_class_keeps_stays(make_lab, binary):
    lab = make_lab("hybrid")
    class_ = lab.folder.get("TrafficClass", "pods")
    class_["spec"]["cleanupPolicy"] = "Keep"
    lab.folder.put(class_)
    agent, before = lab.agents["k8s-1"], state(lab, "k8s-1")
    wait_until(lambda: os.path.exists(os.path.join(agent.state_dir, "kept")), 5, "the file")
    agent.stop()  # the class goes while nobody looks
    lab.folder.delete("TrafficClass", "pods")
    agent.clear_log()
    agent.restart()
    agent.wait_log("event=bird_configured sessions=0", 15)
    wait_until(lambda: lab.established("k8s-1") == 0, 5, "no sessions")
    lab.put_node("k8s-4")  # of which no rule and no route is made any more
    os.kill(agent.pid, signal.SIGHUP)
    agent.wait_log("event=audit")
    agent.stop()
    agent.restart()
    wait_until(lambda: agent.log().count("event=bird_configured") >= 2, 20, "BIRD configured again")
    assert state(lab, "k8s-1") == before
    wait_until(lambda: bird_routes(lab, "k8s-1") == [], 5, "no routes of BIRD's")
    for f in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", f), UNSEPARATED)
        expect(lab, "p1a", WORLD[f], {"k8s-1": {"ingress0"}}, router={"ingress0"})
    diff = lab.run("k8s-1", binary, "diff", "--node", "k8s-1", "--features", "trafficclass",
                   "--state-dir", agent.state_dir, *lab.folder.arguments).stdout
    assert "rule" not in diff and "route" not in diff, diff
    lab.run("k8s-1", "ip", "rule", "del", "pref", "1001", "from", "10.244.1.0/24")
    agent.clear_log()
    os.kill(agent.pid, signal.SIGHUP)  # what somebody takes away stays away
    agent.wait_log("event=audit")
    assert not any("from 10.244.1.0/24" in r for r in lab.rules("k8s-1", 4))
    agent.stop()
    said = lab.run("k8s-1", binary, "cleanup", "--state-dir", agent.state_dir).stdout
    assert "- rule inet6 1000: from fd00:244:1::/64 lookup 47" in said
    assert state(lab, "k8s-1") == []
    assert not os.path.exists(os.path.join(agent.state_dir, "kept"))


def test_a_class_of_its_name_takes_over_what_was_kept(make_lab):
    lab = make_lab("hybrid")
    class_ = lab.folder.get("TrafficClass", "pods")
    class_["spec"]["cleanupPolicy"] = "Keep"
    lab.folder.put(class_)
    kept = os.path.join(lab.agents["k8s-1"].state_dir, "kept")
    wait_until(lambda: os.path.exists(kept), 5, "the file")
    lab.folder.delete("TrafficClass", "pods")
    wait_until(lambda: lab.established("k8s-1") == 0, 10, "no sessions")
    class_["spec"]["cleanupPolicy"] = "Delete"
    lab.folder.put(class_)
    lab.wait_sessions(4)
    wait_until(lambda: not open(kept).read(), 5, "an empty file")
    delete_all(lab, ["pods"])


# ---- BIRD does not start ---------------------------------------------------------------------


def test_a_file_that_keeps_bird_from_starting_is_replaced(make_lab, binary):
    """BIRD is started again and again, as a kubelet does it."""
    lab = make_lab("hybrid")
    agent = lab.agents["k8s-1"]
    lab.stop_bird("k8s-1")
    agent.stop()
    with open(lab.conf("k8s-1"), "w") as file:
        file.write("no such statement;\n")
    agent.clear_log()
    lab.loop_bird("k8s-1")
    agent.restart()
    agent.wait_log("event=bird_conf_written cause=\"BIRD does not come with the one before\"", 15)
    lab.wait_sessions(4)
    log = open(os.path.join(lab.state, "k8s-1", "bird.log")).read()
    assert "syntax error" in log
    wait_conditions(lab, binary, ready="3/3", Programmed=("True", "AllNodesReady"))
    bird = int(open(os.path.join(lab.state, "k8s-1", "bird.pid")).read())
    assert procs.start_time(bird)
    lab.stop_bird("k8s-1")
    wait_until(lambda: procs.start_time(bird) is None, 5, "BIRD to end with its loop")


def test_a_bird_that_never_starts_is_told(make_lab, binary):
    lab = make_lab("hybrid")
    lab.stop_bird("k8s-1")
    wait_conditions(lab, binary, Programmed=("False", "BirdAway"))

    def message():
        status = wait_conditions(lab, binary, Programmed=("False", "BirdAway"))
        return next(c["message"] for c in status["conditions"] if c["type"] == "Programmed")
    wait_until(lambda: "does not start with the file it has: its log says why" in message(), 10,
               message)
    assert message().startswith("node k8s-1: BIRD's control socket: ")


def test_a_folder_that_is_not_there_yet_is_waited_for(make_lab, binary):
    lab = make_lab("hybrid")
    agent = lab.agents["k8s-1"]
    lab.stop_bird("k8s-1")
    agent.stop()
    folder = os.path.dirname(lab.conf("k8s-1"))
    shutil.rmtree(folder)
    agent.clear_log()
    agent.restart()
    agent.wait_log("event=bird_conf text=")
    os.mkdir(folder)
    lab.start_bird("k8s-1")
    lab.wait_sessions(4)


# ---- the agent of classes alone --------------------------------------------------------------


def test_a_class_needs_no_table_of_nftables(make_lab, binary):
    """Nor does one of before stay, when the node had PortMaps."""
    lab = make_lab("hybrid")
    agent = lab.agents["k8s-1"]

    def has_table():
        return "table inet portolan" in lab.run("k8s-1", "nft", "list", "tables").stdout.split("\n")
    assert not has_table()
    classes_alone = agent.command
    assert agent.stop() == 0
    agent.command = [word.replace("trafficclass", "portmap,trafficclass") for word in classes_alone]
    agent.restart()
    wait_until(has_table, 10, "a table")
    assert agent.stop() == 0
    agent.command = classes_alone
    agent.restart()
    wait_until(lambda: not has_table(), 10, "no table")
    wait_conditions(lab, binary, ready="3/3", Programmed=("True", "AllNodesReady"))


@pytest.mark.folder_only("an API server has no such file")
def test_a_class_that_cannot_be_read_after_a_restart_keeps_what_it_had(make_lab):
    lab = make_lab("hybrid")
    agent, before = lab.agents["k8s-1"], state(lab, "k8s-1")
    good = lab.folder.get("TrafficClass", "pods")
    assert agent.stop() == 0
    with open(os.path.join(lab.folder.directory, "trafficclass.pods.yaml"), "w") as file:
        file.write("kind: [")
    agent.restart()

    def ready():
        return lab.run("k8s-1", "curl", "-s", "http://127.0.0.1:10266/readyz", check=False).stdout
    wait_until(lambda: "mend it" in ready(), 10, ready)
    assert state(lab, "k8s-1") == before
    lab.folder.put(good)
    wait_until(lambda: ready() == "ok\n", 10, ready)
    assert state(lab, "k8s-1") == before
