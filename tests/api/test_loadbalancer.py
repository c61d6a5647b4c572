"""Addresses that nodes hold, on a real API server: what agents publish, who writes a Service's status,
what people are told. With the shipped rights and policies, each agent with a token of its own node."""

import time

import pytest

from cluster import MERGE
from loadbalancer_objects import ADDRESSES, CLASS, OVERLAY, held, installed_rights

SERVICES = "/api/v1/namespaces/games/services"
NODES = ["edge-a", "edge-b", "edge-c"]
HELD = "203.0.113.9"


@pytest.fixture(scope="module")
def rights(installed):
    with installed_rights(installed):
        yield


class World:
    """Agents on edge-a and edge-b; edge-c has none, and says what a test writes there."""

    def __init__(self, cluster):
        self.cluster, self.api = cluster, cluster.api
        cluster.nodes(NODES)
        for i, node in enumerate(NODES):
            self.run(node, "link add weave type bridge")
            self.run(node, "link set weave address", f"02:00:00:00:00:0{i + 1}")
            self.run(node, f"addr add 10.32.0.{i + 1}/16 dev weave")
            self.run(node, "link set weave up")
        self.agents = {node: self.agent(node) for node in NODES[:2]}

    def run(self, node, *words):
        self.cluster.namespaces[node].run("ip", *" ".join(words).split())

    def agent(self, node, *options):
        uid = self.node(node)["metadata"]["uid"]
        token = self.cluster.token("--bound-object-kind", "Node", "--bound-object-name", node,
                                   "--bound-object-uid", uid)
        return self.cluster.agent(node, self.cluster.config(node, token=token), *(
            options or ("--features", "loadbalancer", "--overlay", "weave", "--address-exclude",
                        "no*")))

    def node(self, node):
        return self.cluster.get(f"/api/v1/nodes/{node}")

    def annotations(self, node):
        return self.node(node)["metadata"].get("annotations", {})

    def addresses(self, node):
        return self.annotations(node).get(ADDRESSES)

    def say(self, node, **annotations):
        self.api.call("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"annotations": annotations}},
                      content_type=MERGE)

    def hold(self, node, address=HELD):
        self.run(node, f"addr add {address}/32 dev eth0")

    def let_go(self, node, address=HELD):
        self.run(node, f"addr del {address}/32 dev eth0")

    def shown(self, name="web"):
        """The addresses of its status, and their modes."""
        status = self.cluster.get(f"{SERVICES}/{name}")["status"]
        return [(i.get("ip"), i.get("ipMode")) for i in status["loadBalancer"].get("ingress", [])]

    def shows(self, address, name="web", seconds=20):
        wanted = [(address, "Proxy")] if address else []
        self.cluster.until(lambda: self.shown(name) == wanted,
                           lambda: f"status of {name} with {wanted}: {self.shown(name)}", seconds)

    def events(self, regarding):
        """(reason, note, reportingInstance) of those of one object."""
        items = self.api.call("GET", "/apis/events.k8s.io/v1/events")[1]["items"]
        return {(e["reason"], e["note"], e["reportingInstance"]) for e in items
                if e["regarding"]["uid"] == regarding["metadata"]["uid"]}

    def event(self, regarding, reason):
        """The one Event of that reason: (note, node that wrote it)."""
        found = self.cluster.until(lambda: [e for e in self.events(regarding) if e[0] == reason],
                                   lambda: f"Event {reason}: {self.events(regarding)}")
        assert len(found) == 1, found
        return found[0][1:]

    def patches(self, node):
        """Requests of the agent that changed something."""
        return self.agents[node].metric(r'portolan_api_requests_total\{verb="PATCH"')


@pytest.fixture
def world(cluster, rights):
    cluster.api.call("DELETE", "/apis/events.k8s.io/v1/namespaces/games/events")
    w = World(cluster)
    for node in NODES[:2]:
        cluster.until(lambda: w.addresses(node), f"addresses of {node}")
    yield w
    for agent in w.agents.values():
        refused = agent.metric(r'portolan_api_requests_total\{.*code="4(?!09|04)')
        assert refused == 0, agent.namespace.fetch("/metrics")[1]
        assert "level=error" not in agent.log(), agent.log()


