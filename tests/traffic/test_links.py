"""Which link carries what, per design and family: by counters on every link of every node, and at
the router, which must never see a packet between nodes or pods."""

import copy
import json
import os
import signal
import subprocess
import time
from datetime import datetime

import pytest

from conftest import AWAY
from lab.links import LAN, SERVICE_FAR, SERVICE_NEAR, WORLD
from lab.netns import wait_until

FAMILIES = (4, 6)
UNSEPARATED = {"k8s-1": {"node0"}, "k8s-2": {"node0"}}


@pytest.fixture(params=["hybrid", "two-tables", "one-table"])
def lab(request, make_lab):
    return make_lab(request.param)


@pytest.fixture
def hybrid(make_lab):
    return make_lab("hybrid")


def settled(lab, source, address, links, family=None):
    """The probe, once it takes these links; then it is whole and the router saw nothing."""
    seen = [None]

    def there():
        seen[0] = lab.probe(source, address)
        return seen[0].links == links and seen[0].answers == 3
    wait_until(there, 20, lambda: f"{source} to {address} over {links}: {seen[0]}")
    return seen[0]


def expect(lab, source, address, links, peer=None, router=None):
    seen = settled(lab, source, address, links)
    if peer:
        assert seen.peer == peer
    assert {link for link, _ in seen.router} == (router or set())
    return seen


def check_all(lab, family):
    """Every kind of traffic, while everything is well."""
    f = family
    expect(lab, "p1a", lab.pod(2, "a", f), {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}},
           lab.pod(1, "a", f))
    expect(lab, "p1a", lab.pod(1, "b", f), {}, lab.pod(1, "a", f))
    expect(lab, "p1a", WORLD[f], {"k8s-1": {"ingress0"}}, lab.address(1, "ingress0", f),
           {"ingress0"})
    expect(lab, "world", lab.pod(1, "a", f), {"k8s-1": {"ingress0"}}, WORLD[f],
           {"ingress0"})
    expect(lab, "k8s-1", lab.pod(2, "a", f), UNSEPARATED, lab.address(1, "node0", f))
    expect(lab, "k8s-1", lab.pod(1, "a", f), {})
    expect(lab, "k8s-1", WORLD[f], {"k8s-1": {"mgmt0"}}, lab.address(1, "mgmt0", f), {"mgmt0"})
    # Two tables send all of 10.0.0.0/8 to main, a LAN outside the cluster too.
    back = {"mgmt0"} if lab.design == "two-tables" else {"ingress0"}
    expect(lab, "lan", lab.pod(1, "a", f), {"k8s-1": back}, LAN[f], back)
    expect(lab, "p1a", SERVICE_FAR[f], {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}}, lab.pod(1, "a", f))
    expect(lab, "p1a", SERVICE_NEAR[f], {}, lab.pod(1, "a", f))
    # To a node's addresses: by whichever link, never by the router.
    for link in ("node0", "mgmt0", "ingress0"):
        seen = lab.probe("p1a", lab.address(2, link, f), timeout=5)
        assert (seen.answers, seen.router) == (3, {}), (link, seen)


def test_every_kind_of_traffic_has_its_link(lab):
    for family in FAMILIES:
        check_all(lab, family)


def without_bird(lab):
    for family in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", family), UNSEPARATED, lab.pod(1, "a", family))
        expect(lab, "p2a", lab.pod(1, "a", family), UNSEPARATED, lab.pod(2, "a", family))


def test_bird_stopped_on_one_node_is_unseparated_not_misrouted(lab):
    lab.stop_bird("k8s-2")
    without_bird(lab)
    for family in FAMILIES: # the others go on
        expect(lab, "p1a", lab.pod(3, "a", family), {"k8s-1": {"pod0"}, "k8s-3": {"pod0"}})
    lab.start_bird("k8s-2")
    for family in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", family), {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}})


def test_bird_stopped_on_all_nodes(lab):
    for node in lab.nodes:
        lab.stop_bird(node)
    without_bird(lab)


def test_one_table_without_fall_through_for_pods_is_misrouted(make_lab):
    """Why it is not the design to choose: the default stays on the others when BIRD stops on one,
    and that node's pods are sent to the gateway."""
    lab = make_lab("one-table", fallThrough=["AttachedNetworks"])
    for family in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", family), {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}})
    lab.stop_bird("k8s-2")
    for family in FAMILIES:
        wait_until(lambda: lab.probe("p1a", lab.pod(2, "a", family)).router, 20,
                   "packets between pods at the router")


