"""The agent dies, is stopped, is replaced: the traffic does not notice."""

import os
import time

import pytest

from lab import wait_until
from world import CLIENT, CLIENT6, EDGE, EDGE6, elements, links, table_text

KILL_SECONDS = float(os.environ.get("PORTOLAN_KILL_SECONDS", "60"))
KILL_EVERY = 0.2


@pytest.fixture
def serving(cluster):
    """Near and far mappings for tcp and udp, IPv4 and IPv6: ports 3000 (a1) and 3010 (b1)."""
    cluster.public()
    for proto in ("tcp", "udp"):
        cluster.expose(f"near-{proto}", ["a1"], proto, 3000, families=(4, 6))
        cluster.expose(f"far-{proto}", ["b1"], proto, 3010, families=(4, 6))
    return cluster


@pytest.fixture
def streams(serving):
    """Numbered streams both ways through every mapping; stop() gives their reports."""
    running = [serving.lab.stream(proto, address, port, push=True)
               for proto in ("tcp", "udp") for port in (3000, 3010) for address in (EDGE, EDGE6)]
    for stream in running:
        stream.wait_answer()
    return running


def assert_nothing_lost(streams):
    reports = [stream.stop() for stream in streams]
    lost = [report for report in reports if not report.nothing_lost]
    assert not lost, "\n".join(map(str, lost))
    assert {peer for report in reports for peer in report.peers} == {CLIENT, CLIENT6}


def test_killed_every_200_ms_nothing_is_lost(serving, streams):
    agents = serving.agents()
    end = time.monotonic() + KILL_SECONDS
    following, kills = time.monotonic(), 0
    while time.monotonic() < end:
        for agent in agents:
            assert agent.returncode is None, f"{agent.node} ended by itself:\n{agent.log()[-2000:]}"
            agent.kill()
            agent.restart()
            kills += 1
        following += KILL_EVERY
        time.sleep(max(0, following - time.monotonic()))
    assert kills >= 0.5 * len(agents) * KILL_SECONDS / KILL_EVERY
    assert_nothing_lost(streams)
    for port, pod in ((3000, "a1"), (3010, "b1")):
        serving.sees_client("tcp", EDGE, port, pod)


def test_stopped_and_started_again_nothing_is_lost_and_nothing_is_rebuilt(serving, streams):
    lab = serving.lab
    def identity():
        """Handles of the table's objects and numbers of the links: new ones mean rebuilt."""
        return [(node.out("nft", "-a", "-s", "list", "table", "inet", "portolan"),
                 node.out("ip", "-o", "link", "show", "type", "vxlan"),
                 node.out("ip", "rule"), node.out("ip", "route", "show", "table", "all"))
                for node in lab.nodes()]

    before = identity()
    for agent in serving.agents():
        assert agent.stop() == 0, agent.log()
    time.sleep(0.5)     # without an agent everything goes on
    serving.start_agents()
    serving.expose("later", ["a2"], "tcp", 3100)
    serving.objects.delete("PortMap", "later", "games")
    wait_until(lambda: identity() == before, 5,
               lambda: f"the same objects as before:\n{before}\nnow:\n{identity()}")
    assert_nothing_lost(streams)


def test_changes_made_while_it_was_away_are_made_at_the_start(serving, lab):
    for agent in serving.agents():
        assert agent.stop() == 0
    serving.move("near-tcp", ["a2"], "tcp", families=(4, 6))
    serving.move("far-tcp", [], "tcp", families=(4, 6))
    serving.objects.delete("PortMap", "near-udp", "games")
    serving.start_agents()
    serving.wait_answer("tcp", EDGE, 3000, "a2")
    serving.wait_error("tcp", EDGE, 3010, "refused")
    serving.wait_error("udp", EDGE, 3000, "refused")
    serving.sees_client("udp", EDGE, 3010, "b1")