# ---- what a node publishes ----


def test_a_node_publishes_what_it_has(world):
    world.say("edge-a", somebody="else")
    assert world.annotations("edge-a") == {ADDRESSES: "198.51.100.10", OVERLAY:
                                           "10.32.0.1,02:00:00:00:00:01", "somebody": "else"}
    start = time.monotonic()
    world.hold("edge-a")
    world.cluster.until(lambda: world.addresses("edge-a") == f"198.51.100.10,{HELD}", "the address")
    assert time.monotonic() - start < 1
    start = time.monotonic()
    world.let_go("edge-a")
    world.cluster.until(lambda: world.addresses("edge-a") == "198.51.100.10", "no address")
    assert time.monotonic() - start < 1
    world.run("edge-a", "link set weave down")
    world.run("edge-a", "link del weave")
    world.cluster.until(lambda: OVERLAY not in world.annotations("edge-a"), "no overlay")
    assert world.annotations("edge-a")["somebody"] == "else"


def test_nothing_is_written_when_nothing_changed(world):
    before = {node: (world.node(node)["metadata"]["resourceVersion"], world.patches(node))
              for node in NODES[:2]}
    world.run("edge-a", "link set eth0 mtu 1400")
    world.run("edge-a", "addr add 127.0.0.9/32 dev lo")
    world.run("edge-a", "addr add 2001:db8::9/64 dev eth0")
    world.run("edge-a", "link add nothing type bridge")
    world.run("edge-a", "addr add 10.99.0.1/24 dev nothing")
    world.say("edge-c", other="thing")
    world.agents["edge-b"].stop()
    world.agents["edge-b"] = world.agent("edge-b")
    world.cluster.until(lambda: world.agents["edge-b"].ready()[0] == 200, "agent that is ready")
    time.sleep(2)  # nothing must happen
    after = {node: (world.node(node)["metadata"]["resourceVersion"], world.patches(node))
             for node in NODES[:2]}
    before["edge-b"] = (before["edge-b"][0], 0)
    assert after == before


def test_what_somebody_takes_away_is_put_back(world):
    world.say("edge-a", **{ADDRESSES: "192.0.2.99"})
    world.cluster.until(lambda: world.addresses("edge-a") == "198.51.100.10", "its own addresses")


# ---- who writes the status ----


def test_the_holder_alone_shows_the_address(world):
    world.hold("edge-b")
    before = world.patches("edge-a")
    world.cluster.put(held(ip=HELD))
    world.shows(HELD)
    service = world.cluster.get(f"{SERVICES}/web")
    assert service["spec"]["loadBalancerIP"] == HELD
    assert service["spec"]["loadBalancerClass"] == CLASS
    owners = [m for m in service["metadata"]["managedFields"] if m.get("subresource") == "status"]
    assert [m["manager"] for m in owners] == ["portolan"]
    assert world.patches("edge-a") == before
    shown = world.api.kubectl("get", "svc", "-n", "games", "web").stdout.splitlines()[1].split()
    assert shown[3] == HELD  # EXTERNAL-IP
    status, answer = world.api.call("PATCH", f"{SERVICES}/web",
                                    {"spec": {"loadBalancerClass": "x.y/z"}}, content_type=MERGE)
    assert status == 422 and "once set" in answer["message"], answer


def test_two_holders_are_none(world):
    world.hold("edge-a")
    world.cluster.put(held(ip=HELD))
    world.shows(HELD)
    world.hold("edge-b")
    world.shows(None)
    service = world.cluster.get(f"{SERVICES}/web")
    note, teller = world.event(service, "SeveralHolders")
    assert "edge-a, edge-b" in note and HELD in note and teller == "edge-a"
    world.let_go("edge-a")
    world.shows(HELD)
    time.sleep(4)  # no other Event must come
    assert {e[0] for e in world.events(service)} == {"SeveralHolders"}


