"""A mapped port without an endpoint refuses: it neither hangs nor leads to an old pod."""

import pytest

from world import CLIENT, EDGE, EDGE6


@pytest.fixture
def mapped(cluster):
    cluster.public()
    for proto in ("tcp", "udp"):
        cluster.expose(proto, ["a1"], proto, 3000, families=(4, 6))
    return cluster


def empty(cluster, proto, families=(4, 6)):
    cluster.move(proto, [], proto, families=families)
    cluster.refused_with(proto, "Programmed", "NoReadyEndpoint")


@pytest.mark.parametrize("address", [EDGE, EDGE6])
@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_no_endpoint_refuses(mapped, proto, address):
    mapped.sees_client(proto, address, 3000, "a1")
    empty(mapped, proto)
    assert mapped.lab.probe(proto, address, 3000).error == "refused"


@pytest.mark.parametrize("address", [EDGE, EDGE6])
@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_no_endpoint_refuses_behind_a_firewall_that_drops(mapped, lab, proto, address):
    empty(mapped, proto)
    lab.firewall("edge-a")
    try:
        assert lab.probe(proto, address, 3999, timeout=0.3).error == "timeout"
        assert lab.probe(proto, address, 3000).error == "refused"
    finally:
        lab.firewall("edge-a", on=False)


def test_an_endpoint_that_is_not_ready_is_none(mapped, lab):
    mapped.endpoints("tcp", [(lab.pod("a1"), {"ready": False, "serving": True})],
                     [("main", "TCP", 8080)], families=(4, 6))
    mapped.refused_with("tcp", "Programmed", "NoReadyEndpoint")
    assert lab.probe("tcp", EDGE, 3000).error == "refused"


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_a_range_without_endpoint_refuses_every_port(mapped, lab, proto):
    mapped.service("range", [], [("main", proto.upper(), 3200)])
    mapped.portmap("range", proto, 3200,
                           endPort=3220)
    mapped.refused_with("range", "Programmed", "NoReadyEndpoint")
    for port in (3200, 3210, 3220):
        assert lab.probe(proto, EDGE, port).error == "refused"


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_the_same_client_port_is_served_when_the_endpoint_is_back(mapped, lab, proto):
    empty(mapped, proto)
    assert lab.probe(proto, EDGE, 3000, source_port=40100).error == "refused"
    mapped.move(proto, ["a2"], proto, families=(4, 6))
    mapped.programmed(proto)
    found = lab.probe(proto, EDGE, 3000, source_port=40100)
    assert (found.pod, found.peer) == ("a2", CLIENT), found


def test_a_busy_udp_client_is_refused_and_not_led_to_the_old_pod(mapped, lab):
    stream = lab.stream("udp", EDGE, 3000).wait_answer()
    empty(mapped, "udp")
    mapped.wait_error("udp", EDGE, 3000, "refused")
    report = stream.stop()
    assert report.refused > 0 and report.pods == ["a1"], report


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_a_deleted_mapping_leaves_the_port_to_the_host(mapped, lab, proto):
    """Nothing listens there: the host refuses by itself; behind its firewall it drops again."""
    mapped.objects.delete("PortMap", proto, "games")
    mapped.wait_error(proto, EDGE, 3000, "refused")
    lab.firewall("edge-a")
    try:
        mapped.wait_error(proto, EDGE, 3000, "timeout")
    finally:
        lab.firewall("edge-a", on=False)


def test_the_host_firewall_stays_shut_for_everything_else(mapped, lab):
    """Steering is for the mapped port alone, also when the host itself listens elsewhere."""
    lab.host_network_pod("sshd", "edge-a", ports=[2222])
    lab.firewall("edge-a")
    try:
        assert lab.probe("tcp", EDGE, 2222, timeout=0.3).error == "timeout"
        mapped.sees_client("tcp", EDGE, 3000, "a1")
    finally:
        lab.firewall("edge-a", on=False)
        lab.remove_host_network_pod("sshd")
