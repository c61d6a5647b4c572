"""The agent comes and goes, others meddle.

Test names begin with the number of the behaviour in the service proxy's specification.
"""

import json
import os
import time

import pytest

from lab import wait_until
from lab.hammer import Hammer
from lab.nft_events import NftEvents
from proxy_world import NODE_A, PROTOCOLS

pytestmark = pytest.mark.folder_only("the objects mean the same wherever they come from")

PORT = 30080
KILL_SECONDS = float(os.environ.get("PORTOLAN_KILL_SECONDS", "60")) / 6


# Restarts

def streams_of(proxy, svc, family):
    """Numbered streams both ways by every kind of address, from inside and outside."""
    ways = (("a3", svc.ip(family), 80), ("node-a", svc.ip(family), 80),
            ("client", svc.external(family), 80), ("client", NODE_A[family], PORT))
    return [proxy.lab.stream(proto, address, port, source=source, push=True).wait_answer()
            for source, address, port in ways for proto in PROTOCOLS]


def hammers_of(proxy, svc, families=(4, 6)):
    lab = proxy.lab
    return [hammer for family in families for hammer in (
        Hammer(lab.pod("a3").ns, svc.ip(family), 80, pause=0.002),
        Hammer(lab.client.ns, NODE_A[family], PORT, pause=0.002))]


def assert_nothing_lost(streams):
    reports = [stream.stop() for stream in streams]
    assert all(report.nothing_lost for report in reports), [
        report for report in reports if not report.nothing_lost]


def restarted_in_a_loop(proxy, how):
    """Streams, new connections and remembered clients notice nothing."""
    svc = proxy.service("a1", "b1", node_port=PORT, external=True)
    sticky = proxy.service("a1", "a2", "b1", "b2", sessionAffinity="ClientIP", settle=True)
    chosen = {(source, family): proxy.dial(source, "tcp", sticky.ip(family), 80).pod
              for source in ("a3", "node-a") for family in (4, 6)}
    assert None not in chosen.values()
    streams = [stream for family in (4, 6) for stream in streams_of(proxy, svc, family)]
    hammers = hammers_of(proxy, svc)
    end, ends = time.monotonic() + KILL_SECONDS, 0
    while time.monotonic() < end or ends < KILL_SECONDS:
        how(proxy)
        ends += 1
        for (source, family), pod in chosen.items():
            proxy.served(source, "tcp", sticky.ip(family), 80, pod)
        time.sleep(0.02 * (ends % 6))       # each time at another moment of its start
    assert_nothing_lost(streams)
    connects = [connect for hammer in hammers for connect in hammer.stop()]
    wrong = [connect for connect in connects if connect.error or connect.again]
    assert len(connects) > 100 * KILL_SECONDS / 10 and not wrong, (len(connects), wrong[:10])
    assert {connect.pod for connect in connects} == {"a1", "b1"}


def test_row_47_killed_in_a_loop_nothing_is_dropped(proxy):
    def kill(proxy):
        proxy.agent.kill()
        proxy.agent.restart()
    restarted_in_a_loop(proxy, kill)


def test_row_47_stopped_in_a_loop_nothing_is_dropped(proxy):
    def stop(proxy):
        assert proxy.agent.stop() == 0
        proxy.agent.restart()
        proxy.settle()
    restarted_in_a_loop(proxy, stop)


def test_row_47_stale_objects_go_at_the_first_pass(proxy, family):
    one = proxy.service("a1", "a2", external=True)
    two = proxy.service("a1", "a2", "b1")
    proxy.agent.kill()
    one.delete()
    one.delete_endpoints()
    proxy.services.remove(one)
    proxy.endpoints(two, "b1", settle=False)
    three = proxy.service("a2", settle=False)
    proxy.start(*proxy.flags)
    proxy.dropped("a3", "tcp", one.ip(family), 80)
    assert set(proxy.pods_of("a3", "tcp", two.ip(family), 80)) == {"b1"}
    proxy.served("a3", "tcp", three.ip(family), 80, "a2")
    wait_until(lambda: one.ip(family) not in (text := proxy.table())
               and one.external(family) not in text, 5, "what is stale to be gone")
    again = proxy.table()
    proxy.agent.kill()
    proxy.agent.clear_log()
    proxy.agent.restart()
    wait_until(lambda: healthy(proxy), 5, "it to have had its first pass")
    assert {line for line in proxy.table().splitlines()} == set(again.splitlines())


