"""The CRD TrafficClass: each rule accepts and refuses, and the samples are right."""

import re

import pytest
import yaml

from apiserver import ROOT, wait_for
from test_crds import MERGE, columns, condition, undescribed
from trafficclass_objects import ADDRESSES, BAD, GATEWAY, GOOD, MESH, VERSION, trafficclass

CRD = ROOT / "deploy/crds/trafficclasses.yaml"
PATH = f"/apis/{VERSION}/trafficclasses"
SAMPLES = sorted((ROOT / "deploy/samples").glob("*.yaml"))


@pytest.fixture(scope="session")
def tclass(api):
    """The API server, with the CRD."""
    api.kubectl("apply", "--server-side", "-f", CRD)
    api.kubectl("wait", "--for=condition=Established", "crd/trafficclasses.net.renner.uno")
    wait_for(lambda: api.call("GET", PATH)[0] == 200, "API for trafficclasses")
    return api


@pytest.fixture
def create(tclass):
    """Creates an object as strictly as kubectl does by itself: (status, answer)."""
    made = []

    def create(object_):
        answer = tclass.call("POST", f"{PATH}?fieldValidation=Strict", object_)
        if answer[0] == 201:
            made.append(object_["metadata"]["name"])
        return answer
    yield create
    for name in made:
        tclass.call("DELETE", f"{PATH}/{name}")


@pytest.mark.parametrize("case", GOOD)
def test_good_classes_are_accepted(create, case):
    status, answer = create(GOOD[case])
    assert status == 201, answer


@pytest.mark.parametrize("case", BAD)
def test_bad_classes_are_refused_and_told_why(create, case):
    made, words = BAD[case]
    status, answer = create(made)
    assert status == (400 if words.startswith("unknown") else 422), answer
    assert words in answer["message"]


def test_defaults(create):
    spec = create(trafficclass(routes={"mesh": MESH, "gateway": GATEWAY}))[1]["spec"]
    assert spec["families"] == ["IPv4", "IPv6"]
    assert spec["cleanupPolicy"] == "Delete"
    assert spec["routes"]["fallThrough"] == ["PodCIDRs", "AttachedNetworks"]
    assert spec["routes"]["gateway"]["manager"] == "Agent"
    assert spec["routes"]["mesh"] == {
        "link": "pod0", "addressAnnotations": ADDRESSES, "asn": 64512, "holdTimeSeconds": 9,
        "bfd": False, "gracefulRestart": True}


def test_the_table_cannot_change(tclass, create):
    create(trafficclass())
    status, answer = tclass.call("PATCH", f"{PATH}/x", {"spec": {"table": 48}}, content_type=MERGE)
    assert status == 422
    assert "spec.table: Invalid value" in answer["message"]
    assert "table cannot change: make a new class, then delete this one" in answer["message"]


@pytest.mark.parametrize("change", [{"routes": {"gateway": GATEWAY}},
                                    {"rules": [{"family": "IPv4", "priority": 900,
                                                "to": ["10.0.0.0/8"]}]}])
def test_all_else_may_change(tclass, create, change):
    create(trafficclass())
    status, answer = tclass.call("PATCH", f"{PATH}/x", {"spec": change}, content_type=MERGE)
    assert status == 200, answer


STATUS = {
    "observedGeneration": 1, "nodesDesired": 3, "nodesReady": 2, "ready": "2/3",
    "nodes": [{"name": "k8s-1", "ready": True, "sessions": 4, "sessionsExpected": 4},
              {"name": "k8s-2", "ready": False, "reason": "GatewayInvalid",
               "message": "net.renner.uno/egress-gw-v4 is 10.40.0.254, which is not on ingress0"}],
    "conditions": [condition("Accepted", "True", "Valid"),
                   condition("GatewayValid", "False", "GatewayOffLink", "of node k8s-2")],
}


