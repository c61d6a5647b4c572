"""The pod's rights suffice: the agent serves as the DaemonSet runs it, without a cluster.

That is: root with one capability and no way to others, a read-only root made of the image alone,
/proc/sys read-only, and two folders of the host.
"""

import io
import json
import os
import re
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


@pytest.fixture(scope="module")
def layer(binary, tmp_path_factory):
    """The files in the image of the program under test, a compressed tar."""
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    subprocess.run([DEPLOY / "image/build", binary, "0", archive], check=True, capture_output=True)
    with tarfile.open(archive) as tar:
        blobs = [tar.extractfile(m).read() for m in tar if m.isfile()]
    return max(blobs, key=len)


@pytest.fixture
def root(layer, tmp_path):
    """The image, unpacked."""
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        tar.extractall(tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture
def network():
    """A network namespace, by its path."""
    name = f"pod{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        yield f"/run/netns/{name}"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


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


SETS = {1: "hash:ip", 2: "hash:ip,port", 3: "hash:ip,port,ip"}  # by the fields a rule looks at


def planned_rules(binary, folder):
    """What the mode ipvs has iptables-restore and ip6tables-restore read."""
    (folder / "all.yaml").write_text(yaml.safe_dump_all(CLUSTER))
    plan = subprocess.run(
        [binary, "plan", "--node", "edge-a", "--source", f"dir:{folder}", "--features", "serviceproxy",
         "--proxy-mode", "ipvs", "--cluster-cidr", "10.244.0.0/16,fd00:10::/56"],
        capture_output=True, text=True, check=True).stdout
    return {tool: re.search(rf"^# {tool}-restore .*\n((?:[*:-].*\n|COMMIT\n)+)", plan, re.M)[1]
            for tool in ("iptables", "ip6tables")}


@pytest.mark.parametrize("kind", ["", "-nft", "-legacy"])
def test_the_images_iptables_takes_the_rules_of_ipvs(binary, root, network, tmp_path, kind):
    """With the rights deploy/ipvs adds, and printed as the host's own prints them."""
    def there(*words, **more):
        done = subprocess.run(["nsenter", f"--net={network}", *words], text=True, capture_output=True,
                              **more)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("-A")]
    lock = tmp_path / "lock"
    for file in (lock, root / "run/xtables.lock"):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    (root / "proc").mkdir()
    inside = ["/usr/bin/python3", pod.__file__, "--ipvs", root, f"/run/xtables.lock={lock}", "--"]
    for tool, rules in planned_rules(binary, tmp_path).items():
        sets = dict(re.findall(r"--match-set (\S+) (\S+)", rules))
        there("ipset", "restore", input="".join(
            f"create {name} {SETS[fields.count(',') + 1]} family {'inet6' if '6-' in name else 'inet'}\n"
            for name, fields in sets.items()))
        there(*inside, f"/usr/sbin/{tool}{kind}-restore", "--noflush", "-w", "5", input=rules)
        made = there(*inside, f"/usr/sbin/{tool}{kind}-save")
        assert set(made) == {line for line in rules.splitlines() if line.startswith("-A")}
        assert made == there(f"{tool}{kind or '-nft'}-save")
