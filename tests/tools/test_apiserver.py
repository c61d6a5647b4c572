"""tools/apiserver finds what is there, and says what is missing. Nothing is downloaded here."""

import os
import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/apiserver"


def program(folder, name, script="exit 0"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def run(tmp_path):
    """Runs it with a cache and a PATH of its own."""
    def run(*words, **env):
        return subprocess.run(
            [TOOL, *words], capture_output=True, text=True,
            env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path / "home"),
                 "PORTOLAN_CACHE": str(tmp_path / "cache")} | env)
    return run


def test_an_empty_cache_lists_nothing(run):
    done = run("--list")
    assert (done.returncode, done.stdout) == (1, "")


def test_assets_come_first(run, tmp_path):
    assets = tmp_path / "assets"
    for name in ("etcd", "kube-apiserver"):
        program(assets, name)
    done = run("etcd", "kube-apiserver", KUBEBUILDER_ASSETS=str(assets))
    assert done.stdout == f"etcd {assets}/etcd\nkube-apiserver {assets}/kube-apiserver\n"
    assert done.returncode == 0
    assert run("--list", KUBEBUILDER_ASSETS=str(assets)).returncode == 1  # no kubectl


def test_an_unknown_program(run):
    done = run("kubelet")
    assert done.returncode == 2
    assert "kubelet; known: etcd, kube-apiserver, kubectl, helm" in done.stderr


def test_a_go_that_is_too_old_is_told_plainly(run, tmp_path):
    program(tmp_path / "bin", "go", "echo go1.19.8")
    done = run("kube-apiserver")
    assert done.returncode == 1
    assert "go1.19.8 is too old to build kube-apiserver" in done.stderr
    assert "KUBEBUILDER_ASSETS" in done.stderr
    assert not list((tmp_path / "cache").glob("apiserver-*"))


def test_a_build_that_fails_leaves_no_program(run, tmp_path):
    program(tmp_path / "bin", "npm", "exit 7")
    done = run("kubectl")
    assert done.returncode == 1
    assert "npm pack" in done.stderr and "status 7" in done.stderr
    assert run("--list", "kubectl").stdout == ""
    assert os.listdir(tmp_path / "cache") == ["lock"]
