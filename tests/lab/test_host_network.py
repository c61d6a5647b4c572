"""Pods in the node's own network: their replies are local packets of the node."""

import pytest

from world import EDGE, HOME_C


@pytest.fixture
def host_pod(lab):
    """host_pod(node) starts one; its address is the node's InternalIP, its port 9090."""
    names = []

    def start(node):
        names.append(f"host-{node}")
        return lab.host_network_pod(names[-1], node, ports=[9090, 9091])
    yield start
    for name in names:
        lab.remove_host_network_pod(name)


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_on_another_node(cluster, host_pod, proto):
    pod = host_pod("worker-b")
    cluster.public()
    cluster.expose("web", [pod], proto, 3000, target=9090)
    cluster.sees_client(proto, EDGE, 3000, pod.name)


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_on_the_accepting_node(cluster, host_pod, proto):
    pod = host_pod("worker-c")
    cluster.public({"worker-c": ["enp1s0"]})
    cluster.expose("web", [pod], proto, 3000, target=9090)
    cluster.sees_client(proto, HOME_C, 3000, pod.name)


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_multi_answers_by_the_edge_that_was_dialled(cluster, host_pod, proto):
    pod = host_pod("worker-b")
    cluster.public({"edge-a": ["enp1s0"], "worker-c": ["enp1s0"]}, servingMode="Multi")
    cluster.expose("web", [pod], proto, 3000, target=9090)
    cluster.sees_client(proto, EDGE, 3000, pod.name)
    cluster.sees_client(proto, HOME_C, 3000, pod.name)


def test_behind_firewalls_on_both_nodes(cluster, host_pod, lab):
    pod = host_pod("worker-b")
    cluster.public()
    cluster.expose("web", [pod], "tcp", 3000, target=9090)
    for node in ("edge-a", "worker-b"):
        lab.firewall(node)
    try:
        cluster.sees_client("tcp", EDGE, 3000, pod.name)
    finally:
        for node in ("edge-a", "worker-b"):
            lab.firewall(node, on=False)


def test_the_pods_own_port_still_answers_the_mesh(cluster, host_pod, lab):
    pod = host_pod("worker-b")
    cluster.public()
    cluster.expose("web", [pod], "tcp", 3000, target=9090)
    found = lab.probe("tcp", pod.address(), 9090, source="edge-a")
    assert (found.pod, found.peer) == (pod.name, lab.mesh_address("edge-a"))


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_a_port_that_is_dialled_where_the_pod_listens(cluster, host_pod, lab, proto):
    """Address and port of the mapping are the pod's own: there is nothing to translate."""
    pod = host_pod("edge-a")
    cluster.public({"edge-a": ["wt0"]})
    cluster.expose("web", [pod], proto, 9090, target=9090)
    cluster.sees_client(proto, pod.address(), 9090, pod.name, source="worker-c",
                        peer=lab.mesh_address("worker-c"))