def test_the_address_moves(world):
    world.hold("edge-a")
    world.cluster.put(held(ip=HELD))
    world.shows(HELD)
    world.let_go("edge-a")
    world.shows(None)
    start = time.monotonic()
    world.hold("edge-b")
    world.shows(HELD)
    assert time.monotonic() - start < 1


def test_a_node_without_the_feature_is_no_holder_any_more(world):
    """Its agent takes back what was published, and the first node clears the status."""
    world.hold("edge-b")
    world.cluster.put(held(ip=HELD))
    world.shows(HELD)
    assert {ADDRESSES, OVERLAY} <= set(world.annotations("edge-b"))
    world.agents["edge-b"].stop()
    world.agents["edge-b"] = world.agent("edge-b", "--features", "portmap")
    world.cluster.until(lambda: not {ADDRESSES, OVERLAY} & set(world.annotations("edge-b")),
                        "annotations of edge-b to go")
    world.shows(None)


def test_the_service_asks_for_another_address(world):
    world.hold("edge-a")
    world.hold("edge-b", "203.0.113.10")
    world.cluster.put(held(ip=HELD))
    world.shows(HELD)
    world.api.call("PATCH", f"{SERVICES}/web", {"spec": {"loadBalancerIP": "203.0.113.10"}},
                   content_type=MERGE)
    world.shows("203.0.113.10")


def test_services_of_others_are_left_alone(world):
    world.hold("edge-a")
    world.cluster.put(held("other", HELD, loadBalancerClass="example.org/x"))
    world.api.call("PATCH", f"{SERVICES}/other/status", {"status": {"loadBalancer": {
        "ingress": [{"ip": "192.0.2.77"}]}}}, content_type=MERGE)
    world.cluster.put(held(ip=HELD))
    world.shows(HELD)
    assert world.shown("other") == [("192.0.2.77", "VIP")]
    for name in ("web", "other"):
        world.cluster.delete(f"{SERVICES}/{name}")


# ---- what people are told ----


@pytest.mark.parametrize("address", ["", "2001:db8::9", "example.org", "203.0.113.9/32"])
def test_an_address_that_is_none(world, address):
    world.cluster.put(held(ip=address))
    note, teller = world.event(world.cluster.get(f"{SERVICES}/web"), "AddressInvalid")
    assert address in note and "203.0.113.9" in note and teller == "edge-a"


def test_an_address_nobody_holds(world):
    world.cluster.put(held(ip=HELD))
    service = world.cluster.get(f"{SERVICES}/web")
    note, teller = world.event(service, "NoHolder")
    assert HELD in note and teller == "edge-a"
    said = world.api.kubectl("events", "-n", "games", "--for", "service/web").stdout
    assert "NoHolder" in said and HELD in said
    world.hold("edge-b")
    world.shows(HELD)


@pytest.mark.parametrize("value", ["203.0.113.9,x", "203.0.113.9\0", "2001:db8::1", "%s%n,"])
def test_a_neighbours_garbage_costs_only_itself(world, value):
    world.hold("edge-a")
    world.cluster.put(held(ip=HELD))
    world.shows(HELD)
    world.say("edge-c", **{ADDRESSES: value})
    note, teller = world.event(world.node("edge-c"), "InvalidAnnotation")
    assert ADDRESSES in note and teller == "edge-a"
    assert world.shown() == [(HELD, "Proxy")]
    world.agents["edge-b"].stop()  # and it can be read by one that starts
    world.agents["edge-b"] = world.agent("edge-b")
    world.cluster.until(lambda: world.agents["edge-b"].ready()[0] == 200, "agent that is ready")


def test_a_holder_without_an_overlay(world):
    world.say("edge-c", **{ADDRESSES: HELD})
    world.cluster.put(held(ip=HELD))
    note, _ = world.event(world.node("edge-c"), "HolderWithoutOverlay")
    assert OVERLAY in note
