"""Classes: conflicts, nodes that leave, interfaces that come, addresses and MTUs that change."""

import pytest

from lab import wait_until
from world import CLIENT, EDGE, EDGE6, HOME_C, NAMESPACE, elements, links, owned

SECOND = {"returnPath": {"mode": "Vxlan", "vxlan": {
    "vni": 4300, "subnet": "169.254.78.0/24", "subnet6": "fd64:f5ac:e962::/112"}}}


def test_a_conflict_across_classes_goes_to_the_earlier_mapping(cluster):
    cluster.public()
    cluster.public(name="other", **SECOND)
    cluster.expose("first", ["a1"], "tcp", 3000)
    cluster.service("second", ["a2"], [("main", "TCP", 8080)])
    cluster.objects.younger()
    cluster.portmap("second", "tcp", 3000, "other")
    message = cluster.refused_with("second", "Accepted", "PortConflict")
    assert f"{NAMESPACE}/first" in message
    cluster.sees_client("tcp", EDGE, 3000, "a1")
    cluster.objects.delete("PortMap", "first", NAMESPACE)
    cluster.programmed("second")
    cluster.sees_client("tcp", EDGE, 3000, "a2")


def test_two_classes_with_links_to_one_pod_node_keep_their_replies_apart(cluster):
    """Each class counts its slots from zero, but mark and table belong to the pod's node."""
    cluster.public()
    cluster.public({"worker-c": ["enp1s0"]}, name="other", **SECOND)
    for proto in ("tcp", "udp"):
        cluster.expose(f"edge-{proto}", ["b1"], proto, 3000)
        cluster.expose(f"home-{proto}", ["b1"], proto, 3100, class_name="other")
        for _ in range(2):
            cluster.sees_client(proto, EDGE, 3000, "b1")
            cluster.sees_client(proto, HOME_C, 3100, "b1")


def test_a_range_conflicts_where_it_overlaps(cluster):
    cluster.public()
    cluster.expose("range", ["a1"], "udp", 3200, target=3200, endPort=3210)
    cluster.service("inside", ["a2"], [("main", "UDP", 8080)])
    cluster.objects.younger()
    cluster.portmap("inside", "udp", 3210)
    assert f"{NAMESPACE}/range" in cluster.refused_with("inside", "Accepted", "PortConflict")


def test_one_port_serves_two_mappings_on_different_interfaces(cluster):
    cluster.public({"edge-a": ["enp1s0", "wt0"]})
    cluster.expose("outer", ["a1"], "tcp", 3000, interfaces=["enp1s0"])
    cluster.expose("inner", ["a2"], "tcp", 3000, interfaces=["wt0"])
    cluster.sees_client("tcp", EDGE, 3000, "a1")
    cluster.sees_client("tcp", cluster.lab.mesh_address("edge-a"), 3000, "a2", source="worker-c",
                        peer=cluster.lab.mesh_address("worker-c"))


def test_a_mapping_does_not_answer_on_an_interface_it_does_not_name(cluster):
    """Neither on that interface's address, nor for its own address arriving there."""
    cluster.public({"edge-a": ["enp1s0", "wt0"]})
    cluster.expose("inner", ["a1"], "tcp", 3000, interfaces=["wt0"])
    assert cluster.lab.probe("tcp", EDGE, 3000).error == "refused"
    router = cluster.lab.host("inet")
    mesh = cluster.lab.mesh_address("edge-a")
    router.ip(f"route add {mesh}/32 via {EDGE}")
    try:
        assert cluster.lab.probe("tcp", mesh, 3000, timeout=0.5).error in ("refused", "timeout")
    finally:
        router.ip(f"route del {mesh}/32")


def test_a_node_that_leaves_the_class_gives_up_everything(cluster):
    lab = cluster.lab
    cluster.public({"edge-a": ["enp1s0"], "worker-c": ["enp1s0"]}, servingMode="Multi")
    cluster.expose("web", ["b1"], "tcp", 3000)
    cluster.sees_client("tcp", EDGE, 3000, "b1")
    cluster.sees_client("tcp", HOME_C, 3000, "b1")
    cluster.public({"worker-c": ["enp1s0"]}, servingMode="Multi")
    cluster.wait_error("tcp", EDGE, 3000, "refused")
    edge = lab.node("edge-a")
    wait_until(lambda: not links(edge) and not elements(edge, "target4"), 5,
               lambda: f"edge-a to hold nothing; it holds {owned(edge)}")
    wait_until(lambda: len(links(lab.node("worker-b"))) == 1, 5, "worker-b to drop its link")
    wait_until(lambda: not cluster.status.node_row("public", "edge-a"), 5, "its row to go")
    cluster.sees_client("tcp", HOME_C, 3000, "b1")


