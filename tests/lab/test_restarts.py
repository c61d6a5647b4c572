"""The agent dies, is stopped, is replaced: the traffic does not notice."""

import os
import time

import pytest

from lab import seconds_until, wait_until
from world import CLIENT, CLIENT6, EDGE, EDGE6, elements, links, table_text

KILL_SECONDS = float(os.environ.get("PORTOLAN_KILL_SECONDS", "60"))
KILL_EVERY = 0.2


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
    while time.monotonic() < end or kills < 0.5 * len(agents) * KILL_SECONDS / KILL_EVERY:
        for agent in agents:
            assert agent.returncode is None, f"{agent.node} ended by itself:\n{agent.log()[-2000:]}"
            agent.kill()
            agent.restart()
            kills += 1
        following += KILL_EVERY
        time.sleep(max(0, following - time.monotonic()))
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
    try:
        flushed = flushed_and_mended(serving, lab.node(name), (3000, "a1"), (3010, "b1"))
        reports = [stream.stop() for stream in streams]
        for report in reports:
            assert report.ended == "ok" and median_silence(report, flushed) < 1, report
            assert report.echoed > 0.5 * report.sent, report
        for report in reports[:4]:
            assert report.proto == "tcp" and report.nothing_lost, report
    finally:
        lab.masquerade(name, lab.topology.hosts[name].masquerade)


def flushed_and_mended(serving, node, *expected):
    """Flushes the ruleset several times, the table is back within a second; returns the times of it.
    `expected` are ports and the pods that answer on them."""
    flushed, took = [], []
    for _ in range(3):
        flushed.append(time.monotonic())
        node.run("nft", "flush", "ruleset")
        after = time.monotonic()
        waits = [seconds_until(lambda: elements(node, "target4"), "the table to be back", after)]
        for proto in ("tcp", "udp"):
            for port, pod in expected:
                waits.append(seconds_until(
                    lambda: serving.lab.probe(proto, EDGE, port, timeout=0.2).pod == pod,
                    f"{pod} to answer", after))
        took.append(max(waits))
        time.sleep(1)   # streams have this long to show that they go on
    assert sorted(took)[1] < 1, took
    return flushed


def median_silence(report, moments):
    """Of the longest silences that the moments brought."""
    longest = [max([end - begin for begin, end in report.gaps if begin < until and end > moment],
                   default=0) for moment, until in zip(moments, [*moments[1:], time.monotonic()])]
    return sorted(longest)[len(longest) // 2]


@pytest.mark.parametrize("name", ["edge-a", "worker-b"])
def test_flush_ruleset_without_other_nat_is_mended_within_a_second(serving, lab, name):
    """Established TCP may be reset here; everything new must work at once."""
    stream = lab.stream("udp", EDGE, 3010).wait_answer()
    try:
        flushed = flushed_and_mended(serving, lab.node(name), (3000, "a1"), (3010, "b1"))
        report = stream.stop()
        assert median_silence(report, flushed) < 1 and report.echoed > 0.4 * report.sent, report
    finally:
        lab.masquerade(name, lab.topology.hosts[name].masquerade)


def test_told_to_end_while_it_starts_it_ends_cleanly(serving, lab):
    agent = lab.agent("edge-a")
    for _ in range(10):
        agent.kill()
        agent.restart()
        assert agent.stop() == 0


def test_links_survive_a_restart_with_their_traffic(serving, lab):
    before = links(lab.node("edge-a"))
    lab.agent("edge-a").kill()
    lab.agent("edge-a").restart()
    serving.expose("later", ["b2"], "tcp", 3100)
    assert links(lab.node("edge-a")) == before
    serving.sees_client("tcp", EDGE, 3100, "b2")
