"""Slots of return links: who claims them, that two never meet, when they end."""

import datetime

import pytest

from lab import wait_until
from lab.objects import portmap_body
from world import EDGE, HOME_C, NAMESPACE, links


def hours_ago(hours):
    moment = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=hours)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def claims(cluster, name="public"):
    return {link["key"]: link for link in cluster.status.portmapclass(name).get("links", [])}


def edit_claims(cluster, change, name="public"):
    """Edits the class status as another writer would; no agent runs meanwhile."""
    def edit(status):
        for link in status["links"]:
            change(link)
    cluster.status.edit("portmapclasses", name, edit)


def test_a_claim_names_subnet_and_slot_and_both_ends_follow(cluster):
    cluster.public()
    cluster.expose("web", ["b1"], "tcp", 3000)
    claim = claims(cluster)["edge-a/worker-b"]
    assert (claim["slot"], claim["subnet"]) == (0, "169.254.77.0/31")
    assert sorted(claim["peers"]) == ["edge-a", "worker-b"]
    for node in ("edge-a", "worker-b"):
        assert list(links(cluster.lab.node(node))) == ["pl4242"]
    assert not links(cluster.lab.node("worker-c"))


def test_a_full_subnet_keeps_what_it_has_and_says_so(cluster):
    """A /30 has two slots; the third pair finds none."""
    every = {"edge-a": ["enp1s0"], "worker-c": ["enp1s0"], "worker-b": ["enp1s0"]}
    cluster.public(every, servingMode="Multi", returnPath={
        "mode": "Vxlan", "vxlan": {"subnet": "169.254.77.0/30"}})
    cluster.expose("fits", ["b1"], "tcp", 3000)
    assert sorted(claim["slot"] for claim in claims(cluster).values()) == [0, 1]
    cluster.service("full", ["a1"], [("main", "TCP", 8080)])
    cluster.portmap("full", "tcp", 3100)
    message = cluster.refused_with("full", "Programmed", "ReturnPathUnavailable")
    assert message.strip()
    cluster.status.wait_class("public", status="False", reason="SubnetExhausted")
    assert len(claims(cluster)) == 2
    cluster.sees_client("tcp", EDGE, 3000, "b1")
    cluster.sees_client("tcp", HOME_C, 3000, "b1")


@pytest.mark.parametrize("attempt", range(3))
def test_two_agents_that_want_one_slot_get_two(world, attempt):
    """worker-b and worker-c start at once and both see slot 0 free."""
    world.public()
    for name, pod, port in (("b", "b1", 3000), ("c", "c1", 3100)):
        world.service(name, [pod], [("main", "TCP", 8080)])
        world.portmap(name, "tcp", port)
    world.start_agents()
    world.programmed("b")
    world.programmed("c")
    assert sorted(claim["slot"] for claim in claims(world).values()) == [0, 1]
    world.sees_client("tcp", EDGE, 3000, "b1")
    world.sees_client("tcp", EDGE, 3100, "c1")


def test_running_agents_race_for_slots_of_many_classes(cluster):
    """Both mappings of a class appear at once, and so both agents wake."""
    for number in range(5):
        name = f"class{number}"
        cluster.public(name=name, returnPath={"mode": "Vxlan", "vxlan": {
            "vni": 5000 + 100 * number, "subnet": f"169.254.{80 + number}.0/24",
            "subnet6": f"fd64:f5ac:e96{number}:80::/112"}})
        for pod in ("b1", "c1"):
            cluster.service(f"{name}-{pod}", [pod], [("main", "TCP", 8080)])
        port = 3200 + 10 * number
        map_together(cluster, [(f"{name}-b1", name, port), (f"{name}-c1", name, port + 1)])
        for offset, pod in enumerate(("b1", "c1")):
            cluster.programmed(f"{name}-{pod}")
            cluster.sees_client("tcp", EDGE, port + offset, pod)
        slots = {claim["slot"] for claim in claims(cluster, name).values()}
        assert len(slots) == 2, claims(cluster, name)


def map_together(cluster, mappings):
    documents = []
    for name, class_name, port in mappings:
        cluster.mappings[name] = {"className": class_name, "protocol": "tcp", "port": port}
        documents.append(("PortMap", name, portmap_body(class_name, "TCP", port, name, "main"),
                          NAMESPACE))
    cluster.objects.put_together(documents)


@pytest.fixture
def unused(cluster):
    """A cluster whose only claim is not needed any more; its agents are stopped."""
    cluster.public()
    cluster.expose("web", ["b1"], "tcp", 3000)
    cluster.objects.delete("PortMap", "web", NAMESPACE)
    wait_until(lambda: claims(cluster)["edge-a/worker-b"].get("unusedSince"), 5,
               lambda: f"the claim to be marked unused: {claims(cluster)}")
    wait_until(lambda: not links(cluster.lab.node("edge-a")) and
               not links(cluster.lab.node("worker-b")), 5, "the link itself to go at once")
    for agent in cluster.agents():
        assert agent.stop() == 0
    return cluster


def test_a_claim_unused_for_24_hours_is_dropped(unused):
    edit_claims(unused, lambda link: link.update(unusedSince=hours_ago(24.1)))
    unused.start_agents()
    wait_until(lambda: claims(unused) == {}, 5, lambda: f"it to be dropped: {claims(unused)}")


def test_a_claim_used_again_before_that_keeps_its_slot(unused):
    edit_claims(unused, lambda link: link.update(unusedSince=hours_ago(23.5), slot=7,
                                                 subnet="169.254.77.14/31"))
    unused.start_agents()
    unused.expose("again", ["b1"], "tcp", 3000)
    claim = claims(unused)["edge-a/worker-b"]
    assert claim["slot"] == 7
    wait_until(lambda: "unusedSince" not in claims(unused)["edge-a/worker-b"], 5,
               lambda: f"the mark to go: {claims(unused)}")
    assert list(links(unused.lab.node("edge-a"))) == ["pl4249"]
    unused.sees_client("tcp", EDGE, 3000, "b1")


def test_nothing_of_a_link_exists_before_its_claim(world):
    """The pod's agent proposes; while it is away the accepting node holds nothing."""
    world.public()
    world.service("web", ["b1"], [("main", "TCP", 8080)])
    world.portmap("web", "tcp", 3000)
    world.lab.agent("edge-a").start(world.binary, world.source)
    world.refused_with("web", "Programmed", "ReturnPathUnavailable")
    assert claims(world) == {} and not links(world.lab.node("edge-a"))
    assert not world.lab.probe("tcp", EDGE, 3000, timeout=0.3).answered
    world.lab.agent("worker-b").start(world.binary, world.source)
    world.programmed("web")
    world.sees_client("tcp", EDGE, 3000, "b1")