def test_an_interface_that_is_missing_and_then_appears(cluster):
    lab = cluster.lab
    edge = lab.node("edge-a")
    cluster.public({"edge-a": ["enp1s0", "lan0"]})
    cluster.service("web", ["a1"], [("main", "TCP", 8080)])
    cluster.portmap("web", "tcp", 3000)
    wait_until(lambda: "lan0" in cluster.refused_with("web", "Programmed", "NodeNotReady"), 5,
               "the message to name the interface")
    def row():
        found = cluster.status.node_row("public", "edge-a")
        return found.get("ready"), found.get("message")
    wait_until(lambda: row() == (False, "interface lan0 not present"), 5, lambda: f"its row: {row()}")
    edge.add_link("lan0", ["192.0.2.65/28"], "client", "lan", ["192.0.2.66/28"])
    try:
        cluster.programmed("web")
        assert ("edge-a", "lan0", "192.0.2.65") in cluster.published("web")
        cluster.sees_client("tcp", "192.0.2.65", 3000, "a1", peer="192.0.2.66")
        cluster.sees_client("tcp", EDGE, 3000, "a1")
    finally:
        edge.delete_link("lan0")
    cluster.refused_with("web", "Programmed", "NodeNotReady")


def test_an_address_of_an_interface_changes(cluster):
    edge = cluster.lab.node("edge-a")
    edge.add_link("lan0", ["192.0.2.65/28"], "client", "lan", ["192.0.2.66/28"])
    try:
        cluster.public({"edge-a": ["lan0"]})
        cluster.expose("web", ["a1"], "tcp", 3000)
        edge.change_address("lan0", "192.0.2.65/28", "192.0.2.70/28")
        cluster.wait_answer("tcp", "192.0.2.70", 3000, "a1")
        wait_until(lambda: cluster.published("web") == [("edge-a", "lan0", "192.0.2.70")], 5,
                   lambda: f"the new address to be published: {cluster.published('web')}")
    finally:
        edge.delete_link("lan0")


def test_a_nodes_internal_ip_changes(cluster):
    lab = cluster.lab
    worker, new = lab.node("worker-b"), "100.64.93.12"
    cluster.public()
    cluster.expose("web", ["b1"], "tcp", 3000)
    stream = lab.stream("tcp", EDGE, 3000, push=True).wait_answer()
    worker.ip(f"addr add {new}/24 dev wt0")
    lab.mesh_allow("worker-b", [lab.mesh_address("worker-b"), new])
    try:
        cluster.objects.node("worker-b", new)
        wait_until(lambda: [link["remote"] for link in links(lab.node("edge-a")).values()] == [new],
                   5, lambda: f"the link to lead to {new}: {links(lab.node('edge-a'))}")
        wait_until(lambda: [link["local"] for link in links(worker).values()] == [new],
                   5, lambda: f"the link to start at {new}: {links(worker)}")
        cluster.sees_client("tcp", EDGE, 3000, "b1")
        report = stream.stop()
        assert report.nothing_lost, report
    finally:
        worker.ip(f"addr del {new}/24 dev wt0")
        lab.mesh_allow("worker-b", [lab.mesh_address("worker-b")])


def link_mtus(lab):
    return {end: [link["mtu"] for link in links(lab.node(end)).values()]
            for end in ("edge-a", "worker-b")}


def wait_mtus(lab, edge, worker):
    wanted = {"edge-a": [edge], "worker-b": [worker]}
    wait_until(lambda: link_mtus(lab) == wanted, 5,
               lambda: f"link MTUs {wanted}; they are {link_mtus(lab)}")