def test_a_default_nothing_guards_is_refused(make_lab, binary):
    lab = make_lab("hybrid")
    lab.put_sample("hybrid", fallThrough=[])
    lab.agents["k8s-1"].wait_log("reason=PodsUncovered")
    wait_until(lambda: not lab.rules("k8s-1", 4) and not lab.rules("k8s-1", 6), 5, "no rules")
    expect(lab, "p1a", lab.pod(2, "a", 4), UNSEPARATED)


# ---- failures, in the design that must stand them all ----------------------------------------


def bird_routes(lab, node):
    return [r for f in FAMILIES for r in lab.routes(node, 47, f) if "proto bird" in r]


def test_routes_of_a_dead_bird_are_flushed_and_only_they(hybrid):
    lab = hybrid
    lab.run("k8s-1", "ip", "route", "add", "192.0.2.0/24", "via", "10.48.0.2", "table", "99",
            "proto", "bird")
    wait_until(lambda: len(bird_routes(lab, "k8s-1")) == 4, 10, "routes of BIRD's")
    killed = time.monotonic()
    lab.run("k8s-1", "kill", "-9", str(lab.bird_pid("k8s-1")))
    # Nobody took them away at once.
    assert len(bird_routes(lab, "k8s-1")) == 4 or time.monotonic() - killed > AWAY
    lab.agents["k8s-1"].wait_log("event=bird_away cause=\"BIRD has closed the connection\"")
    seen = time.monotonic() - killed
    wait_until(lambda: not bird_routes(lab, "k8s-1"), 10, "no routes of BIRD's")
    print(f"BIRD killed: noticed after {seen:.3f} s, its routes flushed after "
          f"{time.monotonic() - killed:.2f} s of {AWAY} allowed")
    lab.agents["k8s-1"].wait_log("event=bird_stale away_ms=2000 routes_flushed=4")
    assert any("default" in r for r in lab.routes("k8s-1", 47, 4))
    assert lab.routes("k8s-1", 99, 4)
    lab.start_bird("k8s-1")
    wait_until(lambda: len(bird_routes(lab, "k8s-1")) == 4, 20, "routes of BIRD's")


def test_the_agent_gone_leaves_everything(hybrid):
    lab = hybrid
    before = [lab.routes("k8s-1", 47, f) + lab.rules("k8s-1", f) for f in FAMILIES]
    assert lab.agents["k8s-1"].stop() == 0
    assert [lab.routes("k8s-1", 47, f) + lab.rules("k8s-1", f) for f in FAMILIES] == before
    lab.agents["k8s-1"].clear_log()
    lab.agents["k8s-1"].restart()
    lab.agents["k8s-1"].wait_log("event=bird_configured")
    assert "event=applied" not in lab.agents["k8s-1"].log()
    lab.agents["k8s-1"].kill()
    assert [lab.routes("k8s-1", 47, f) + lab.rules("k8s-1", f) for f in FAMILIES] == before
    check_all(lab, 4)


def test_cleanup_takes_what_is_ours(hybrid, binary):
    lab = hybrid
    assert lab.agents["k8s-1"].stop() == 0
    lab.run("k8s-1", binary, "cleanup", "--state-dir", lab.agents["k8s-1"].state_dir)
    for family in FAMILIES:
        assert lab.rules("k8s-1", family) == []
        assert all("proto bird" in r for r in lab.routes("k8s-1", 47, family))
        expect(lab, "p1a", lab.pod(2, "a", family), {"k8s-1": {"node0"}, "k8s-2": {"pod0"}})


class Moment(float):
    """A time as BIRD tells it, which is a millisecond off now and then."""

    def __eq__(self, other):
        return abs(self - other) < 0.1

    __hash__ = None


def since(lab, node):
    """What BIRD says of its sessions: name, state, and since when."""
    lines = (line.split() for line in lab.birdc(node, "show", "protocols").splitlines()
             if " BGP " in line)
    return sorted([name, state, Moment(datetime.fromisoformat(f"{day} {hour}").timestamp())]
                  for name, _, _, state, day, hour, *_ in lines)


