"""The shipped roles: what the agent and people may do, and that it is all they may do."""

import contextlib
import secrets

import pytest

from manifests import NAMESPACE, kustomized
from objects import portmap, portmapclass

GROUP = "/apis/kuport.wlz.li/v1alpha1"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def agent(installed):
    return installed.account_token(NAMESPACE, "portolan")


@pytest.fixture
def objects(installed, namespace):
    """One object of each of our kinds."""
    name = f"c{secrets.token_hex(4)}"
    maps = f"{GROUP}/namespaces/{namespace}/portmaps"
    installed.call("POST", maps, portmap("x"))
    installed.call("POST", f"{GROUP}/portmapclasses", portmapclass(name))
    yield {"portmap": f"{maps}/x", "class": f"{GROUP}/portmapclasses/{name}", "maps": maps}
    installed.call("DELETE", f"{GROUP}/portmapclasses/{name}")


def rules(api, token, namespace):
    """What a token may do in a namespace, as a set of (group, resource, verb)."""
    status, answer = api.call(
        "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
         "spec": {"namespace": namespace}}, token=token)
    assert status == 201 and not answer["status"]["incomplete"], answer
    return {(group, resource, verb) for rule in answer["status"]["resourceRules"]
            for group in rule["apiGroups"] for resource in rule["resources"]
            for verb in rule["verbs"] if "resourceNames" not in rule}


# ---- the agent --------------------------------------------------------------------------------

AGENT = {
    "": {"nodes": "list watch", "namespaces": "list watch", "services": "list watch"},
    "discovery.k8s.io": {"endpointslices": "list watch"},
    "networking.k8s.io": {"servicecidrs": "list watch"},
    "kuport.wlz.li": {"portmaps": "list watch", "portmapclasses": "list watch",
                      "portmaps/status": "patch", "portmapclasses/status": "patch"},
    "net.renner.uno": {"trafficclasses": "list watch", "trafficclasses/status": "patch"},
    "events.k8s.io": {"events": "create patch"},
}


@pytest.mark.parametrize("where", [NAMESPACE, "default", "kube-system"])
def test_the_agent_may_do_this_and_nothing_else(installed, agent, namespace, where):
    installed.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts",
                   {"metadata": {"name": "anyone"}})
    ours = {(group, resource, verb) for group, resources in AGENT.items()
            for resource, verbs in resources.items() for verb in verbs.split()}
    anyone = rules(installed, installed.account_token(namespace, "anyone"), where)
    assert rules(installed, agent, where) - anyone == ours


@pytest.mark.parametrize("path", [
    "/api/v1/nodes", "/api/v1/namespaces", "/api/v1/services",
    "/apis/discovery.k8s.io/v1/endpointslices", "/apis/networking.k8s.io/v1/servicecidrs", f"{GROUP}/portmaps", f"{GROUP}/portmapclasses"])
def test_the_agent_lists_and_watches(installed, agent, path):
    assert installed.call("GET", path, token=agent)[0] == 200
    assert installed.call("GET", f"{path}?watch=1&timeoutSeconds=1", token=agent)[0] == 200


@pytest.mark.parametrize("kind, status", [
    ("portmap", {"endpoint": {"node": "a", "address": "10.0.0.1"}}),
    ("class", {"nodes": [{"name": "a", "ready": True}]})])
def test_the_agent_writes_statuses(installed, agent, objects, kind, status):
    made = installed.call("GET", objects[kind])[1]
    path = f"{objects[kind]}/status"
    version = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    code, answer = installed.call("PATCH", path, version | {"status": status}, token=agent,
                                  content_type=MERGE)
    assert (code, answer.get("status")) == (200, status)
    assert installed.call("PATCH", path, version | {"status": None}, token=agent,
                          content_type=MERGE)[0] == 409
    applied = {key: made[key] for key in ("apiVersion", "kind")} | {
        "metadata": {"name": made["metadata"]["name"]}, "status": {"observedGeneration": 1}}
    code, answer = installed.call("PATCH", f"{path}?fieldManager=portolan-a&force=true", applied,
                                  token=agent, content_type="application/apply-patch+yaml")
    assert (code, answer.get("status")) == (200, status | {"observedGeneration": 1})


def test_the_agent_reports_events(installed, agent, namespace):
    event = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "x"},
             "eventTime": "2026-01-02T03:04:05.000000Z", "type": "Warning", "reason": "PortConflict",
             "action": "Accept", "note": "held by games/other",
             "reportingController": "portolan", "reportingInstance": "portolan-edge-a",
             "regarding": {"apiVersion": "kuport.wlz.li/v1alpha1", "kind": "PortMap",
                           "name": "x", "namespace": namespace}}
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    status, answer = installed.call("POST", path, event, token=agent)
    assert status == 201, answer
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000000Z"}}
    status, answer = installed.call("PATCH", f"{path}/x", series, token=agent, content_type=MERGE)
    assert status == 200, answer


