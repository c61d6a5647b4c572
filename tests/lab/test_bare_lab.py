"""The lab alone, no agent: what the other tests take for granted is so."""

import os

import pytest

from lab import Lab, mesh, procs, wait_until
from lab.hammer import Hammer

EDGE, EDGE6 = "203.0.113.9", "2001:db8:113::9"
CLIENT = "198.51.100.7"
HOME_C = "192.0.2.22"

pytestmark = pytest.mark.usefixtures("quiet_nodes")

FORWARD_TO_A1 = """table ip bare {
 chain pre { type nat hook prerouting priority dstnat; policy accept;
  ip daddr 203.0.113.9 meta l4proto { tcp, udp } th dport 3000 dnat to %s:8080
 }
}
"""


@pytest.fixture
def forwarded(lab):
    """edge-a forwards port 3000 to pod a1 as any simple port forward would."""
    edge = lab.node("edge-a")
    edge.nft(FORWARD_TO_A1 % lab.pod("a1").address())
    yield edge
    edge.run("nft", "delete", "table", "ip", "bare")
    edge.flush_conntrack()


def test_every_node_reaches_every_other_over_the_mesh(lab):
    for a in lab.nodes():
        for b in lab.nodes():
            if a.name != b.name:
                a.run("ip", "route", "get", lab.mesh_address(b.name))
                found = lab.probe("tcp", lab.mesh_address(b.name), 9, source=a.name)
                assert found.error == "refused", (a.name, b.name, found)


def test_a_foreign_source_does_not_cross_the_mesh(lab):
    """WireGuard holds one /32 per peer, so a client's own address cannot travel in it."""
    edge, worker = lab.node("edge-a"), lab.node("worker-b")
    edge.nft(FORWARD_TO_A1.replace("%s:8080", "100.64.93.2:9"))
    worker.nft("table ip bare { chain c { type filter hook prerouting priority -400;"
               f" ip saddr {CLIENT} counter comment \"foreign\"; }}; }}")
    try:
        assert lab.probe("tcp", EDGE, 3000, timeout=0.5).error == "timeout"
        assert "packets 0" in worker.out("nft", "list", "table", "ip", "bare")
    finally:
        edge.run("nft", "delete", "table", "ip", "bare")
        worker.run("nft", "delete", "table", "ip", "bare")


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_cilium_masquerade_hides_the_client(lab, forwarded, proto):
    found = lab.probe(proto, EDGE, 3000)
    assert (found.pod, found.peer) == ("a1", "10.244.1.1")


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_flannel_masquerade_leaves_the_client_on_the_same_node(lab, forwarded, proto):
    lab.masquerade("edge-a", "flannel")
    try:
        found = lab.probe(proto, EDGE, 3000)
        assert (found.pod, found.peer) == ("a1", CLIENT)
    finally:
        lab.masquerade("edge-a", "cilium")


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_host_firewall_drops_new_connections(lab, forwarded, proto):
    lab.firewall("edge-a")
    try:
        assert lab.probe(proto, EDGE, 3000, timeout=0.3).error == "timeout"
    finally:
        lab.firewall("edge-a", on=False)
    assert lab.probe(proto, EDGE, 3000).answered


@pytest.fixture
def losing(forwarded):
    """losing(match): from now on edge-a drops what matches; returns how to ask how many."""
    def lose(match):
        forwarded.nft("table inet losing { counter lost { }; chain early {"
                      " type filter hook prerouting priority -400;"
                      f" tcp dport 3000 {match} counter name lost drop; }}; }}")
        return lambda: int(forwarded.out("nft", "list", "counters", "table", "inet",
                                         "losing").split("packets")[1].split()[0])
    yield lose
    forwarded.run("nft", "delete", "table", "inet", "losing", check=False)


def test_a_hammer_tells_of_a_first_packet_that_was_lost(lab, losing):
    lost = losing("tcp flags == syn limit rate 1/hour burst 1 packets")
    connects = Hammer(lab.client.ns, EDGE, 3000).stop()
    assert lost() == 1
    assert [(c.again, c.error) for c in connects] == [(1, None)] + [(0, None)] * (len(connects) - 1)