def test_another_version_of_the_table_is_replaced_and_nothing_is_lost(serving, streams):
    """What an older program left: other chains, other sets, a rule fewer."""
    lab = serving.lab
    wanted = {node.name: table_text(node) for node in lab.nodes()}
    for agent in serving.agents():
        assert agent.stop() == 0
    for node in lab.nodes():
        node.nft("""add set inet portolan older { type ipv4_addr; elements = { 192.0.2.1 }; }
add chain inet portolan older { type filter hook forward priority 7; policy accept; }
add rule inet portolan older ip daddr @older counter comment "of an older version"
""")
    serving.start_agents()
    for node in lab.nodes():
        wait_until(lambda: table_text(node) == wanted[node.name], 5,
                   lambda: f"{node.name} to hold its own table again:\n{table_text(node)}")
    assert_nothing_lost(streams)


@pytest.fixture
def other_nat(lab):
    """NAT that `nft flush ruleset` does not touch (iptables-legacy), as some CNIs have it.

    Without any NAT chain in the kernel established connections are not translated: their next
    packet meets the host, which resets them before anybody can react.
    """
    rule = ["POSTROUTING", "-s", "10.9.9.9", "-j", "MASQUERADE"]
    for node in lab.nodes():
        for command in ("iptables-legacy", "ip6tables-legacy"):
            source = rule if command == "iptables-legacy" else [
                word.replace("10.9.9.9", "fd09::9") for word in rule]
            done = node.run(command, "-w", "-t", "nat", "-A", *source, check=False)
            if done.returncode != 0:
                pytest.skip(f"{command}: {done.stderr.strip()}")
    yield
    for node in lab.nodes():
        node.run("iptables-legacy", "-w", "-t", "nat", "-F", check=False)
        node.run("ip6tables-legacy", "-w", "-t", "nat", "-F", check=False)


@pytest.mark.parametrize("name", ["edge-a", "worker-b"])
def test_streams_resume_within_a_second_after_flush_ruleset(serving, other_nat, streams, lab, name):
    node = lab.node(name)
    node.run("nft", "flush", "ruleset")
    try:
        wait_until(lambda: elements_or_none(node), 1, "the table to be back")
        for proto in ("tcp", "udp"):
            serving.wait_answer(proto, EDGE, 3000, "a1", timeout=1)
            serving.wait_answer(proto, EDGE, 3010, "b1", timeout=1)
        time.sleep(1)   # streams have this long to show that they go on
        reports = [stream.stop() for stream in streams]
        for report in reports:
            assert report.ended == "ok" and report.longest_gap < 1, report
            assert report.echoed > 0.5 * report.sent, report
        for report in reports[:4]:
            assert report.proto == "tcp" and report.nothing_lost, report
    finally:
        lab.masquerade(name, lab.topology.hosts[name].masquerade)


def elements_or_none(node):
    done = node.run("nft", "list", "map", "inet", "portolan", "target4", check=False)
    return done.returncode == 0 and elements(node, "target4")


@pytest.mark.parametrize("name", ["edge-a", "worker-b"])
def test_flush_ruleset_without_other_nat_is_mended_within_a_second(serving, lab, name):
    """Established TCP may be reset here; everything new must work at once."""
    node = lab.node(name)
    stream = lab.stream("udp", EDGE, 3010).wait_answer()
    node.run("nft", "flush", "ruleset")
    try:
        for proto in ("tcp", "udp"):
            serving.wait_answer(proto, EDGE, 3010, "b1", timeout=1)
            serving.sees_client(proto, EDGE, 3000, "a1")
        time.sleep(1)   # the stream has this long to show that it goes on
        report = stream.stop()
        assert report.longest_gap < 1 and report.echoed > 0.4 * report.sent, report
    finally:
        lab.masquerade(name, lab.topology.hosts[name].masquerade)


def test_links_survive_a_restart_with_their_traffic(serving, lab):
    before = links(lab.node("edge-a"))
    lab.agent("edge-a").kill()
    lab.agent("edge-a").restart()
    serving.expose("later", ["b2"], "tcp", 3100)
    assert links(lab.node("edge-a")) == before
    serving.sees_client("tcp", EDGE, 3100, "b2")