FORBIDDEN = {
    "read secrets": ("GET", "/api/v1/secrets", None),
    "read config maps": ("GET", "/api/v1/configmaps", None),
    "list pods": ("GET", "/api/v1/pods", None),
    "get one node": ("GET", "/api/v1/nodes/edge-a", None),
    "create a pod": ("POST", "/api/v1/namespaces/default/pods", {}),
    "replace a mapping's status": ("PUT", "{portmap}/status", {}),
    "change a node": ("PATCH", "/api/v1/nodes/edge-a", {}),
    "write a node's status": ("PATCH", "/api/v1/nodes/edge-a/status", {}),
    "create a service": ("POST", "/api/v1/namespaces/default/services", {}),
    "write a service's status": ("PATCH", "/api/v1/namespaces/default/services/x/status", {}),
    "change an endpoint slice": (
        "PATCH", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/x", {}),
    "create a mapping": ("POST", "{maps}", {}),
    "change a mapping": ("PATCH", "{portmap}", {"spec": {"interfaces": []}}),
    "delete a mapping": ("DELETE", "{portmap}", None),
    "delete all mappings": ("DELETE", "{maps}", None),
    "create a class": ("POST", f"{GROUP}/portmapclasses", {}),
    "change a class": ("PATCH", "{class}", {"spec": {}}),
    "delete a class": ("DELETE", "{class}", None),
    "read events": ("GET", "/apis/events.k8s.io/v1/events", None),
    "read CRDs": ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", None),
    "change a CRD": (
        "PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/portmaps.kuport.wlz.li",
        {}),
    "change its own role": (
        "PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/portolan", {}),
    "make a token": ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/portolan/token", {}),
}


@pytest.mark.parametrize("deed", FORBIDDEN)
def test_the_agent_is_forbidden_to(installed, agent, objects, deed):
    method, path, body = FORBIDDEN[deed]
    status, answer = installed.call(method, path.format(**objects), body, token=agent,
                                    content_type=MERGE if method == "PATCH" else "application/json")
    assert status == 403, answer


# ---- people -----------------------------------------------------------------------------------


@pytest.fixture
def person(installed, namespace):
    """A token with one of the two roles in the namespace."""
    @contextlib.contextmanager
    def person(role):
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        name = f"p{secrets.token_hex(4)}"
        installed.call("POST", account, {"metadata": {"name": name}})
        status, answer = installed.call(
            "POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
            {"metadata": {"name": name},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                         "name": role},
             "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]})
        assert status == 201, answer
        yield installed.account_token(namespace, name)
    return person


def test_a_viewer_views(installed, person, objects):
    with person("kuport-portmap-view") as token:
        assert installed.call("GET", objects["maps"], token=token)[0] == 200
        assert installed.call("GET", objects["portmap"], token=token)[0] == 200
        assert installed.call("POST", objects["maps"], portmap("y"), token=token)[0] == 403
        assert installed.call("DELETE", objects["portmap"], token=token)[0] == 403
        assert installed.call("GET", f"{GROUP}/portmaps", token=token)[0] == 403


def test_an_editor_edits_but_writes_no_status(installed, person, objects):
    with person("kuport-portmap-edit") as token:
        assert installed.call("POST", objects["maps"], portmap("y"), token=token)[0] == 201
        assert installed.call("PATCH", objects["portmap"], {"spec": {"interfaces": ["e"]}},
                              token=token, content_type=MERGE)[0] == 200
        assert installed.call("PATCH", objects["portmap"] + "/status", {"status": {}}, token=token,
                              content_type=MERGE)[0] == 403
        assert installed.call("DELETE", objects["portmap"], token=token)[0] == 200
        assert installed.call("POST", f"{GROUP}/portmapclasses", portmapclass("y"),
                              token=token)[0] == 403


@pytest.mark.parametrize("role, into", [("kuport-portmap-view", "view edit admin"),
                                        ("kuport-portmap-edit", "edit admin")])
def test_the_cluster_aggregates_them(installed, role, into):
    """As the selectors of the server's own roles view, edit and admin would."""
    api = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    labels = installed.call("GET", f"{api}/{role}")[1]["metadata"]["labels"]
    chosen = [name for name in ("view", "edit", "admin")
              if any(selector["matchLabels"].items() <= labels.items() for selector in
                     installed.call("GET", f"{api}/{name}")[1]["aggregationRule"]
                     ["clusterRoleSelectors"])]
    assert chosen == into.split()


# ---- the pod ----------------------------------------------------------------------------------


def agent_pod(api):
    template = kustomized(api)["DaemonSet", "portolan"]["spec"]["template"]
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": template["metadata"] | {"name": "agent"}, "spec": template["spec"]}


def test_the_namespace_lets_the_pod_in(installed):
    status, answer = installed.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All",
                                    agent_pod(installed))
    assert status == 201, answer
    assert answer["spec"]["priority"] == 2000001000
    assert answer["spec"]["preemptionPolicy"] == "PreemptLowerPriority"


def test_another_namespace_would_not(installed, namespace):
    installed.call("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {
        "pod-security.kubernetes.io/enforce": "baseline"}}}, content_type=MERGE)
    installed.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts",
                   {"metadata": {"name": "portolan"}})
    status, answer = installed.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All",
                                    agent_pod(installed))
    assert status == 403
    assert "host namespaces" in answer["message"] and "privileged" not in answer["message"]
