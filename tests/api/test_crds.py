"""The CRDs: each rule accepts and refuses, and the folder of manifests judges alike."""

import json
import re
import signal
import subprocess
import time

import pytest
import yaml

from apiserver import ROOT, wait_for
from objects import BACKWARDS, BAD, GOOD, MAY_CHANGE, MAY_NOT_CHANGE, portmap, portmapclass

CRDS = ["portmapclasses", "portmaps"]
MERGE = "application/merge-patch+json"


def collection(made, namespace):
    if made["kind"] == "PortMapClass":
        return "/apis/kuport.wlz.li/v1alpha1/portmapclasses"
    return f"/apis/kuport.wlz.li/v1alpha1/namespaces/{namespace}/portmaps"


def named(made, name):
    return made | {"metadata": {"name": name}}


@pytest.fixture
def create(crds, namespace):
    """Creates an object as strictly as kubectl does by itself: (status, answer). What was made
    goes away after the test."""
    made = []

    def create(object_, name="x"):
        where = collection(object_, namespace)
        answer = crds.call("POST", f"{where}?fieldValidation=Strict", named(object_, name))
        if answer[0] == 201:
            made.append(f"{where}/{name}")
        return answer
    yield create
    for path in made:
        crds.call("DELETE", path)


def folder(path, *objects):
    """A source of these objects; the PortMaps live in namespace games."""
    path.mkdir(exist_ok=True)
    (path / "objects.yaml").write_text("---\n".join(
        yaml.safe_dump(o | {"metadata": o["metadata"] | {"namespace": "games"}}
                       if o["kind"] == "PortMap" else o) for o in objects))
    return f"dir:{path}"


