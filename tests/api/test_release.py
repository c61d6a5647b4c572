"""A release: made twice, in two places, it is the same; what is in it fits together."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile

import pytest
import yaml

from apiserver import ROOT
from manifests import charted, documents, kustomized

VERSION = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())[1]
CRD_FILES = sorted((ROOT / "deploy/crds").glob("[!k]*.yaml"))


def release(tree, version=VERSION):
    env = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    return subprocess.run([tree / "tools/release", version], env=env, capture_output=True,
                          text=True)


def copy_tree(target):
    """The tree's files as a commit would hold them."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    tree = copy_tree(tmp_path_factory.mktemp("release") / "tree")
    done = release(tree)
    assert done.returncode == 0, done.stderr
    return tree / "dist"


@pytest.fixture(scope="module")
def image(dist):
    """The image's archive: name -> bytes."""
    archive = next(dist.glob("*.oci.tar"))
    with tarfile.open(archive) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}


def blob(image, descriptor):
    content = image["blobs/" + descriptor["digest"].replace(":", "/")]
    assert "sha256:" + hashlib.sha256(content).hexdigest() == descriptor["digest"]
    assert len(content) == descriptor["size"]
    return content


def manifest_descriptor(image):
    return json.loads(image["index.json"])["manifests"][0]


def layer(image):
    manifest = json.loads(blob(image, manifest_descriptor(image)))
    config = json.loads(blob(image, manifest["config"]))
    assert len(manifest["layers"]) == len(config["rootfs"]["diff_ids"]) == 1
    return blob(image, manifest["layers"][0]), config


def version_of(crd):
    return crd["metadata"]["annotations"][f"{crd['spec']['group']}/crds-version"]


def test_the_files_and_their_checksums(dist):
    crds_version = version_of(yaml.safe_load(CRD_FILES[0].read_text()))
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    assert {p.name for p in dist.iterdir()} == {
        f"portolan-{VERSION}.yaml", f"portolan-{VERSION}.tgz", f"crds-{crds_version}.yaml",
        f"portolan-loadbalancer-{VERSION}.yaml", f"portolan-{VERSION}-{machine}.oci.tar",
        "SHA256SUMS"}
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist,
                          capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count(": OK\n") == 5, done.stdout


def test_a_second_run_elsewhere_gives_the_same_bytes(dist, tmp_path):
    done = release(copy_tree(tmp_path / "somewhere/else/tree"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == (dist / "SHA256SUMS").read_text()


def test_a_version_that_is_not_the_trees_is_refused(tmp_path):
    done = release(ROOT, "99.0.0")
    assert done.returncode == 1
    assert f"meson.build says {VERSION}" in done.stderr


def test_manifests_and_chart_pin_the_image(api, dist, image):
    pinned = f"portolan@{manifest_descriptor(image)['digest']}"
    manifests = documents((dist / f"portolan-{VERSION}.yaml").read_text())
    chart = charted(api, chart=dist / f"portolan-{VERSION}.tgz")
    for made in manifests, chart:
        spec = made["DaemonSet", "portolan"]["spec"]["template"]["spec"]
        assert [c["image"] for c in spec["containers"]] == [pinned]
    del manifests["Namespace", "portolan-system"]
    assert manifests == chart
    assert manifests.keys() < kustomized(api).keys()


def test_manifests_hold_no_crd_and_no_object_of_theirs(dist):
    """Whoever deletes by this file keeps PortMaps and classes."""
    made = documents((dist / f"portolan-{VERSION}.yaml").read_text())
    assert not {kind for kind, _ in made} & {"CustomResourceDefinition", "PortMap", "PortMapClass"}


def test_crds_are_those_of_the_tree(dist):
    made = documents(next(dist.glob("crds-*.yaml")).read_text())
    assert {name for _, name in made} == {
        "portmaps.kuport.wlz.li", "portmapclasses.kuport.wlz.li", "trafficclasses.net.renner.uno"}
    assert list(made.values()) == [yaml.safe_load(path.read_text()) for path in CRD_FILES]
    for crd in made.values():
        assert version_of(crd) in next(dist.glob("crds-*.yaml")).name


def test_the_image_is_small_and_runs_by_itself(image, tmp_path):
    assert sum(map(len, image.values())) < 20_000_000
    content, config = layer(image)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert {m.uid for m in tar} == {m.gid for m in tar} == {0}
        assert not [m.name for m in tar if m.mode & 0o6022]
        tar.extractall(tmp_path)
    done = subprocess.run(["/usr/sbin/chroot", tmp_path, *config["config"]["Entrypoint"], "version"],
                          capture_output=True, text=True, env={})
    assert (done.stdout, done.returncode) == (f"portolan {VERSION}\n", 0), done.stderr


def test_the_image_has_the_licence_of_each_library(image):
    with tarfile.open(fileobj=io.BytesIO(layer(image)[0])) as tar:
        names = tar.getnames()
    libraries = [n for n in names if ".so" in n]
    licences = [n for n in names if n.endswith("/copyright")]
    assert len(libraries) > 3 and len(licences) > 3
    assert "usr/share/doc/portolan/copyright" in licences
