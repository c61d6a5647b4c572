"""`portolan get services`: who holds an address, and what the Service's status shows."""

import json

from test_help import portolan

CLASS = "reweave.levk.dev/node-address"


def node(name, addresses):
    return {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": {"reweave.levk.dev/addresses": addresses}}}


def service(name, address, shown=None, **spec):
    ingress = [{"ip": shown, "ipMode": "Proxy"}] if shown else []
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "games"},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": CLASS, "loadBalancerIP": address,
                     "ports": [{"port": 80}, {"port": 53, "protocol": "UDP", "name": "d"}]} | spec,
            "status": {"loadBalancer": {"ingress": ingress}}}


def get(folder, *words):
    objects = [node("edge-a", "203.0.113.8, 203.0.113.9"), node("edge-b", "203.0.113.8"),
               node("edge-c", "203.0.113.9,garbage"), service("web", "203.0.113.9", "203.0.113.9"),
               service("two", "203.0.113.8"), service("none", "203.0.113.7"),
               service("no-address", ""), service("other", "203.0.113.9", loadBalancerClass="x.y/z"),
               service("inside", "203.0.113.9", type="ClusterIP")]
    (folder / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List",
                                                 "items": objects}))
    return portolan("get", *words, "--source", f"dir:{folder}")


def test_holders_and_status(tmp_path):
    out = get(tmp_path, "services", "-A")
    header, *rows = (line.split() for line in out.stdout.splitlines())
    assert (out.returncode, out.stderr) == (0, "")
    assert header == ["NAMESPACE", "NAME", "ADDRESS", "HOLDER", "STATUS", "PORTS", "AGE"]
    assert [row[1:6] for row in rows] == [
        ["no-address", "<none>", "<none>", "<none>", "80/TCP,53/UDP"],
        ["none", "203.0.113.7", "<none>", "<none>", "80/TCP,53/UDP"],
        ["two", "203.0.113.8", "edge-a,edge-b", "<none>", "80/TCP,53/UDP"],
        ["web", "203.0.113.9", "edge-a", "203.0.113.9", "80/TCP,53/UDP"]]


def test_others_are_not_found(tmp_path):
    assert "inside: not found" in get(tmp_path, "svc", "inside", "-n", "games").stderr
    assert f"no services of class {CLASS}" in get(tmp_path, "svc").stderr


def test_what_is_not_read_is_not_printed(tmp_path):
    out = get(tmp_path, "svc", "-A", "-o", "yaml")
    assert out.returncode == 2 and "table" in out.stderr