def put_status(tclass, status, manager=None):
    if manager is None:
        return tclass.call("PATCH", f"{PATH}/x/status", {"status": status}, content_type=MERGE)
    body = {k: trafficclass()[k] for k in ("apiVersion", "kind", "metadata")} | {"status": status}
    return tclass.call("PATCH", f"{PATH}/x/status?fieldManager={manager}&force=true", body,
                       content_type="application/apply-patch+yaml")


def test_a_status_as_documented(tclass, create):
    create(trafficclass())
    status, answer = put_status(tclass, STATUS)
    assert status == 200, answer
    assert answer["status"] == STATUS
    assert answer["metadata"]["generation"] == 1


@pytest.mark.parametrize("bad, words", [
    ({"nodes": [{"name": "a"}, {"name": "a"}]}, "status.nodes[1]: Duplicate value"),
    ({"nodes": [{"ready": True}]}, "name: Required"),
    ({"nodesReady": -1}, "greater than or equal to 0"),
    ({"conditions": [condition("Accepted", "Maybe", "Valid")]}, 'values: "True", "False"'),
])
def test_bad_statuses_are_refused(tclass, create, bad, words):
    create(trafficclass())
    status, answer = put_status(tclass, bad)
    assert status == 422, answer
    assert words in answer["message"]


def test_two_nodes_write_their_own_rows(tclass, create):
    create(trafficclass())
    for node in ("a", "b"):
        status, answer = put_status(tclass, {"nodes": [{"name": node}]}, manager=node)
        assert status == 200, answer
    assert [row["name"] for row in answer["status"]["nodes"]] == ["a", "b"]


def test_get(tclass, create):
    """By its short name; with a status, and for one that looks up main."""
    create(trafficclass(routes={"mesh": MESH, "gateway": GATEWAY}))
    put_status(tclass, STATUS)
    header, row = columns(tclass.kubectl("get", "tclass", "-o", "wide").stdout)
    row[header.index("AGE")] = "0s"
    assert dict(zip(header, row)) == {
        "NAME": "x", "TABLE": "47", "LINK": "ingress0", "MESH": "pod0", "READY": "2/3",
        "REASON": "GatewayOffLink", "AGE": "0s"}


@pytest.mark.parametrize("field, words", [
    ("tclass", "a routing table of its own"),
    ("tclass.spec.rules.priority", "101 to 106 are those of return links"),
    ("tclass.spec.routes.mesh.link", "The link they are reached over"),
    ("tclass.status.nodes.sessionsExpected", "Sessions there should be"),
])
def test_explain(tclass, field, words):
    said = wait_for(lambda: tclass.kubectl("explain", field, check=False).stdout, "explanation", 30)
    assert words in re.sub(r"\s+", " ", said)


def rules_of(schema):
    """Every CEL expression."""
    if isinstance(schema, dict):
        yield from (v["rule"] for v in schema.get("x-kubernetes-validations", []))
        schema = schema.values()
    if not isinstance(schema, str):
        for part in schema if hasattr(schema, "__iter__") else []:
            yield from rules_of(part)


def test_no_rule_needs_more_than_kubernetes_1_29():
    """The libraries that came later: ip and cidr, format, sets, named formats."""
    rules = list(rules_of(yaml.safe_load(CRD.read_text())))
    assert len(rules) > 10
    newer = re.compile(r"\b(isIP|ip|isCIDR|cidr|format|sets|transformList|transformMap|semver)\b[.(]")
    assert [rule for rule in rules if newer.search(rule)] == []


def test_every_field_is_described():
    crd = yaml.safe_load(CRD.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert list(undescribed(schema, ["trafficclasses"])) == []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_samples(create, sample):
    for made in yaml.safe_load_all(sample.read_text()):
        status, answer = create(made)
        assert status == 201, answer


def test_there_is_a_sample_of_each_design():
    assert [path.stem for path in SAMPLES] == ["hybrid", "one-table", "two-tables"]
