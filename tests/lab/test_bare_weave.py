"""The topology `weave` alone, no agent: what a held address must cope with is there."""

import pytest

from lab import wait_until
from lab.witness import witness

EDGE, NODE_B, CLIENT = "203.0.113.9", "203.0.113.137", "198.51.100.7"
PROTOCOLS = ("tcp", "udp")

pytestmark = pytest.mark.folder_only("no agent runs")

# A port forward as anybody would write it, and what keeps a CNI from hiding the client.
FORWARD = """table ip bare {
 chain pre { type nat hook prerouting priority dstnat; policy accept;
  ip daddr 203.0.113.9 meta l4proto { tcp, udp } th dport 3000 dnat to %s:8080
 }
}
"""
CLAIM = """table ip bare {
 chain claim { type nat hook postrouting priority 90; policy accept;
  ip saddr 198.51.100.7 ip daddr 10.32.0.0/16 snat to 198.51.100.7
 }
}
"""


@pytest.fixture
def weave(weave_lab):
    yield weave_lab
    for node in weave_lab.nodes():
        node.run("nft", "delete", "table", "ip", "bare", check=False)
        node.sysctl("net.bridge.bridge-nf-call-iptables", 0)
    weave_lab.flush_conntrack()


def forward(weave, pod, claim=True):
    edge = weave.node("edge-a")
    edge.nft(FORWARD % weave.pod(pod).address())
    if claim:
        edge.nft(CLAIM)


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_pods_of_all_nodes_are_on_one_segment(weave, proto):
    """Their packets are bridged: no node's IP sees them, so long as nobody asks for it."""
    with witness(weave.node("edge-a"), "prerouting", -400, seen="ip daddr 10.32.2.2") as edge, \
            witness(weave.node("node-b"), "prerouting", -400, seen="ip daddr 10.32.2.2") as far:
        found = weave.probe(proto, weave.pod("b1").address(), 8080, source="a1")
        assert (found.pod, found.peer) == ("b1", weave.pod("a1").address())
        assert edge["seen"] == far["seen"] == 0
    weave.node("node-b").sysctl("net.bridge.bridge-nf-call-iptables", 1)
    with witness(weave.node("node-b"), "prerouting", -400,
                 seen='iifname "weave" ip daddr 10.32.2.2') as far:
        assert weave.probe(proto, weave.pod("b1").address(), 8080, source="a1").pod == "b1"
        assert far["seen"] > 0


@pytest.mark.parametrize("pod", ["a1", "b1"])
@pytest.mark.parametrize("proto", PROTOCOLS)
def test_the_holders_masquerade_hides_the_client(weave, proto, pod):
    forward(weave, pod, claim=False)
    found = weave.probe(proto, EDGE, 3000)
    assert (found.pod, found.peer) == (pod, "10.32.1.1")


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_a_claim_shows_the_client_to_a_pod_of_the_holder(weave, proto):
    forward(weave, "a1")
    found = weave.probe(proto, EDGE, 3000)
    assert (found.pod, found.peer) == ("a1", CLIENT)


def test_the_answer_of_a_pod_elsewhere_leaves_by_its_own_node(weave):
    """By the way out that node has, from an address that the client did not dial."""
    forward(weave, "b1")
    with witness(weave.node("node-b"), "postrouting", -400,
                 left=f'oifname "enp1s0" ip daddr {CLIENT}') as far:
        assert weave.probe("tcp", EDGE, 3000, timeout=0.5).error == "timeout"
        assert far["left"] > 0


def test_the_masquerade_of_the_pods_node_takes_bridged_packets_too(weave):
    """As soon as bridged packets pass by netfilter, which marking them needs."""
    forward(weave, "b1")
    node = weave.node("node-b")
    node.sysctl("net.bridge.bridge-nf-call-iptables", 1)
    stream = weave.stream("udp", EDGE, 3000)
    try:
        wait_until(lambda: any("dst=10.32.2.1 " in f"{line} " for line in node.conntrack()), 5,
                   lambda: f"a translated source: {node.conntrack()}")
    finally:
        stream.stop()


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_the_firewall_of_node_b_drops_new_connections(weave, proto):
    assert weave.probe(proto, NODE_B, 3000, timeout=0.3).error == "timeout"
    assert weave.probe(proto, EDGE, 3000).error == "refused"
    assert weave.probe(proto, weave.pod("b1").address(), 8080, source="node-b").pod == "b1"
