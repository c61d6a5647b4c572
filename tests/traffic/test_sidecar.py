"""BIRD as the DaemonSet runs it beside the agent: the image that is built here, the rights and the
command deploy/bird gives it."""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from lab.links import WORLD
from lab.netns import wait_until
from test_links import FAMILIES, expect

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/api"))
import pod  # noqa: E402

BUILD = ROOT / "deploy/image/build"


def blob(archive, digest):
    with tarfile.open(archive) as tar:
        return tar.extractfile("blobs/" + digest.replace(":", "/")).read()


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """(unpacked root, its configuration, the archive)"""
    folder = tmp_path_factory.mktemp("bird")
    archive = folder / "bird.oci.tar"
    said = subprocess.run([BUILD, "--bird", archive], check=True, capture_output=True, text=True)
    manifest = json.loads(blob(archive, said.stdout.strip()))
    config = json.loads(blob(archive, manifest["config"]["digest"]))
    content = blob(archive, manifest["layers"][0]["digest"])
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(folder / "root")
    for mount in ("run/bird", "proc"):
        (folder / "root" / mount).mkdir(parents=True)
    return folder / "root", config["config"], archive


def golden_conf():
    """What the agent writes for the recommended design."""
    text = (ROOT / "tests/golden/traffic-hybrid/expected.k8s-1.txt").read_text()
    return text[text.index("# Written by portolan"):]


def test_birds_own_parser_takes_the_configuration_in_the_image(image):
    root, config, _ = image
    assert config["Entrypoint"] == ["/usr/sbin/bird"]
    (root / "tmp.conf").write_text(golden_conf())
    done = subprocess.run(["/usr/sbin/chroot", root, *config["Entrypoint"], "-p", "-c", "/tmp.conf"],
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    (root / "tmp.conf").write_text(golden_conf() + "nonsense;\n")
    done = subprocess.run(["/usr/sbin/chroot", root, *config["Entrypoint"], "-p", "-c", "/tmp.conf"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "syntax error" in done.stderr


def test_the_image_is_small_and_has_the_licences(image, tmp_path):
    root, _, archive = image
    assert os.path.getsize(archive) < 20_000_000
    licences = {path.parent.name for path in root.glob("usr/share/doc/*/copyright")}
    assert {"bird2", "dash", "coreutils", "libc6"} <= licences
    again = tmp_path / "again.tar"
    subprocess.run([BUILD, "--bird", again], check=True, capture_output=True)
    assert again.read_bytes() == archive.read_bytes()


def test_the_sidecar_serves(make_lab, image):
    """It is started before the agent has written anything."""
    root, _, _ = image
    lab = make_lab("hybrid")
    for node in lab.nodes:
        lab.stop_bird(node)
    lab.agents["k8s-1"].stop()
    folder = os.path.dirname(lab.conf("k8s-1"))
    os.unlink(lab.conf("k8s-1"))
    log = os.path.join(folder, "sidecar.log")
    # There twice, since here the agent knows it by another name, which it tells BIRD.
    (root / folder[1:]).mkdir(parents=True)
    lab.processes.start("bird-k8s-1", ["/usr/bin/python3", pod.__file__, "--bird", root,
                                       f"/run/bird={folder}", f"{folder}={folder}", "--",
                                       *pod.bird()["command"]], ns=lab.ns("k8s-1"), log=log)
    lab.agents["k8s-1"].restart()
    for node in lab.nodes[1:]:
        lab.start_bird(node)
    lab.wait_sessions(4)
    pid = lab.bird_pid("k8s-1")
    assert os.readlink(f"/proc/{pid}/root") == str(root)
    bounds = re.search(r"CapBnd:\s+(\S+)", Path(f"/proc/{pid}/status").read_text())[1]
    assert int(bounds, 16) == 1 << 10 | 1 << 12 | 1 << 13
    for family in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", family), {"k8s-1": {"pod0"}, "k8s-2": {"pod0"}})
        expect(lab, "p1a", WORLD[family], {"k8s-1": {"ingress0"}}, router={"ingress0"})
    class_ = lab.folder.get("TrafficClass", "pods")  # BFD asks for a raw socket
    class_["spec"]["routes"]["mesh"]["bfd"] = True
    lab.folder.put(class_)
    wait_until(lambda: lab.birdc("k8s-1", "show", "bfd", "sessions").count(" Up ") == 4, 30,
               lambda: lab.birdc("k8s-1", "show", "bfd", "sessions"))
