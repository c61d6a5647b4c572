"""Each case of the demo: the right pod, the client's own address, the right way, both ways."""

import subprocess

import pytest

from lab import netns, scenario
from world import NAMESPACE, a_world


@pytest.fixture(scope="module")
def shown(lab, binary, source_at, tmp_path_factory):
    """The demo's objects, with an agent on every node, all mappings programmed."""
    with a_world(lab, binary, source_at(tmp_path_factory.mktemp("cases") / "source")) as world:
        scenario.write_objects(lab, world.objects)
        world.start_agents()
        scenario.wait_programmed(lab, world.status)
        yield world


@pytest.mark.parametrize("case", scenario.CASES, ids=lambda case: case.key)
def test_case(lab, shown, case):
    outcome = scenario.perform(lab, case)
    assert outcome.problems == [], outcome


@pytest.mark.parametrize("style", ["cilium", "flannel", "none"])
@pytest.mark.parametrize("port, pod", [(3000, "a1"), (3010, "b1")])
def test_client_is_seen_under_every_masquerade(lab, shown, style, port, pod):
    for node in ("edge-a", "worker-b"):
        lab.masquerade(node, style)
    try:
        for proto in ("tcp", "udp"):
            shown.sees_client(proto, scenario.EDGE, port, pod)
    finally:
        for node in ("edge-a", "worker-b"):
            lab.masquerade(node, "cilium")


@pytest.mark.parametrize("port, pod", [(3000, "a1"), (3010, "b1")])
def test_large_transfers_arrive_whole(lab, shown, port, pod):
    shown.sees_client("tcp", scenario.EDGE, port, pod, size=3_000_000, timeout=30)
    shown.sees_client("udp", scenario.EDGE, port, pod, size=8000, may_fragment=True)


def test_a_packet_larger_than_the_link_is_answered_with_its_mtu(lab, shown):
    """Client and pod each send one packet too many, learn from the error, and then fit."""
    for ns in (lab.client.ns, lab.pod("b1").ns):
        netns.run_in(ns, ["ip", "route", "flush", "cache"])
    first = lab.probe("udp", scenario.EDGE, 3010, size=1400)
    assert first.error == "[Errno 90] Message too long", first
    shown.wait_answer("udp", scenario.EDGE, 3010, "b1", size=1400)


@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_the_source_port_is_kept(lab, shown, proto):
    for port, pod in ((3000, "a1"), (3010, "b1")):
        found = shown.sees_client(proto, scenario.EDGE, port, pod, source_port=45678)
        assert found.peer_port == 45678


def test_a_port_beside_a_range_is_not_mapped(lab, shown):
    for port in (27014, 27116):
        assert lab.probe("udp", scenario.EDGE, port).error == "refused"


def test_a_mapping_answers_only_on_its_protocol(lab, shown):
    assert lab.probe("tcp", scenario.EDGE, 27015).error == "refused"


def test_pods_of_one_node_still_talk_to_each_other(lab, shown):
    """Return marking must not catch traffic that did not come over a link."""
    for source, target in (("b2", "b1"), ("a2", "a1"), ("b1", "b2")):
        for proto in ("tcp", "udp"):
            found = lab.probe(proto, lab.pod(target).address(), 8080, source=source)
            assert (found.pod, found.peer) == (target, lab.pod(source).address())


def test_pod_firewall_on_both_ends(lab, shown):
    """The pod's node may have the same firewall, and trust no more than its mesh."""
    for node in ("edge-a", "worker-b"):
        lab.firewall(node)
    try:
        for proto in ("tcp", "udp"):
            shown.sees_client(proto, scenario.EDGE, 3010, "b1")
    finally:
        for node in ("edge-a", "worker-b"):
            lab.firewall(node, on=False)


def test_published_names_every_address(shown):
    rows = set(shown.published("web"))
    assert {("edge-a", "enp1s0", scenario.EDGE), ("edge-a", "wt0", scenario.EDGE_MESH),
            ("edge-a", "enp1s0", scenario.EDGE6)} <= rows


def test_get_shows_what_is_published(shown):
    done = subprocess.run([shown.binary, "get", "portmaps", "-n", NAMESPACE, "-o", "wide",
                           *shown.source.arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["web"])
    assert scenario.EDGE in line and "3000" in line