def test_a_fourth_node_joins_and_no_other_session_ends(lab, binary):
    before, before_nodes = since(lab, "k8s-1"), list(lab.nodes)
    host = lab.add_node()
    started = time.monotonic()
    lab.start_agent(host, binary)
    lab.start_bird(host)
    lab.wait_sessions(6)
    table = 48 if lab.design == "two-tables" else 47
    wait_until(lambda: all(any(f"10.48.0.{host[4:]} " in r for r in lab.routes(n, table, 4))
                           for n in before_nodes), 10, "routes to the new node")
    print(f"a joining node, from its agent's start to all routes: {time.monotonic() - started:.2f} s")
    assert [line for line in since(lab, "k8s-1") if line in before] == before
    for family in FAMILIES:
        expect(lab, "p4a", lab.pod(1, "a", family), {"k8s-4": {"pod0"}, "k8s-1": {"pod0"}})
    lab.agents["k8s-1"].clear_log()
    lab.folder.delete("Node", host)
    lab.wait_sessions(4, lab.nodes[:3])
    lab.agents["k8s-1"].wait_log("event=bird_configured sessions=4")  # after BIRD's deed
    assert [line for line in since(lab, "k8s-1") if line in before] == before


def test_nothing_changed_flaps_nothing(hybrid):
    lab = hybrid
    before = since(lab, "k8s-1")
    node = lab.folder.get("Node", "k8s-2")
    node["metadata"]["annotations"]["somebody/else"] = "x"
    lab.folder.put(node)
    lab.agents["k8s-1"].clear_log()
    lab.put_node("k8s-3", pod0_v4="10.48.0.3")
    lab.put_sample("hybrid", reject=["192.0.2.0/24"])
    lab.agents["k8s-1"].wait_log("event=applied")
    assert since(lab, "k8s-1") == before
    assert "bird_configured" not in lab.agents["k8s-1"].log()


BAD_GATEWAYS = {
    4: {"10.47.0.254; route 192.0.2.0/24 blackhole": "GatewayNotAnAddress",
        "10.40.0.254": "GatewayOffLink", "fd00:47::fe": "GatewayWrongFamily",
        "10.47.0.1": "GatewayIsOwnAddress", "10.47.0.255": "GatewayNotAHost",
        None: "GatewayMissing"},
    6: {"fd00:47::fe; route 2001:db8::/32 blackhole": "GatewayNotAnAddress",
        "fd00:40::fe": "GatewayOffLink", "10.47.0.254": "GatewayWrongFamily",
        "fd00:47::1": "GatewayIsOwnAddress", None: "GatewayMissing"}}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_gateway_takes_only_the_default(lab, family):
    other = 10 - family
    for bad, reason in BAD_GATEWAYS[family].items():
        lab.agents["k8s-1"].clear_log()
        lab.put_node("k8s-1", **{f"egress_gw_v{family}": bad})
        lab.agents["k8s-1"].wait_log(f"reason={reason}")
        wait_until(lambda: not any("default" in r for r in lab.routes("k8s-1", 47, family)), 5,
                   f"no default for {bad}")
        expect(lab, "p1a", WORLD[family], {"k8s-1": {"mgmt0"}}, router={"mgmt0"})  # unseparated
        expect(lab, "p1a", WORLD[other], {"k8s-1": {"ingress0"}}, router={"ingress0"})
        expect(lab, "p1a", lab.pod(2, "a", family), {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}})
        conf = open(lab.conf("k8s-1")).read()
        assert "blackhole" not in conf
        assert lab.design == "one-table" or "0.0.0.0/0" not in conf and "::/0" not in conf
    lab.put_node("k8s-1")
    expect(lab, "p1a", WORLD[family], {"k8s-1": {"ingress0"}}, router={"ingress0"})


def test_a_hostile_mesh_address_reaches_no_configuration(hybrid):
    lab = hybrid
    lab.put_node("k8s-2", pod0_v4='10.48.0.2 as 64512; } protocol static { ipv4; route 0.0.0.0/0 '
                                  'via 10.47.0.254; } #')
    lab.agents["k8s-1"].wait_log("reason=MeshAddressInvalid")
    lab.wait_sessions(3, ["k8s-1"])
    assert "0.0.0.0/0" not in open(lab.conf("k8s-1")).read()
    expect(lab, "p1a", lab.pod(2, "a", 4), UNSEPARATED)
    expect(lab, "p1a", lab.pod(2, "a", 6), {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}})


