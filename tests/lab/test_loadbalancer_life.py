"""Agents come and go, others meddle, everything goes in the end. With both overlays."""

import os
import re
import time

import pytest

from lab import promptly, seconds_until, wait_until
from lab.hammer import Hammer
from lb_world import ADDRESSES, CLIENT, HELD, OVERLAY, PROTOCOLS, SPARE
from world import owned, snapshot

KILL_SECONDS = float(os.environ.get("PORTOLAN_KILL_SECONDS", "60")) / 6
KILL_EVERY = 0.2
MENDED = 1.0
TABLE = "inet portolan"


@pytest.fixture
def services(lb):
    """One pod of the holder and two of other nodes, each with a Service."""
    return {pod: lb.service(pod, settle=pod == "c1") for pod in ("a1", "b1", "c1")}


@pytest.fixture
def streams(lb, services):
    return [lb.lab.stream(proto, HELD, svc.port, push=True).wait_answer()
            for svc in services.values() for proto in PROTOCOLS]


def assert_nothing_lost(streams):
    reports = [stream.stop() for stream in streams]
    assert all(report.nothing_lost for report in reports), [
        report for report in reports if not report.nothing_lost]
    assert {peer for report in reports for peer in report.peers} == {CLIENT}


def identity(lb):
    """Handles of the tables' objects and numbers of the links: new ones mean rebuilt."""
    return [(node.out("nft", "-a", "-s", "list", "table", "inet", "portolan"),
             node.out("ip", "-o", "link", "show", "type", "vxlan"), node.out("ip", "rule"),
             node.out("ip", "route", "show", "table", "all"), node.out("ip", "neigh", "show", "nud",
                                                                       "permanent"))
            for node in lb.lab.nodes()]


def open_at(lb, pod):
    """The peers of the connections that are open at the pod's end."""
    listed = lb.place(pod).out("ss", "-Htn", "state", "established", "sport", "=", ":8080")
    return {line.split()[3] for line in listed.splitlines()}


def test_killed_every_200_ms_nothing_is_lost(lb, services, streams):
    """Neither a first packet nor the reset that ends a connection."""
    before = open_at(lb, "b1")
    hammer = Hammer(lb.lab.client.ns, HELD, services["b1"].port, pause=0.005)
    end = time.monotonic() + KILL_SECONDS
    following, kills = time.monotonic(), 0
    while time.monotonic() < end or kills < 0.5 * 3 * KILL_SECONDS / KILL_EVERY:
        lb.check_alive()
        for agent in lb.agents():
            agent.kill()
            agent.restart()
            kills += 1
        following += KILL_EVERY
        time.sleep(max(0, following - time.monotonic()))
    assert_nothing_lost(streams)
    connects = hammer.stop()
    assert len(connects) > 100 and not [one for one in connects if one.error or one.again]
    wait_until(lambda: open_at(lb, "b1") <= before, 5,
               lambda: f"the end of {open_at(lb, 'b1') - before} to reach b1")
    lb.settle()


def test_stopped_and_started_again_nothing_is_lost_and_nothing_is_rebuilt(lb, services, streams):
    before = identity(lb)
    lb.stop()
    time.sleep(0.5)     # without agents everything goes on
    for agent in lb.agents():
        agent.restart()
    later = lb.service("b2")
    lb.delete(later)
    lb.settle()
    for found, wanted in zip(identity(lb), before):
        # The barrier's ports and the service that came and went are not those of before.
        assert found[1:] == wanted[1:]
        assert _chains(found[0]) == _chains(wanted[0])
    assert_nothing_lost(streams)


def _chains(listing):
    """Handles of chains, maps and rules, without elements."""
    return [line for line in listing.splitlines() if "# handle" in line]


def test_changes_made_while_it_was_away_are_made_at_the_start(lb, services):
    lb.stop()
    lb.endpoints(services["a1"], "b2", settle=False)
    lb.endpoints(services["b1"], settle=False)
    lb.delete(services["c1"])
    for agent in lb.agents():
        agent.restart()
    lb.settle(timeout=10)
    for proto in PROTOCOLS:
        lb.served("client", proto, HELD, services["a1"].port, "b2", CLIENT)
        lb.refused("client", proto, HELD, services["b1"].port)
        lb.refused("client", proto, HELD, services["c1"].port)


