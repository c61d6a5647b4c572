"""lab/lab, as a person uses it."""

import os
import subprocess

import pytest

from lab import Lab, fixtures, instance, topology

TOOL = os.path.join(os.path.dirname(topology.DIRECTORY), "lab")


def tool(*arguments):
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True)


@pytest.fixture(scope="module")
def name():
    name = fixtures.instance_name("c")
    yield name
    tool("down", "--name", name)


def test_up_status_exec_down(name):
    done = tool("up", "three-nodes", "--name", name)
    assert done.returncode == 0 and "up in" in done.stdout, done.stderr
    assert f"ptl-{name}-edge-a" in tool("status").stdout
    assert "10.244.2.2" in tool("exec", "--name", name, "pod-b1", "ip", "addr").stdout
    assert "100.64.93.3/32" in tool("exec", "--name", name, "edge-a", "wg", "show").stdout
    assert tool("exec", "--name", name, "edge-a", "false").returncode == 1
    again = tool("up", "--name", name)
    assert again.returncode == 0, again.stderr
    assert tool("down", "--name", name).returncode == 0
    assert name not in tool("status").stdout
    assert tool("down", "--name", name).returncode == 0


def test_one_that_is_half_there_hides_no_other(name):
    half = instance.Instance(f"{name}half")
    half.make_state()
    try:
        done = tool("status")
    finally:
        half.down()
    assert done.returncode == 0, done.stderr
    assert f"lab '{name}half' is coming up or going down" in done.stdout


@pytest.mark.parametrize("arguments, says", [
    (["up", "nothing", "--name", "x"], "no topology 'nothing'"),
    (["up", "--name", "Not-A-Name"], "lower case letters and digits"),
    (["exec", "--name", "notup", "edge-a", "true"], "no lab 'notup' is up"),
    (["status", "--name", "notup"], "no lab 'notup' is up"),
])
def test_a_mistake_is_one_line(arguments, says):
    done = tool(*arguments)
    assert done.returncode == 1 and says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("change, says", [
    (("cni: ptp", "cni: calico"), "worker-b.cni: 'calico'"),
    (("masquerade: flannel", "masquerade: calico"), "worker-c.masquerade: 'calico'"),
    (("[home-b wan, inet hb]", "[home-x wan, inet hb]"), "no host 'home-x'"),
    (("pods: [c1]", "pods: [a1]"), "used twice"),
    (("    router: true", "    ruter: true"), "ruter"),
])
def test_a_wrong_topology_is_named(tmp_path, change, says):
    with open(topology.find("three-nodes")) as file:
        text = file.read()
    path = tmp_path / "wrong.yaml"
    path.write_text(text.replace(*change, 1))
    with pytest.raises(topology.TopologyError, match="wrong.yaml.*" + says):
        Lab(str(path), name="wrong")
