"""The pod's rights suffice: the agent serves as the DaemonSet runs it, without a cluster.

That is: root with one capability and no way to others, a read-only root made of the image alone,
/proc/sys read-only, and two folders of the host.
"""

import io
import json
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

import pod
from apiserver import wait_for
from manifests import DEPLOY
from objects import portmap, portmapclass

NET_ADMIN = 1 << 12
CLUSTER = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "games"}},
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-a"},
     "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.10"}]}},
    {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
     "metadata": {"name": "game-1", "namespace": "games",
                  "labels": {"kubernetes.io/service-name": "game"}},
     "ports": [{"name": "main", "port": 3000}],
     "endpoints": [{"addresses": ["192.0.2.20"], "nodeName": "edge-a"}]},
    portmapclass("public"),
    portmap("x") | {"metadata": {"name": "x", "namespace": "games"}},
]


@pytest.fixture
def root(binary, tmp_path):
    """The image of the program under test, unpacked."""
    archive = tmp_path / "image.tar"
    subprocess.run([DEPLOY / "image/build", binary, "0", archive], check=True, capture_output=True)
    with tarfile.open(archive) as tar:
        blobs = [tar.extractfile(m).read() for m in tar if m.isfile()]
    with tarfile.open(fileobj=io.BytesIO(max(blobs, key=len))) as tar:
        tar.extractall(tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture(params=["portmap", "portmap,serviceproxy"])
def agent(root, tmp_path, request):
    """An agent in such a pod, with CLUSTER as a folder: (process, source, state, log)."""
    source, state, log = (tmp_path / name for name in ("source", "state", "log"))
    source.mkdir()
    state.mkdir()
    (source / "all.yaml").write_text(yaml.safe_dump_all(CLUSTER))
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod.spec()["volumes"]}
    mounts = {m["mountPath"]: hosts[m["name"]]
              for m in pod.spec()["containers"][0]["volumeMounts"]}
    assert set(mounts.values()) == {"/run/portolan", "/proc/sys/net"}
    volumes = {target: str(state) if path == "/run/portolan" else path
               for target, path in mounts.items()} | {"/source": str(source)}
    for folder in ["/proc", *volumes]:
        (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    with open(log, "w") as said:
        process = subprocess.Popen(
            ["/usr/bin/python3", pod.__file__, root,
             *(f"{target}={path}" for target, path in volumes.items()), "--",
             "/usr/bin/portolan", "agent", "--node", "edge-a", "--source", "dir:/source",
             "--features", request.param, "--metrics-address", "none"], stderr=said)
    try:
        yield process, source, state, log
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0, log.read_text()


def conditions(source):
    record = source / ".status/portmaps/games/x.json"
    made = json.loads(record.read_text()) if record.exists() else {}
    return {c["type"]: c["status"] for c in made.get("status", {}).get("conditions", [])}


def test_the_agent_serves_with_the_pods_rights(agent):
    process, source, state, log = agent

    def programmed():
        assert process.poll() is None, log.read_text()
        return conditions(source) == {"Accepted": "True", "Programmed": "True"}
    wait_for(programmed, f"mapping that is programmed: {log}", 30)
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert f"CapEff:\t{NET_ADMIN:016x}\n" in status and f"CapBnd:\t{NET_ADMIN:016x}\n" in status
    assert "NoNewPrivs:\t1\n" in status
    forwarding = subprocess.run(["nsenter", "-t", str(process.pid), "-n", "cat",
                                 "/proc/sys/net/ipv4/ip_forward"], capture_output=True, text=True)
    assert forwarding.stdout == "1\n"
    assert "net/ipv4/ip_forward 0\n" in (state / "sysctls").read_text()