@pytest.mark.parametrize("letter", ["a", "b"])
def test_flush_ruleset_is_mended_within_a_second(lb, services, letter):
    """Established TCP may be reset where no other NAT is; everything new must work at once."""
    node = lb.node(letter)
    stream = lb.lab.stream("udp", HELD, services["b1"].port).wait_answer()

    def one():
        node.run("nft", "flush", "ruleset")
        after = time.monotonic()
        waits = [seconds_until(
            lambda: lb.dial("client", proto, HELD, svc.port, timeout=0.2).pod == pod,
            f"{pod} to answer", after) for proto in PROTOCOLS for pod, svc in services.items()]
        while time.monotonic() < after + 1:     # the stream has this long to show that it goes on
            time.sleep(0.1)
        return max(waits)
    try:
        promptly(1, one)
        report = stream.stop()
        # At most one of three may have met a busy machine.
        assert sum(end - begin >= 1 for begin, end in report.gaps) <= 1, report
        assert report.echoed > 0.4 * report.sent, report
    finally:
        spec = lb.lab.topology.hosts[node.name]
        lb.lab.masquerade(node.name, spec.masquerade)
        lb.lab.firewall(node.name, spec.firewall)


def flushed(name):
    return lambda node: node.nft(f"flush map {TABLE} {name}")


def ip(line):
    return lambda node: node.run("ip", *line.split())


def each_neighbour(node):
    for line in node.out("ip", "neigh", "show", "dev", "plo", "nud", "permanent").splitlines():
        node.run("ip", "neigh", "del", line.split()[0], "dev", "plo")


HARM = {
    "services-flushed": ("a", flushed("service4")),
    "endpoints-flushed": ("a", flushed("endpoint4")),
    "the-table-deleted": ("a", lambda node: node.nft(f"delete table {TABLE}")),
    "the-claim-flushed": ("a", lambda node: node.nft(f"flush chain {TABLE} claim")),
    "forwarding-off": ("a", lambda node: node.sysctl("net.ipv4.ip_forward", 0)),
    "forwarding-off-there": ("b", lambda node: node.sysctl("net.ipv4.ip_forward", 0)),
    "holders-flushed": ("b", flushed("holders")),
    "marks-flushed": ("b", flushed("holdermarks")),
    "the-holders-rule-deleted": ("b", ip("rule del pref 104 fwmark 0x6c000000/0xff000000")),
    "the-holders-table-flushed": ("b", ip("route flush table 131180")),
    "the-table-deleted-there": ("b", lambda node: node.nft(f"delete table {TABLE}")),
}
VXLAN_HARM = {
    "rule-104-deleted": ("a", ip("rule del pref 104 fwmark 0x6b000000/0xff000000")),
    "its-routes-flushed": ("a", ip("route flush table 131072")),
    "the-overlay-deleted": ("a", ip("link del plo")),
    "the-overlay-deleted-there": ("b", ip("link del plo")),
    "the-overlay-shut": ("b", ip("link set plo down")),
    "neighbours-deleted": ("a", each_neighbour),
    "fdb-flushed": ("b", lambda node: node.run("bridge", "fdb", "flush", "dev", "plo")),
}
VXLAN = pytest.mark.overlay_only("vxlan", reason="there is no such thing with a bridge")
@pytest.mark.parametrize("name", [*HARM, *(pytest.param(name, marks=VXLAN) for name in VXLAN_HARM)])
def test_harm_is_mended_within_a_second(lb, services, name):
    letter, harm = {**HARM, **VXLAN_HARM}[name]
    node = lb.node(letter)

    def state():
        return {**lb.state(node), "forwarding": node.sysctl("net.ipv4.ip_forward")}

    before = state()

    def difference():
        now = state()
        return {key: (before[key], now[key]) for key in before if before[key] != now[key]}

    def one():
        harm(node)
        return seconds_until(lambda: state() == before,
                             lambda: f"{node.name} to be mended; differing: {difference()}")
    promptly(MENDED, one)
    for proto in PROTOCOLS:
        for pod, svc in services.items():
            lb.wait_served("client", proto, HELD, svc.port, pod)


@pytest.mark.parametrize("letter", ["a", "b"])
def test_a_strict_rp_filter_of_the_overlay_is_mended_within_a_second(lb, services, letter):
    node, key = lb.node(letter), f"net.ipv4.conf.{lb.mode.device}.rp_filter"

    def one():
        node.sysctl(key, 1)
        return seconds_until(lambda: node.sysctl(key) == "2", f"{key} to be 2 again")
    promptly(MENDED, one)


@pytest.mark.overlay_only("weave", reason="a bridge's switches")
@pytest.mark.parametrize("key", ["net.bridge.bridge-nf-call-iptables",
                                 "net.ipv4.conf.all.send_redirects"])
def test_a_switch_that_nobody_tells_of_is_set_again_at_the_next_change(lb, services, key):
    node = lb.node("b")
    before = node.sysctl(key)
    node.sysctl(key, 1 - int(before))
    with lb.having("b"):
        wait_until(lambda: node.sysctl(key) == before, 2, f"{key} to be {before} again")
    for proto in PROTOCOLS:
        lb.wait_served("client", proto, HELD, services["b1"].port, "b1")