def test_row_47_a_restart_changes_nothing(proxy):
    """Handles of chains and rules are the same: nothing was rebuilt."""
    proxy.service("a1", "a2", "b1", node_port=PORT, external=True, sessionAffinity="ClientIP")
    def listing():
        """With handles; without what the kernel learns of clients, whose time runs on."""
        text = proxy.host.out("nft", "-a", "-s", "list", "table", "inet", "portolan")
        return [line for line in text.splitlines() if "expires" not in line]

    before = listing()
    ruleset = NftEvents({"node-a": proxy.host.ns})
    assert proxy.agent.stop() == 0
    assert listing() == before
    proxy.agent.clear_log()
    proxy.agent.restart()
    wait_until(lambda: healthy(proxy), 5, "it to have had its first pass")
    assert listing() == before
    assert ruleset.stop() == []


def healthy(proxy):
    try:
        return proxy.fetch("127.0.0.1", 10256, "/healthz").status == 200
    except OSError:
        return False


# Others

FOREIGN = """
table inet mine {
 map service4 {
  type ipv4_addr : verdict
  elements = { 10.96.1.1 : accept }
 }
 set clusterip4 {
  type ipv4_addr
  elements = { 10.96.1.1 }
 }
 chain services {
  ip daddr vmap @service4
 }
 chain prerouting {
  type nat hook prerouting priority -100; policy accept;
  meta mark 77 accept
 }
 chain late {
  type filter hook postrouting priority 150; policy accept;
 }
}
table ip portolan {
 chain services {
 }
}
table ip6 portolan {
 chain services {
 }
}
"""


def others(host):
    """The ruleset but for our table."""
    listed = json.loads(host.out("nft", "-j", "-s", "list", "ruleset"))["nftables"]
    return [entry for entry in listed for body in entry.values()
            if (body.get("family"), body.get("table", body.get("name"))) != ("inet", "portolan")]


def test_row_49_foreign_rules_are_untouched(proxy, family):
    proxy.host.nft(FOREIGN)
    try:
        before = others(proxy.host)
        links, rules = proxy.host.out("ip", "-o", "addr"), proxy.host.out("ip", "rule")
        svc = proxy.service("a1", node_port=PORT, external=True, sessionAffinity="ClientIP")
        proxy.served("client", "tcp", NODE_A[family], PORT, "a1")
        proxy.endpoints(svc, "a2", "b1")
        proxy.restart(*proxy.flags)
        svc.delete()
        proxy.settle()
        assert others(proxy.host) == before
        assert proxy.agent.stop() == 0
        proxy.host.run(proxy.binary, "cleanup", "--state-dir", proxy.agent.state_dir)
        assert others(proxy.host) == before
        assert proxy.host.out("ip", "-o", "addr") == links
        assert proxy.host.out("ip", "rule") == rules
    finally:
        for table in ("inet mine", "ip portolan", "ip6 portolan"):
            proxy.host.run("nft", "delete", "table", *table.split(), check=False)


@pytest.mark.parametrize("harm", [
    "delete table inet portolan",
    "flush ruleset",
    "flush map inet portolan service4\nflush map inet portolan service6",
    "flush map inet portolan endpoint4\nflush map inet portolan endpoint6",
    "flush set inet portolan clusterip4\nflush map inet portolan affinityid4",
    "flush chain inet portolan services",
    "flush chain inet portolan proxy",
    "flush chain inet portolan masquerading",
    "add rule inet portolan services counter drop",
    "insert rule inet portolan services counter drop",
    "add chain inet portolan foreign { type filter hook forward priority 7; policy accept; }",
    "add element inet portolan clusterip4 { 203.0.113.9 }",
], ids=lambda harm: "-".join(harm.replace("\n", " ").split()[:5]).replace("inet-portolan-", ""))
def test_row_50_harm_is_repaired(proxy, harm):
    svc = proxy.service("a1", "b1", node_port=PORT, sessionAffinity="ClientIP")
    before = proxy.table()
    proxy.host.nft(harm + "\n")
    wait_until(lambda: proxy.table() == before, 5,
               lambda: f"the table to be as before:\n{before}\nit is:\n{proxy.table()}",
               interval=0.05)
    for family in (4, 6):
        for proto in PROTOCOLS:
            proxy.served("a3", proto, svc.ip(family), 80, ["a1", "b1"])
            proxy.served("client", proto, NODE_A[family], PORT, ["a1", "b1"], proxy.addresses())


def test_row_50_harm_to_a_class_chain_is_repaired(proxy):
    """The chain a Service's element leads to loses its rules."""
    svc = proxy.service("a1", "a2", "a3", "b1", "b2")
    number = next(element[-1] for element in proxy.elements("service4") if element[0] == svc.ip())
    chain = next(element[-1] for element in proxy.elements("classes") if element[0] == number)
    before = proxy.table()
    assert chain in before
    proxy.host.nft(f"flush chain inet portolan {chain}\n")
    wait_until(lambda: proxy.table() == before, 5, "the chain to be filled again",
               interval=0.05)
    proxy.served("a1", "tcp", svc.ip(), 80, ["a1", "a2", "a3", "b1", "b2"])