@pytest.mark.parametrize("node", ["worker-b", "edge-a"])
def test_the_end_with_the_smaller_mtu_decides(cluster, node):
    """Both nodes accept, so both report what their underlay carries."""
    lab = cluster.lab
    cluster.public({"edge-a": ["enp1s0"], "worker-b": ["enp1s0"]}, servingMode="Multi")
    for proto in ("tcp", "udp"):
        cluster.expose(proto, ["b1"], proto, 3000)
    wait_mtus(lab, 1350, 1350)
    stream = lab.stream("tcp", EDGE, 3000, push=True).wait_answer()
    lab.node(node).set_mtu("wt0", 1340)
    try:
        wait_mtus(lab, 1290, 1290)
        large_transfers(cluster)
    finally:
        lab.node(node).set_mtu("wt0", lab.topology.mesh.mtu)
    wait_mtus(lab, 1350, 1350)
    assert stream.stop().nothing_lost


def large_transfers(cluster):
    cluster.sees_client("tcp", EDGE, 3000, "b1", size=1_000_000, timeout=30)
    cluster.wait_answer("udp", EDGE, 3000, "b1", size=1400, may_fragment=True)


def test_a_pod_node_that_does_not_accept_uses_its_own_smaller_mtu(cluster):
    """It has no row to report in, so its peer keeps its own figure."""
    lab = cluster.lab
    cluster.public()
    for proto in ("tcp", "udp"):
        cluster.expose(proto, ["b1"], proto, 3000)
    lab.node("worker-b").set_mtu("wt0", 1340)
    try:
        wait_mtus(lab, 1350, 1290)
        large_transfers(cluster)
    finally:
        lab.node("worker-b").set_mtu("wt0", lab.topology.mesh.mtu)
    wait_mtus(lab, 1350, 1350)


def test_a_link_below_1280_bytes_carries_ipv4_only(cluster):
    lab = cluster.lab
    cluster.public()
    lab.node("edge-a").set_mtu("wt0", 1320)
    try:
        cluster.expose("web", ["b1"], "tcp", 3000, families=(4, 6))
        wait_until(lambda: [link["mtu"] for link in links(lab.node("edge-a")).values()] == [1270],
                   5, "the link to have 1270 bytes")
        cluster.sees_client("tcp", EDGE, 3000, "b1")
        assert not lab.probe("tcp", EDGE6, 3000, timeout=0.5).answered
    finally:
        lab.node("edge-a").set_mtu("wt0", lab.topology.mesh.mtu)
    cluster.wait_answer("tcp", EDGE6, 3000, "b1")


def test_mode_none_refuses_what_needs_a_link_and_serves_the_rest(cluster):
    lab = cluster.lab
    cluster.public(returnPath={"mode": "None"})
    cluster.expose("near", ["a1"], "tcp", 3000)
    cluster.service("far", ["b1"], [("main", "TCP", 8080)])
    cluster.portmap("far", "tcp", 3100)
    cluster.refused_with("far", "Programmed", "ReturnPathUnavailable")
    cluster.sees_client("tcp", EDGE, 3000, "a1")
    assert not lab.probe("tcp", EDGE, 3100, timeout=0.5).answered
    assert len(elements(lab.node("edge-a"), "target4")) == 1
    assert not links(lab.node("edge-a")) and not links(lab.node("worker-b"))
    assert cluster.status.links("public") == {}


def test_an_edge_whose_default_leads_into_the_mesh_still_answers(cluster):
    """worker-c accepts: its replies must leave where the client came in."""
    cluster.public({"worker-c": ["enp1s0"]})
    for proto in ("tcp", "udp"):
        cluster.expose(f"near-{proto}", ["c1"], proto, 3000)
        cluster.expose(f"far-{proto}", ["b1"], proto, 3100)
        cluster.sees_client(proto, HOME_C, 3000, "c1")
        cluster.sees_client(proto, HOME_C, 3100, "b1")


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_one_client_port_dials_two_edges_at_once(cluster, proto):
    """Multi: each answer goes back by the link its flow came in by."""
    cluster.public({"edge-a": ["enp1s0"], "worker-c": ["enp1s0"]}, servingMode="Multi")
    cluster.expose("web", ["b1"], proto, 3000)
    streams = [cluster.lab.stream(proto, address, 3000, push=True, source_port=45100)
               for address in (EDGE, HOME_C)]
    for stream in streams:
        stream.wait_answer()
    for stream in streams:
        report = stream.stop()
        assert report.nothing_lost and report.peers == [CLIENT], report
