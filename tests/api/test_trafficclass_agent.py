"""Agents with traffic classes on a real API server, with the rights the shipped role gives."""

import pytest

from test_crds import MERGE
from test_trafficclass_crd import PATH, tclass  # noqa: F401
from trafficclass_objects import MESH, RULE4, trafficclass

MAIN = {"table": 254, "rules": [RULE4 | {"from": ["192.0.2.0/24"]}]}


@pytest.fixture
def agents(cluster, tclass):  # noqa: F811
    """Those of two nodes; a class is put by the test, and goes with it."""
    cluster.nodes(["k8s-1", "k8s-2"])
    config = cluster.config(token=cluster.token())
    yield [cluster.agent(node, config, "--features", "trafficclass")
           for node in ("k8s-1", "k8s-2")]
    tclass.call("DELETE", f"{PATH}/x")


def status(cluster):
    return (cluster.get(f"{PATH}/x") or {}).get("status", {})


def conditions(cluster):
    return {c["type"]: (c["status"], c["reason"]) for c in status(cluster).get("conditions", [])}


def until(cluster, ready, **wanted):
    cluster.until(lambda: status(cluster).get("ready") == ready and
                  wanted.items() <= conditions(cluster).items(), f"class {ready} with {wanted}")


def rules(agent):
    return [line for line in agent.namespace.run("ip", "rule").splitlines() if "107" in line]


def test_a_class_of_rules_is_programmed_everywhere(cluster, agents):
    cluster.api.call("POST", PATH, trafficclass(**MAIN))
    until(cluster, "2/2", Accepted=("True", "Valid"), Programmed=("True", "AllNodesReady"),
          Conflict=("False", "NoConflict"))
    assert all(len(rules(agent)) == 1 for agent in agents)
    assert [(r["name"], r["ready"]) for r in status(cluster)["nodes"]] == [("k8s-1", True),
                                                                          ("k8s-2", True)]
    for node, label in (("k8s-1", "a"), ("k8s-2", "b")):
        cluster.api.call("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": {"t": label}}},
                         content_type=MERGE)
    cluster.api.call("PATCH", f"{PATH}/x",
                     {"spec": {"nodeSelector": {"matchLabels": {"t": "a"}}}}, content_type=MERGE)
    until(cluster, "1/1", Programmed=("True", "AllNodesReady"))
    cluster.until(lambda: [r["name"] for r in status(cluster)["nodes"]] == ["k8s-1"],
                  "status without the row of k8s-2")
    cluster.until(lambda: not rules(agents[1]), "k8s-2 without rules")
    cluster.api.call("DELETE", f"{PATH}/x")
    cluster.until(lambda: not rules(agents[0]), "k8s-1 without rules")


def test_what_is_wrong_is_told_in_status_and_event(cluster, agents):
    cluster.api.call("POST", PATH, trafficclass(routes={"mesh": MESH}))
    until(cluster, "0/2", Accepted=("True", "Valid"))
    cluster.until(lambda: conditions(cluster).get("Programmed", ("", ""))[0] == "False",
                  "class that is not programmed")
    rows = status(cluster)["nodes"]
    assert {r["reason"] for r in rows} <= {"LinkMissing", "MeshAddressMissing"}, rows
    said = cluster.until(lambda: cluster.api.kubectl(
        "events", "-n", "default", "--for", "trafficclass/x").stdout, "Event of the class")
    assert "k8s-" in said
