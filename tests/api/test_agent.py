"""The agent with the rights deploy/ gives it, on a real API server: its rules suffice."""

import http.client
import ssl

import pytest

from cluster import MERGE, class_path, portmap_path
from kube_help import endpoint_slice, portmap, portmap_class
from manifests import NAMESPACE
from test_rbac import AGENT


@pytest.fixture
def agent(cluster):
    """The agent of edge-a, the only node."""
    cluster.nodes(["edge-a"])
    cluster.put(portmap_class("edge-a"))
    cluster.put(endpoint_slice("edge-a"))
    return cluster.agent("edge-a", cluster.config(token=cluster.token()))


def nft(agent, *words):
    return agent.namespace.run("nft", *words)


def test_a_mapping_is_served(cluster, agent):
    cluster.put(portmap("web"))
    cluster.programmed("web")
    assert "10.244.0.7 . 8080" in nft(agent, "list", "ruleset")
    made = cluster.get(portmap_path("web"))
    assert made["status"]["endpoint"]["node"] == "edge-a"
    row = cluster.until(lambda: cluster.rows().get("edge-a"), "row of edge-a")
    assert row["ready"] and row["underlayMTU"] == 1500, row
    cluster.until(lambda: agent.ready()[0] == 200, "agent that is ready")
    owners = {m["manager"] for o in (made, cluster.get(class_path()))
              for m in o["metadata"]["managedFields"] if m.get("subresource") == "status"}
    assert owners == {"portolan", "portolan-edge-a"}
    cluster.delete(portmap_path("web"))
    cluster.until(lambda: "10.244.0.7 . 8080" not in nft(agent, "list", "ruleset"),
                  "kernel without the mapping")


def test_a_fault_is_an_event_kubectl_shows(cluster, agent):
    cluster.put(portmap("early"))
    cluster.accepted("early")
    cluster.put(portmap("late"))
    cluster.until(lambda: "PortConflict" in cluster.api.kubectl(
        "events", "-n", "games", "--for", "portmap/late").stdout, "Event of the conflict")
    cluster.put(portmap_class("edge-a", interface="eth9"))
    said = cluster.until(lambda: cluster.api.kubectl(
        "events", "-n", "default", "--for", "portmapclass/public").stdout, "Event of the class")
    assert "NodeNotReady" in said and "eth9" in said


def test_kubectl_waits_for_a_mapping(cluster, agent):
    cluster.put(portmap("web"))
    cluster.api.kubectl("wait", "-n", "games", "pm/web", "--for=condition=Programmed",
                        "--timeout=20s")
    cluster.until(lambda: cluster.class_status().get("conditions"), "condition of the class")
    shown = cluster.api.kubectl("get", "pm", "-n", "games", "-o", "wide").stdout.splitlines()
    assert "ENDPOINT" in shown[0] and "edge-a" in shown[1], shown


def test_no_request_of_it_is_refused(cluster, agent):
    """Neither for a right it lacks nor for what it says."""
    cluster.put(portmap("early"))
    cluster.put(portmap("late"))
    cluster.programmed("early")
    cluster.until(lambda: agent.metric(r'portolan_api_requests_total\{verb="POST",code="201"'),
                  "Event")
    refused = agent.metric(r'portolan_api_requests_total\{.*code="4(?!09)')
    assert refused == 0, agent.namespace.fetch("/metrics")[1]
    assert "level=error" not in agent.log(), agent.log()


# ---- all the rest is forbidden ----


def offered(api):
    """(group, version, resource, namespaced, verb) of everything the server has."""
    for root in ["/api/v1"] + [f"/apis/{g['preferredVersion']['groupVersion']}"
                               for g in api.call("GET", "/apis")[1]["groups"]]:
        group, _, version = root.removeprefix("/apis/").rpartition("/")
        for r in api.call("GET", root)[1]["resources"]:
            for verb in r["verbs"]:
                yield ("" if root == "/api/v1" else group, root, r["name"], r["namespaced"], verb)


METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT",
           "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}


def request_of(root, resource, namespaced, verb):
    """(method, path) of a request that needs the verb."""
    resource, _, subresource = resource.partition("/")
    of_one = verb in ("get", "update", "patch", "delete") or subresource
    path = root + ("/namespaces/default" if namespaced else "") + f"/{resource}"
    path += ("/x" if of_one else "") + (f"/{subresource}" if subresource else "")
    query = {"watch": "?watch=1&timeoutSeconds=1", "get": "", "list": ""}.get(verb, "?dryRun=All")
    return METHODS[verb], path + query


def test_all_else_the_server_has_is_forbidden(installed, namespace):
    """Each verb of each resource, by a request of its own."""
    installed.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts",
                   {"metadata": {"name": "anyone"}})
    tokens = {"agent": installed.account_token(NAMESPACE, "portolan"),
              "anyone": installed.account_token(namespace, "anyone")}
    connection = http.client.HTTPSConnection(
        "127.0.0.1", installed.port, timeout=30,
        context=ssl.create_default_context(cafile=installed.file("ca.crt")))

    def status(who, method, path):
        connection.request(method, path, "{}" if method in ("POST", "PUT", "PATCH") else None, {
            "Authorization": f"Bearer {tokens[who]}",
            "Content-Type": MERGE if method == "PATCH" else "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    refused = allowed = 0
    served = list(offered(installed))
    for group, root, resource, namespaced, verb in served:
        if verb in AGENT.get(group, {}).get(resource, "").split():
            allowed += 1
            continue
        method, path = request_of(root, resource, namespaced, verb)
        if status("agent", method, path) != 403:
            assert status("anyone", method, path) != 403, f"the agent may {verb} {group} {resource}"
        else:
            refused += 1
    connection.close()
    groups = {group for group, *_ in served}  # TrafficClass is there only where a test installs it
    assert allowed == sum(len(verbs.split()) for group, resources in AGENT.items()
                          for verbs in resources.values() if group in groups)
    assert refused > 300
