"""Services from a faulty API server: what the kernel holds of them."""

import os

import pytest
from kube_help import World, endpoint_slice, until


@pytest.fixture
def world(tmp_path):
    w = World(tmp_path, f"kv{os.getpid()}")
    w.server.put(service("web", "10.96.0.1"))
    w.server.put(endpoint_slice("edge-a"))
    yield w
    w.close()


def service(name, ip, ns="games", labels=None, **spec):
    return {"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": ns, "labels": labels or {}},
            "spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip],
                     "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]} | spec}


def service_cidr(*cidrs):
    return {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": "kubernetes"}, "spec": {"cidrs": list(cidrs)}}


def holds(world, text, there=True):
    """Waits until the table of the node has the text, or has it no more."""
    def table():
        return world.namespaces["edge-a"].run("nft", "list", "ruleset")
    until(lambda: (text in table()) == there,
          lambda: f"{text!r} {there}\n{table()}" + world.agents[0].log(), 40)


def test_services_come_change_and_go(world):
    world.agent("edge-a", "--features", "serviceproxy")
    holds(world, "10.244.0.7 . 8080")
    world.server.put(endpoint_slice("edge-a", "10.244.0.8"))
    holds(world, "10.244.0.8 . 8080")
    holds(world, "10.244.0.7 . 8080", there=False)
    world.server.delete("services", "games", "web")
    holds(world, "10.96.0.1", there=False)


def test_the_label_of_another_proxy_takes_a_service_away_and_gives_it_back(world):
    world.agent("edge-a", "--features", "serviceproxy")
    holds(world, "10.96.0.1")
    world.server.put(service("web", "10.96.0.1",
                             labels={"service.kubernetes.io/service-proxy-name": ""}))
    holds(world, "10.96.0.1", there=False)
    world.server.put(service("web", "10.96.0.1"))
    holds(world, "10.96.0.1")


def test_a_server_without_service_cidrs_has_none(world):
    world.server.modern = False
    agent = world.agent("edge-a", "--features", "serviceproxy")
    holds(world, "10.244.0.7 . 8080")
    until(lambda: agent.ready()[0] == 200, lambda: agent.ready()[1] + agent.log())
    until(lambda: len(world.server.asked("WATCH servicecidrs")) >= 3, "it asks now and then")
    assert agent.log().count("has no servicecidrs") == 1, agent.log()
    world.server.modern = True
    world.server.put(service_cidr("10.96.0.0/16"))
    holds(world, "10.96.0.0/16")