@pytest.mark.folder_only("the API server lets no Node's podCIDRs change")
@pytest.mark.parametrize("family, pods", [(4, ["0.0.0.0/1", "128.0.0.0/1"]), (6, ["::/0"])])
def test_a_node_whose_pods_are_everything_leads_nothing_away(hybrid, family, pods):
    """It is told, and nothing is lost but the way to its pods."""
    lab = hybrid
    lab.put_node("k8s-3", pods)
    lab.agents["k8s-1"].wait_log("reason=InvalidCIDR")
    wait_until(lambda: not any("244.3.0" in route or "244:3:" in route
                               for route in lab.routes("k8s-1", 47, family)), 10,
               lambda: f"no way to its pods: {lab.routes('k8s-1', 47, family)}")
    check_all(lab, family)


def test_a_link_that_comes_back_has_its_default_again(lab):
    for _ in range(3):
        lab.ip("k8s-1", "link set ingress0 down")
        expect(lab, "p1a", lab.pod(2, "a", 4), {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}})
        lab.ip("k8s-1", "link set ingress0 up", "addr replace fd00:47::1/64 dev ingress0 nodad")
        for family in FAMILIES:
            expect(lab, "p1a", WORLD[family], {"k8s-1": {"ingress0"}}, router={"ingress0"})
    lab.ip("k8s-1", "link set ingress0 down", "link set ingress0 up",
           "addr replace fd00:47::1/64 dev ingress0 nodad")  # faster than anybody looks
    for family in FAMILIES:
        expect(lab, "p1a", WORLD[family], {"k8s-1": {"ingress0"}}, router={"ingress0"})


def test_the_mesh_link_down_and_up(lab):
    lab.ip("k8s-1", "link set pod0 down")
    for family in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", family), UNSEPARATED)
    lab.ip("k8s-1", "link set pod0 up", "addr replace fd00:48::1/64 dev pod0 nodad")
    for family in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", family), {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}})


def test_where_everything_falls_through_nothing_leaves_by_the_gateway(hybrid):
    lab = hybrid
    class_ = lab.folder.get("TrafficClass", "pods")
    everything = copy.deepcopy(class_)
    everything["spec"]["routes"]["fallThrough"] = ["0.0.0.0/0", "::/0"]
    lab.folder.put(everything)
    for family in FAMILIES:
        expect(lab, "p1a", WORLD[family], {"k8s-1": {"mgmt0"}}, router={"mgmt0"})
    lab.stop_bird("k8s-1")
    for family in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", family), UNSEPARATED)
    for value in ("0.0.0.0/0", "::/0"):
        lab.agents["k8s-1"].wait_log(f'value="{value}" reason=GatewayUnused')
    lab.folder.put(class_)
    for family in FAMILIES:
        expect(lab, "p1a", WORLD[family], {"k8s-1": {"ingress0"}}, router={"ingress0"})


def test_of_two_classes_that_clash_the_older_holds(hybrid):
    lab = hybrid
    second = lab.folder.get("TrafficClass", "pods")
    second["metadata"] = {"name": "second", "creationTimestamp": "2040-01-01T00:00:00Z"}
    second["spec"]["routes"]["gateway"]["link"] = "mgmt0"
    lab.folder.put(second)
    lab.agents["k8s-1"].wait_log("object=second field=\"spec.table\" value=\"47\" "
                                 "reason=TableConflict")
    check_all(lab, 4)


@pytest.mark.parametrize("family, rule, reason", [
    (4, "pref 50 lookup main suppress_prefixlength 0", "CaughtBefore"),
    (6, "pref 51 lookup main suppress_prefixlength 0", "CaughtBefore"),
    (4, "pref 1001 from 10.244.1.0/24 lookup main", "PriorityTaken"),
    (6, "pref 1000 from fd00:244:1::/64 lookup main", "PriorityTaken"),
])
def test_a_rule_of_somebody_else_is_named(hybrid, binary, family, rule, reason):
    lab = hybrid
    lab.run("k8s-1", "ip", f"-{family}", "rule", "add", *rule.split())
    lab.agents["k8s-1"].wait_log(f"reason={reason}")
    status = wait_conditions(lab, binary, Conflict=("True", reason))
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Conflict")
    assert message.startswith("node k8s-1: ") and f'"{rule.split()[1]}: from ' in message
    lab.run("k8s-1", "ip", f"-{family}", "rule", "del", *rule.split())
    wait_conditions(lab, binary, Conflict=("False", "NoConflict"))