def read_folder(binary, kind, source):
    """The objects of a kind that the folder lets in, and what was said of the others."""
    words = [] if kind == "PortMapClass" else ["-A"]
    kinds = {"PortMap": "portmaps", "PortMapClass": "portmapclasses"}
    done = subprocess.run([binary, "get", kinds[kind], *words, "-o", "json", "--source", source],
                          capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return (json.loads(done.stdout)["items"] if done.stdout else []), done.stderr


# ---- what is accepted and what is not ---------------------------------------------------------


@pytest.mark.parametrize("case", GOOD)
def test_good_objects_are_accepted(create, case):
    status, answer = create(GOOD[case])
    assert status == 201, answer


@pytest.mark.parametrize("case", BAD)
def test_bad_objects_are_refused_and_told_why(create, case):
    made, words = BAD[case]
    status, answer = create(made)
    assert status == (400 if words.startswith("unknown") else 422), answer
    assert words in answer["message"]


def test_endport_below_port(create):
    status, answer = create(BACKWARDS)
    assert status == 422
    assert "spec.endPort: Invalid value" in answer["message"]
    assert "endPort must not be below port" in answer["message"]


@pytest.mark.parametrize("case", MAY_CHANGE)
def test_mutable_fields(crds, namespace, create, case):
    create(portmap("x"))
    path = collection(portmap("x"), namespace) + "/x"
    status, answer = crds.call("PATCH", path, {"spec": MAY_CHANGE[case]}, content_type=MERGE)
    assert status == 200, answer
    assert answer["metadata"]["generation"] == 2


@pytest.mark.parametrize("case", MAY_NOT_CHANGE)
def test_immutable_fields(crds, namespace, create, case):
    before, after, field = MAY_NOT_CHANGE[case]
    assert create(portmap("x", **before))[0] == 201
    path = collection(portmap("x"), namespace) + "/x"
    status, answer = crds.call("PATCH", path, {"spec": after}, content_type=MERGE)
    assert status == 422, answer
    assert f"spec.{field}: " in answer["message"]
    assert f"{field} cannot change: delete the PortMap and create it again" in answer["message"]


# ---- the folder of manifests ------------------------------------------------------------------


@pytest.mark.parametrize("case", GOOD)
def test_the_folder_accepts_them_too_with_the_same_defaults(create, binary, tmp_path, case):
    made = GOOD[case]
    items, said = read_folder(binary, made["kind"], folder(tmp_path / "source", made))
    assert (len(items), said) == (1, "")
    answer = create(made)[1]
    for spec in (ours := items[0]["spec"]), (theirs := answer["spec"]):
        for node in spec.get("nodes", {}).values():
            node["interfaces"] = list(dict.fromkeys(node["interfaces"]))
        for empty in ("interfaces", "namespaceSelector"):
            if not spec.get(empty):
                spec.pop(empty, None)
    assert ours == theirs


@pytest.mark.parametrize("case", BAD)
def test_the_folder_refuses_them_too(binary, tmp_path, case):
    made = BAD[case][0]
    items, said = read_folder(binary, made["kind"], folder(tmp_path / "source", made))
    assert items == []
    assert f"{made['kind']} " in said


def test_the_folder_reports_a_backwards_range_as_a_status(binary, tmp_path):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-a"}}
    source = folder(tmp_path / "source", BACKWARDS, portmapclass("public"), node)
    done = subprocess.run([binary, "plan", "--node", "edge-a", "--source", source],
                          capture_output=True, text=True)
    assert "InvalidPortRange" in done.stdout


def test_the_folder_has_the_same_immutable_fields(binary, tmp_path):
    """One agent takes note of all mappings; then every manifest changes."""
    names = {case: f"m{i}" for i, case in enumerate(MAY_NOT_CHANGE)}
    path = tmp_path / "source"
    source = folder(path, *(named(portmap("x", **before), names[case])
                            for case, (before, _, _) in MAY_NOT_CHANGE.items()))
    with open(tmp_path / "log", "w") as log:
        agent = subprocess.Popen(
            ["unshare", "--net", binary, "agent", "--node", "edge-a", "--source", source,
             "--state-dir", str(tmp_path / "state"), "--metrics-address", "none"], stderr=log)
    try:
        records = path / ".status/portmaps/games"
        wait_for(lambda: all((records / f"{name}.json").exists() for name in names.values()),
                 "records of all mappings", 30)
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait()
    folder(path, *(portmap(names[case], **{k: v for k, v in (before | after).items()
                                           if v is not None})
                   for case, (before, after, _) in MAY_NOT_CHANGE.items()))
    items, said = read_folder(binary, "PortMap", source)
    assert len(items) == len(names)
    for case, (before, _, field) in MAY_NOT_CHANGE.items():
        assert re.search(rf"PortMap games/{names[case]}: spec\.{field} is .* cannot change", said)
        spec = next(i["spec"] for i in items if i["metadata"]["name"] == names[case])
        assert spec.get(field) == portmap("x", **before)["spec"].get(field)


# ---- status -----------------------------------------------------------------------------------


def condition(kind, status, reason, message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-02T03:04:05Z"}


PORTMAP_STATUS = {
    "endpoint": {"node": "worker-b", "address": "10.244.18.107"},
    "published": [{"node": "edge-a", "interface": "enp1s0", "address": "203.0.113.9"},
                  {"node": "edge-a", "interface": "enp1s0", "address": "2001:db8::9"},
                  {"node": "edge-a", "interface": "wt0", "address": ""}],
    "observedGeneration": 1,
    "conditions": [condition("Accepted", "True", "Valid"),
                   condition("Programmed", "False", "NoReadyEndpoint", "of game:main")],
}

CLASS_STATUS = {
    "links": [{"key": "edge-a/worker-b", "peers": ["edge-a", "worker-b"], "slot": 1,
               "subnet": "169.254.77.2/31", "unusedSince": "2026-01-02T03:04:05Z"}],
    "nodes": [{"name": "edge-a", "ready": True, "underlayMTU": 1400, "linkMTU": 1350,
               "addresses": {"enp1s0": "203.0.113.9"}},
              {"name": "worker-c", "ready": False, "message": "interface wt0 not present"}],
    "observedGeneration": 1,
    "conditions": [condition("Ready", "True", "Valid")],
}

BAD_STATUS = {
    "two rows of a node": (portmapclass("x"), {"nodes": [{"name": "a"}, {"name": "a"}]},
                           "status.nodes[1]: Duplicate value"),
    "two claims of a pair": (portmapclass("x"), {"links": [
        {"key": "a/b", "peers": ["a", "b"], "slot": slot} for slot in (1, 2)]},
        "status.links[1]: Duplicate value"),
    "a link with one end": (portmapclass("x"), {"links": [
        {"key": "a/b", "peers": ["a"], "slot": 1}]}, "should have at least 2 items"),
    "a link with three": (portmapclass("x"), {"links": [
        {"key": "a/b", "peers": ["a", "b", "c"], "slot": 1}]}, "must have at most 2 items"),
    "a slot below 0": (portmapclass("x"), {"links": [
        {"key": "a/b", "peers": ["a", "b"], "slot": -1}]}, "greater than or equal to 0"),
    "a claim without slot": (portmapclass("x"), {"links": [
        {"key": "a/b", "peers": ["a", "b"]}]}, "slot: Required"),
    "a row without name": (portmapclass("x"), {"nodes": [{"ready": True}]}, "name: Required"),
    "two conditions of a type": (portmap("x"), {"conditions": [
        condition("Accepted", "True", "Valid"), condition("Accepted", "False", "ClassNotFound")]},
        "status.conditions[1]: Duplicate value"),
    "a condition Maybe": (portmap("x"), {"conditions": [condition("Accepted", "Maybe", "Valid")]},
                          'supported values: "True", "False", "Unknown"'),
    "a time that is none": (portmap("x"), {"conditions": [
        {"type": "Accepted", "status": "True", "lastTransitionTime": "yesterday"}]},
        "must be of type date-time"),
}


def put_status(crds, namespace, made, status, manager=None):
    path = f"{collection(made, namespace)}/x/status"
    if manager is None:
        return crds.call("PATCH", path, {"status": status}, content_type=MERGE)
    body = {k: made[k] for k in ("apiVersion", "kind", "metadata")} | {"status": status}
    return crds.call("PATCH", f"{path}?fieldManager={manager}&force=true", body,
                     content_type="application/apply-patch+yaml")


@pytest.mark.parametrize("made, wanted", [(portmap("x"), PORTMAP_STATUS),
                                          (portmapclass("x"), CLASS_STATUS)],
                         ids=["PortMap", "PortMapClass"])
def test_a_status_as_documented(crds, namespace, create, made, wanted):
    create(made)
    status, answer = put_status(crds, namespace, made, wanted)
    assert status == 200, answer
    assert answer["status"] == wanted
    assert answer["metadata"]["generation"] == 1


@pytest.mark.parametrize("case", BAD_STATUS)
def test_bad_statuses_are_refused(crds, namespace, create, case):
    made, bad, words = BAD_STATUS[case]
    create(made)
    status, answer = put_status(crds, namespace, made, bad)
    assert status == 422, answer
    assert words in answer["message"]


def test_status_and_spec_are_written_apart(crds, namespace, create):
    answer = create(portmap("x") | {"status": PORTMAP_STATUS})[1]
    assert "status" not in answer
    path = collection(portmap("x"), namespace) + "/x"
    answer = crds.call("PATCH", path + "/status", {"spec": {"interfaces": ["eth0"]}},
                       content_type=MERGE)[1]
    assert "interfaces" not in answer["spec"]


def test_two_nodes_write_their_own_rows(crds, namespace, create):
    """By server-side apply: neither takes the other's away."""
    create(portmapclass("x"))
    for node in ("a", "b"):
        row = {"nodes": [{"name": node, "ready": True}]}
        status, answer = put_status(crds, namespace, portmapclass("x"), row, manager=node)
        assert status == 200, answer
    assert [row["name"] for row in answer["status"]["nodes"]] == ["a", "b"]


# ---- for people -------------------------------------------------------------------------------


def columns(text):
    """Rows of a kubectl table, by its header; a cell may be empty."""
    header, *rows = text.rstrip("\n").split("\n")
    starts = [m.start() for m in re.finditer(r"\S+", header)]
    return [[line[a:b].strip() for a, b in zip(starts, starts[1:] + [None])]
            for line in [header, *rows]]


def test_get_portmaps(crds, namespace, create):
    create(portmap("x", endPort=3010))
    put_status(crds, namespace, portmap("x"), PORTMAP_STATUS)
    header, row = columns(crds.kubectl("get", "pm", "-n", namespace, "-o", "wide").stdout)
    row[header.index("AGE")] = "0s"
    assert dict(zip(header, row)) == {
        "NAME": "x", "CLASS": "public", "PROTOCOL": "TCP", "PORT": "3000", "END": "3010",
        "ACCEPTED": "True", "PROGRAMMED": "False", "REASON": "NoReadyEndpoint", "AGE": "0s",
        "PUBLISHED": "203.0.113.9", "ENDPOINT": "10.244.18.107", "NODE": "worker-b"}
    narrow = columns(crds.kubectl("get", "pm", "-n", namespace).stdout)[0]
    assert narrow == header[:-3]


def test_get_portmapclasses(crds, namespace, create):
    create(portmapclass("x"))
    put_status(crds, namespace, portmapclass("x"), CLASS_STATUS)
    header, row = columns(crds.kubectl("get", "pmc", "x", "-o", "wide").stdout)
    row[header.index("AGE")] = "0s"
    assert dict(zip(header, row)) == {
        "NAME": "x", "MODE": "Single", "FIRST": "1", "LAST": "65535", "RETURN": "Vxlan",
        "READY": "True", "REASON": "", "AGE": "0s", "VNI": "4242", "PORT": "4790",
        "SUBNET": "169.254.77.0/24"}


def test_wait_for_programmed(crds, namespace, create):
    create(portmap("x"))
    waiting = subprocess.Popen(
        [crds.programs["kubectl"], "--kubeconfig", crds.kubeconfig, "-n", namespace, "wait",
         "--for=condition=Programmed", "pm/x", "--timeout=60s"], stdout=subprocess.PIPE, text=True)
    put_status(crds, namespace, portmap("x"), PORTMAP_STATUS)
    done = PORTMAP_STATUS | {"conditions": [condition("Programmed", "True", "AllNodesReady")]}
    put_status(crds, namespace, portmap("x"), done)
    start = time.monotonic()
    assert waiting.communicate(timeout=60)[0] == "portmap.kuport.wlz.li/x condition met\n"
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("field, words", [
    ("pm", "the pods behind a Service"),
    ("pm.spec.endPort", "The last port of an inclusive range"),
    ("pmc.spec.returnPath.vxlan.subnet6", "/127 for each pair"),
    ("pmc.status.nodes.linkMTU", "smaller of its two ends"),
])
def test_explain(crds, field, words):
    said = wait_for(lambda: crds.kubectl("explain", field, check=False).stdout, "explanation", 30)
    assert words in re.sub(r"\s+", " ", said)


def undescribed(schema, path):
    """Fields of a schema without a description. metadata may have none."""
    if "description" not in schema and path[-1] != "metadata":
        yield ".".join(path)
    for name, field in schema.get("properties", {}).items():
        yield from undescribed(field, [*path, name])
    for part in ("items", "additionalProperties"):
        if part in schema:
            yield from undescribed(schema[part], [*path, part])


@pytest.mark.parametrize("name", CRDS)
def test_every_field_is_described(name):
    crd = yaml.safe_load((ROOT / f"deploy/crds/{name}.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert list(undescribed(schema, [name])) == []
