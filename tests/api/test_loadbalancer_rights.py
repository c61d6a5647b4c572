"""What deploy/loadbalancer.yaml adds to the agent's rights: two annotations of its own Node, and the
status of Services whose address a node holds. By requests as the agent sends them."""

import secrets

import pytest

from apiserver import wait_for
from loadbalancer_objects import ADDRESSES, OVERLAY, held, installed_rights
from manifests import NAMESPACE
from test_rbac import AGENT, MERGE, rules

NODES = "/api/v1/nodes"


@pytest.fixture(scope="module")
def rights(installed):
    with installed_rights(installed):
        yield installed


@pytest.fixture
def nodes(rights):
    """Two, with an annotation and a label of somebody else."""
    for name in ("edge-a", "edge-b"):
        assert rights.call("POST", NODES, {"metadata": {
            "name": name, "annotations": {"who": "kubelet"}, "labels": {"zone": "x"}}})[0] == 201
    yield rights
    for name in ("edge-a", "edge-b"):
        rights.call("DELETE", f"{NODES}/{name}")


@pytest.fixture
def token(nodes):
    """As the kubelet of edge-a gets it for the agent's pod there."""
    uid = nodes.call("GET", f"{NODES}/edge-a")[1]["metadata"]["uid"]
    status, answer = nodes.call(
        "POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/portolan/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
         "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "edge-a",
                                     "uid": uid}}})
    assert status == 201, answer
    token = answer["status"]["token"]
    # A new policy is in force a moment after it was taken.
    wait_for(lambda: patch(nodes, token, {"metadata": {"labels": {
        "probe": secrets.token_hex(4)}}})[0] == 422, "policy for Nodes", 30)
    return token


def patch(api, token, body, node="edge-a"):
    return api.call("PATCH", f"{NODES}/{node}?fieldManager=portolan", body, token=token,
                    content_type=MERGE)


def annotations(**values):
    return {"metadata": {"annotations": values}}


def test_these_rights_are_added(rights, namespace):
    token = rights.account_token(NAMESPACE, "portolan")
    rights.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts",
                {"metadata": {"name": "anyone"}})
    anyone = rules(rights, rights.account_token(namespace, "anyone"), "default")
    ours = {(group, resource, verb) for group, resources in AGENT.items()
            for resource, verbs in resources.items() for verb in verbs.split()}
    assert rules(rights, token, "default") - anyone == ours | {("", "nodes", "patch"),
                                                                ("", "services/status", "patch")}


def test_an_agent_publishes_on_its_own_node(nodes, token):
    code, node = patch(nodes, token, annotations(**{ADDRESSES: "192.0.2.1", OVERLAY: None}))
    assert code == 200, node
    assert node["metadata"]["annotations"] == {"who": "kubelet", ADDRESSES: "192.0.2.1"}
    code, node = patch(nodes, token, annotations(**{ADDRESSES: None, OVERLAY: "x"}))
    assert code == 200 and node["metadata"]["annotations"] == {"who": "kubelet", OVERLAY: "x"}


@pytest.mark.parametrize("body", [
    annotations(who="me"), annotations(who=None), annotations(other="x"),
    annotations(**{ADDRESSES: "192.0.2.1", "other": "x"}),
    {"metadata": {"labels": {"zone": "y"}}}, {"metadata": {"labels": None}},
    {"metadata": {"finalizers": ["example.org/x"]}},
    {"spec": {"unschedulable": True}},
    {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}}], ids=str)
def test_it_changes_nothing_else_of_it(nodes, token, body):
    code, answer = patch(nodes, token, body)
    assert code == 422 and "an agent writes" in answer["message"], answer


def test_it_does_not_write_to_other_nodes(nodes, token):
    code, answer = patch(nodes, token, annotations(**{ADDRESSES: "192.0.2.1"}), "edge-b")
    assert code == 422 and "its own Node only" in answer["message"]


def test_others_are_not_hindered(nodes, token):
    assert patch(nodes, None, {"metadata": {"labels": {"zone": "y"}}})[0] == 200


@pytest.fixture
def services(rights, namespace):
    """Paths of one of the class and one of another's."""
    paths = f"/api/v1/namespaces/{namespace}/services"
    for service in (held("ours", ns=namespace),
                    held("other", ns=namespace, loadBalancerClass="example.org/x")):
        status, answer = rights.call("POST", paths, service)
        assert status == 201, answer
    return paths


def shows(ip, version=None):
    body = {"status": {"loadBalancer": {"ingress": ip and [{"ip": ip, "ipMode": "Proxy"}]}}}
    return body | ({"metadata": {"resourceVersion": version}} if version else {})


def test_statuses_of_the_class_alone(rights, nodes, token, services):
    def write(name, body):
        return rights.call("PATCH", f"{services}/{name}/status?fieldManager=portolan", body,
                           token=token, content_type=MERGE)
    made = rights.call("GET", f"{services}/ours")[1]
    version = made["metadata"]["resourceVersion"]
    code, answer = write("ours", shows("192.0.2.1", version))
    assert code == 200, answer
    assert answer["status"]["loadBalancer"] == {"ingress": [{"ip": "192.0.2.1", "ipMode": "Proxy"}]}
    assert write("ours", shows("192.0.2.2", version))[0] == 409
    code, answer = write("ours", shows(None))
    assert code == 200 and answer["status"] == {"loadBalancer": {}}
    wait_for(lambda: write("other", shows("192.0.2.1"))[0] == 422, "policy for Services", 30)
    code, answer = write("other", shows("192.0.2.1"))
    assert "node-address only" in answer["message"]
    assert rights.call("PATCH", f"{services}/ours", {"metadata": {"labels": {"a": "b"}}},
                       token=token, content_type=MERGE)[0] == 403