def test_a_hammer_does_not_take_a_connection_of_before_for_a_loss(lab, losing):
    """The pod hears of no connection's end, and each new one comes from the same port."""
    key = "net.ipv4.ip_local_port_range"
    ports = lab.client.sysctl(key)
    lab.client.sysctl(key, "40000 40001")
    try:
        lost = losing("tcp flags & (rst | ack) == rst | ack")
        hammer = Hammer(lab.client.ns, EDGE, 3000)
        wait_until(lambda: lost() >= 10, 5, "ten connections")
        connects = hammer.stop()
    finally:
        lab.client.sysctl(key, ports)
    assert sum(connect.retransmits for connect in connects) >= 5, connects
    assert not [connect for connect in connects if connect.again or connect.error]


@pytest.mark.parametrize("address", [EDGE, EDGE6])
@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_without_an_agent_a_port_of_the_edge_refuses(lab, proto, address):
    assert lab.probe(proto, address, 3000).error == "refused"


def test_home_router_forwards_only_what_it_says(lab):
    lab.host_network_pod("home", "worker-c", ports=[3000, 5000])
    worker = lab.node("worker-c")
    try:
        # Its answer would follow worker-c's default into the mesh; a second route lets it out.
        worker.ip("rule add pref 50 from 192.168.3.20 lookup main")
        assert lab.probe("tcp", HOME_C, 3000).peer == CLIENT
        assert lab.probe("tcp", HOME_C, 5000, timeout=0.3).error == "timeout"
    finally:
        worker.ip("rule del pref 50")
        lab.remove_host_network_pod("home")


def test_an_answer_that_follows_the_workers_default_is_lost(lab):
    lab.host_network_pod("home", "worker-c", ports=[3000])
    try:
        assert lab.probe("tcp", HOME_C, 3000, timeout=0.5).error == "timeout"
    finally:
        lab.remove_host_network_pod("home")


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("pod", ["a1", "b1", "c1"])
def test_a_pod_answers_on_its_node(lab, pod, family):
    target = lab.pod(pod)
    for proto in ("tcp", "udp"):
        found = lab.probe(proto, target.address(family), 8080, source=target.node)
        assert found.pod == pod and found.reply_matches


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_a_stream_counts_both_directions(lab, proto):
    stream = lab.stream(proto, lab.pod("b1").address(), 8080, source="b2", push=True)
    stream.wait_answer()
    before = len(lab.node("worker-b").conntrack())
    report = stream.stop()
    assert before and report.nothing_lost and report.pods == ["b1"] and report.pushes > 0


def test_a_moved_pod_has_another_address_and_serves(lab):
    old = lab.pod("a2").address()
    try:
        new = lab.move_pod("a2", "worker-b")
        assert new.address() != old
        assert lab.probe("tcp", new.address(), 8080, source="worker-b").pod == "a2"
    finally:
        lab.move_pod("a2", "edge-a")


def test_two_instances_do_not_meet_and_down_leaves_nothing(lab):
    with Lab(name=lab.name + "x") as other:
        assert other.probe("tcp", other.pod("a1").address(), 8080, source="edge-a").pod == "a1"
        state, namespace = other.state, other.ns("edge-a")
        pids = [other.processes.running(label) for label in other.processes.labels()]
        began = {pid: procs.start_time(pid) for pid in pids}
    assert not os.path.exists(state) and not os.path.exists(f"/run/netns/{namespace}")
    assert all(began.values()) and not [pid for pid in pids if procs.runs(pid, began[pid])]
    assert lab.probe("tcp", lab.pod("a1").address(), 8080, source="edge-a").pod == "a1"


def test_a_failed_up_cleans_up(lab, monkeypatch):
    monkeypatch.setattr(mesh, "configure", lambda *_: 1 / 0)
    other = Lab(name=lab.name + "f")
    with pytest.raises(ZeroDivisionError):
        other.up()
    assert not os.path.exists(other.state)
    assert not [n for n in os.listdir("/run/netns") if n.startswith(other.ns(""))]