def test_a_table_of_somebody_else_is_left_alone(make_lab, binary):
    lab = make_lab("hybrid")
    lab.run("k8s-1", "ip", "route", "add", "192.0.2.0/24", "via", "10.48.0.2", "table", "47",
            "proto", "static")
    lab.agents["k8s-1"].wait_log("reason=ForeignRoutes")
    wait_until(lambda: not lab.rules("k8s-1", 4), 5, "no rules")
    assert [r for r in lab.routes("k8s-1", 47, 4) if "static" in r]


def test_a_class_deleted_is_gone(hybrid, binary):
    lab = hybrid
    lab.folder.delete("TrafficClass", "pods")
    wait_until(lambda: not any(lab.rules(n, f) or lab.routes(n, 47, f)
                               for n in lab.nodes for f in FAMILIES), 10, "empty tables")
    wait_until(lambda: lab.established("k8s-1") == 0, 5, "no sessions")
    without_bird(lab)
    expect(lab, "p1a", WORLD[4], {"k8s-1": {"mgmt0"}}, router={"mgmt0"})


def test_rp_filter_is_named(hybrid):
    lab = hybrid
    lab.run("k8s-1", "sysctl", "-qw", "net.ipv4.conf.pod0.rp_filter=1")
    lab.agents["k8s-1"].wait_log("reason=RpFilterStrict")  # noticed, not found by an audit


# ---- what is told ----------------------------------------------------------------------------


