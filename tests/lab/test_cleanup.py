"""`portolan cleanup` gives the host back as it was, with strangers' objects around."""

import pytest

from world import EDGE, EDGE6, leftovers, owned, snapshot

FOREIGN_NFT = """table inet strange {
 set portolan { type ipv4_addr; flags interval; elements = { 192.0.2.0/24, 198.18.0.0/15 }; }
 map target4 { type ipv4_addr . inet_service : ipv4_addr . inet_service
  elements = { 192.0.2.1 . 80 : 192.0.2.2 . 81 }
 }
 chain mangle { type filter hook prerouting priority mangle; policy accept;
  ip saddr @portolan counter mark set 0x6b700000
 }
}
table ip portolan {
 chain nat { type nat hook prerouting priority dstnat; policy accept;
  tcp dport 4999 dnat to 192.0.2.1
 }
}
"""
FOREIGN_IP = ["link add pl99 type vxlan id 99 remote 192.0.2.1 dstport 4999 dev enp1s0",
              "link set pl99 up", "addr add 192.0.2.129/31 dev pl99",
              "rule add pref 101 fwmark 0x99 lookup main",
              "rule add pref 103 from 192.0.2.9 lookup 205",
              "route add 192.0.2.32/28 dev enp1s0 table 205", "route add unreachable 192.0.2.48/28"]
FOREIGN_UNDO = ["link del pl99", "rule del pref 101 fwmark 0x99",
                "rule del pref 103 from 192.0.2.9", "route del 192.0.2.32/28 table 205",
                "route del unreachable 192.0.2.48/28"]


@pytest.fixture
def strangers(lab):
    """Tables, sets, links, rules and routes of others, with names and numbers close to ours."""
    for node in lab.nodes():
        node.nft(FOREIGN_NFT)
        node.ip(*FOREIGN_IP)
    yield
    for node in lab.nodes():
        node.run("nft", "delete", "table", "inet", "strange")
        node.run("nft", "delete", "table", "ip", "portolan")
        node.ip(*FOREIGN_UNDO)


def use(world):
    """Mappings near and far, both families, with traffic."""
    world.public({"edge-a": ["enp1s0", "wt0"], "worker-c": ["enp1s0"]}, servingMode="Multi")
    for proto in ("tcp", "udp"):
        world.expose(f"near-{proto}", ["a1"], proto, 3000, families=(4, 6))
        world.expose(f"far-{proto}", ["b1"], proto, 3010, families=(4, 6))
        world.sees_client(proto, EDGE, 3000, "a1")
        world.sees_client(proto, EDGE6, 3010, "b1")


def compare(before, after):
    for name in before:
        for command in before[name]:
            assert after[name][command] == before[name][command], f"{command} on {name}"


@pytest.mark.parametrize("forwarding", ["1", "0"], ids=["forwarding-on", "forwarding-off"])
def test_cleanup_leaves_every_byte_as_before_the_agent(strangers, world, forwarding):
    lab = world.lab
    edge = lab.node("edge-a")
    edge.sysctl("net.ipv4.ip_forward", forwarding)
    edge.sysctl("net.ipv4.conf.enp1s0.rp_filter", 2)    # switching forwarding resets it
    try:
        before = {node.name: snapshot(node) for node in lab.nodes()}
        world.start_agents()
        use(world)
        for agent in world.agents():
            assert agent.stop() == 0
            assert owned(lab.node(agent.node)), "stopping must leave the kernel's state"
            world.cleanup(agent.node)
        compare(before, {node.name: snapshot(node) for node in lab.nodes()})
    finally:
        edge.sysctl("net.ipv4.ip_forward", 1)
        edge.sysctl("net.ipv4.conf.enp1s0.rp_filter", 2)


def test_strangers_objects_are_never_touched_while_the_agent_works(strangers, cluster):
    lab = cluster.lab

    def theirs(node):
        return (node.out("nft", "-s", "list", "table", "inet", "strange"),
                node.out("nft", "-s", "list", "table", "ip", "portolan"),
                node.out("ip", "addr", "show", "dev", "pl99"),
                node.out("ip", "route", "show", "table", "205"))

    before = {node.name: theirs(node) for node in lab.nodes()}
    use(cluster)
    assert {node.name: theirs(node) for node in lab.nodes()} == before
    assert "fwmark 0x99" in lab.node("edge-a").out("ip", "rule")


def test_dry_run_names_what_it_would_remove_and_removes_nothing(cluster):
    use(cluster)
    for agent in cluster.agents():
        assert agent.stop() == 0
    node = cluster.lab.node("edge-a")
    before = owned(node)
    said = cluster.cleanup("edge-a", "--dry-run")
    assert "portolan" in said and "pl4242" in said
    assert owned(node) == before
    cluster.sees_client("tcp", EDGE, 3000, "a1")


def test_cleanup_of_a_node_that_holds_nothing_succeeds(world):
    before = snapshot(world.lab.node("edge-a"))
    world.cleanup("edge-a")
    assert snapshot(world.lab.node("edge-a")) == before


def test_cleanup_twice(cluster):
    use(cluster)
    for agent in cluster.agents():
        assert agent.stop() == 0
        world_left = leftovers(cluster.lab)
        assert world_left
        for _ in range(2):
            cluster.cleanup(agent.node)
    assert leftovers(cluster.lab) == {}