@pytest.mark.overlay_only("weave", reason="a bridge's switches")
def test_such_switches_are_set_again_within_ten_seconds(lb, services):
    """Though nothing else changes, and without a word when they are right."""
    node, agent = lb.node("b"), lb.lab.agent(lb.b)
    before = {key: node.sysctl(key) for key in (
        "net.bridge.bridge-nf-call-iptables", "net.ipv4.conf.all.send_redirects",
        "net.ipv4.conf.weave.send_redirects", "net.ipv4.conf.weave.arp_notify")}
    for _ in range(2):  # the second time nothing else is on its way that would do
        told = len(agent.log())
        for key, value in before.items():
            node.sysctl(key, 1 - int(value))
        took = seconds_until(lambda: {key: node.sysctl(key) for key in before} == before,
                             "as before", hang=20)
        assert took < 12, took
        wait_until(lambda: re.search("event=(applied|mended)", agent.log()[told:]), 5, agent.log)
        said = agent.log()
        time.sleep(11)  # nothing must happen
        assert agent.log() == said


FOREIGN_NFT = """table inet strange {
 map holders { type ether_addr : verdict; elements = { 02:00:00:00:00:01 : accept } ; }
 chain mangle { type filter hook prerouting priority mangle; policy accept;
  ct mark & 0xff000000 == 0x6c000000 counter
 }
}
"""
FOREIGN_IP = ["link add plo9 type vxlan id 99 remote 192.0.2.1 dstport 4999 dev enp1s0",
              "link set plo9 up", "rule add pref 104 fwmark 0x99 lookup main",
              "rule add pref 105 from 192.0.2.99 lookup 131180",
              "route add 192.0.2.32/28 dev enp1s0 table 131180"]
FOREIGN_UNDO = ["link del plo9", "rule del pref 104 fwmark 0x99",
                "rule del pref 105 from 192.0.2.99", "route del 192.0.2.32/28 table 131180"]


@pytest.fixture
def strangers(lb):
    for node in lb.lab.nodes():
        node.nft(FOREIGN_NFT)
        node.ip(*FOREIGN_IP)
    yield
    for node in lb.lab.nodes():
        node.run("nft", "delete", "table", "inet", "strange")
        node.ip(*FOREIGN_UNDO)


@pytest.mark.parametrize("forwarding", [1, 0], ids=["forwarding-on", "forwarding-off"])
def test_cleanup_leaves_every_byte_as_before_the_agents(lb, strangers, forwarding):
    nodes = lb.lab.nodes()
    lb.stop()
    for node in nodes:
        lb.cleanup(node.name)
    node, strict = lb.node("a"), lb.node("a").sysctl("net.ipv4.conf.enp1s0.rp_filter")
    node.sysctl("net.ipv4.ip_forward", forwarding)
    node.sysctl("net.ipv4.conf.enp1s0.rp_filter", strict)   # switching forwarding resets it
    try:
        before = {each.name: snapshot(each) for each in nodes}
        lb.start()
        with lb.having("b"):
            lb.lead(lb.b)
            one, other = lb.service("b1", "a1"), lb.service("c1", "b1", address=SPARE)
            for proto in PROTOCOLS:
                lb.wait_served("client", proto, SPARE, other.port)
                lb.served("client", proto, HELD, one.port, ["a1", "b1"], CLIENT)
        lb.stop()
        for each in nodes:
            assert owned(each), "stopping must leave the kernel's state"
            lb.cleanup(each.name)
        for each in nodes:
            after = snapshot(each)
            for command, said in before[each.name].items():
                assert after[command] == said, f"{command} on {each.name}"
    finally:
        node.sysctl("net.ipv4.ip_forward", 1)
        node.sysctl("net.ipv4.conf.enp1s0.rp_filter", strict)


def test_without_the_feature_all_of_it_goes(lb, services):
    """The next start, with PortMaps alone, takes away what it does not want any more."""
    lb.stop()
    lb.start_agents(("--features", "portmap"))
    for node in lb.lab.nodes():
        wait_until(lambda node=node: not {key: held for key, held in owned(node).items()
                                          if key in ("links", "rules")}, 5,
                   lambda node=node: f"{node.name} to hold nothing: {owned(node)}")
    lb.refused("client", "tcp", HELD, services["b1"].port)
    for node in lb.lab.nodes():
        lb.wait_annotation(node.name, ADDRESSES, "")
        lb.wait_annotation(node.name, OVERLAY, "")