def get(lab, binary, *words):
    done = subprocess.run([binary, "get", "trafficclasses", *words, *lab.folder.arguments],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def conditions(lab, binary, name="pods"):
    status = json.loads(get(lab, binary, name, "-o", "json")).get("status", {})
    return status, {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}


def wait_conditions(lab, binary, **wanted):
    """ready="2/3" and types with (status, reason)."""
    seen = [None]

    def there():
        status, found = conditions(lab, binary)
        seen[0] = status.get("ready"), found
        return all(found.get(k) == v for k, v in wanted.items() if k != "ready") and \
            wanted.get("ready") in (None, status.get("ready"))
    wait_until(there, 15, lambda: f"{wanted}: {seen[0]}", 0.1)
    return conditions(lab, binary)[0]


WELL = {"Accepted": ("True", "Valid"), "Conflict": ("False", "NoConflict"),
        "GatewayValid": ("True", "Valid"), "MeshReady": ("True", "AllEstablished"),
        "Programmed": ("True", "AllNodesReady")}


def test_the_status_says_how_each_node_is(hybrid, binary):
    lab = hybrid
    status = wait_conditions(lab, binary, ready="3/3", **WELL)
    assert [(r["name"], r["ready"], r["sessions"], r["sessionsExpected"])
            for r in status["nodes"]] == [(n, True, 4, 4) for n in lab.nodes]
    assert (status["nodesDesired"], status["nodesReady"]) == (3, 3)

    lab.stop_bird("k8s-2")
    status = wait_conditions(lab, binary, ready="0/3", MeshReady=("False", "SessionsDown"),
                             Programmed=("False", "BirdAway"))
    rows = {r["name"]: r for r in status["nodes"]}
    assert (rows["k8s-1"]["reason"], rows["k8s-1"]["sessions"]) == ("SessionsDown", 2)
    assert rows["k8s-2"]["reason"] == "BirdAway"
    lab.start_bird("k8s-2")
    wait_conditions(lab, binary, ready="3/3", **WELL)

    lab.put_node("k8s-3", egress_gw_v6="10.47.0.254")
    status = wait_conditions(lab, binary, ready="2/3",
                             GatewayValid=("False", "GatewayWrongFamily"))
    message = next(c["message"] for c in status["conditions"] if c["type"] == "GatewayValid")
    assert message.startswith("node k8s-3: annotation net.renner.uno/egress-gw-v6")

    lab.folder.delete("Node", "k8s-3")
    status = wait_conditions(lab, binary, ready="2/2", **WELL)
    assert [r["name"] for r in status["nodes"]] == ["k8s-1", "k8s-2"]
    wait_until(lambda: get(lab, binary).splitlines()[1].split()[:5] ==
               ["pods", "47", "ingress0", "pod0", "2/2"], 5, lambda: get(lab, binary), 0.1)
    assert get(lab, binary).split()[:5] == ["NAME", "TABLE", "LINK", "MESH", "READY"]


@pytest.mark.folder_only("the API server refuses the change, see tests/api")
def test_a_table_is_for_life(hybrid, binary):
    lab = hybrid
    class_ = lab.folder.get("TrafficClass", "pods")
    class_["spec"]["table"] = 48
    lab.folder.put(class_)
    lab.agents["k8s-1"].wait_log("spec.table is 48, but was accepted as 47 and cannot change")
    assert lab.routes("k8s-1", 47, 4)
    assert not lab.routes("k8s-1", 48, 4)


def test_a_configuration_that_cannot_be_written_is_told(hybrid, binary):
    """And the one before stays in use."""
    lab = hybrid
    wait_until(lambda: not os.path.exists(lab.conf("k8s-1") + ".new"), 5, "BIRD to be asked nothing")
    os.mkdir(lab.conf("k8s-1") + ".new")
    before = since(lab, "k8s-1")
    lab.put_node("k8s-9")  # a neighbour more
    wait_conditions(lab, binary, Programmed=("False", "ConfigurationRefused"))
    assert since(lab, "k8s-1") == before
    lab.agents["k8s-1"].wait_log("bird.conf.new: Is a directory")
    os.rmdir(lab.conf("k8s-1") + ".new")
    lab.folder.delete("Node", "k8s-9")
    wait_conditions(lab, binary, ready="3/3", **WELL)


def test_metrics(make_lab, binary):
    lab = make_lab("hybrid")
    def metrics():
        return lab.run("k8s-1", "curl", "-s", "http://127.0.0.1:10266/metrics").stdout
    wanted = ['portolan_bird_up 1', 'portolan_bird_sessions{table="47",state="established"} 4',
              'portolan_bird_sessions{table="47",state="other"} 0',
              'portolan_bird_routes{table="47"} 4', 'portolan_bird_flushes_total 0',
              'portolan_bird_refusals_total 0']
    wait_until(lambda: set(wanted) <= set(metrics().splitlines()), 10, metrics)
    lab.run("k8s-1", "kill", "-9", str(lab.bird_pid("k8s-1")))
    gone = ['portolan_bird_up 0', 'portolan_bird_routes{table="47"} 0',
            'portolan_bird_flushes_total 1', 'portolan_bird_flushed_routes_total 4']
    wait_until(lambda: set(gone) <= set(metrics().splitlines()), 10, metrics)


def test_what_changes_while_bird_is_asked_is_not_forgotten(make_lab, binary):
    """BIRD is stopped in the middle, so that the answer to one configuration comes after the next
    is wanted."""
    lab = make_lab("hybrid", fallThrough=["PodCIDRs", "AttachedNetworks"])
    agent, bird = lab.agents["k8s-1"], lab.bird_pid("k8s-1")
    agent.wait_log("event=bird_configured")
    lab.put_node("k8s-9")
    agent.wait_log("event=bird_configured sessions=6")
    os.kill(bird, signal.SIGSTOP)
    try:
        lab.folder.delete("Node", "k8s-9")
        wait_until(lambda: os.path.exists(lab.conf("k8s-1") + ".new"), 5, "a question to BIRD")
        agent.clear_log()
        lab.put_node("k8s-8")
        agent.wait_log("event=applied")  # its pods' prefixes: the newer configuration is wanted
    finally:
        os.kill(bird, signal.SIGCONT)
    wait_until(lambda: "10.48.0.8" in open(lab.conf("k8s-1")).read(), 10, "the newest configuration")
    wait_until(lambda: "10.48.0.8" in lab.birdc("k8s-1", "show", "protocols", "all"), 10,
               "a session with k8s-8")
