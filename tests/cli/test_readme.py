"""The first mapping of the README is read, and typed, as it stands."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PORTOLAN = os.path.abspath(os.environ.get("PORTOLAN_BIN", ROOT / "build/portolan"))


@pytest.fixture
def source(tmp_path):
    """The README's files, with its variables filled in as its shell would."""
    values = {"NODE": "edge-a", "NIC": "lo", "IP": "192.0.2.10"}
    text = (ROOT / "README.md").read_text()
    files = re.findall(r"^ +cat > \S+/(\w+\.yaml) <<END\n(.*?)^ +END\n", text, re.M | re.S)
    assert len(files) == 2
    for name, body in files:
        body = re.sub(r"^       ", "", body, flags=re.M)
        (tmp_path / name).write_text(re.sub(r"\$(\w+)", lambda m: values[m[1]], body))
    return f"dir:{tmp_path}"


def test_every_object_is_taken(source):
    run = subprocess.run([PORTOLAN, "plan", "--node", "edge-a", "--source", source],
                         capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert "10.99.0.2" in run.stdout


def test_get_shows_the_mapping(source):
    run = subprocess.run([PORTOLAN, "get", "portmaps", "-A", "-o", "wide", "--source", source],
                         capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert re.search(r"^games +gameserver +", run.stdout, re.M)


def steps(tmp_path):
    """What the README has typed, with the program under test and folders of the test's own."""
    section = (ROOT / "README.md").read_text().split("## Your first PortMap")[1].split("\n## ")[0]
    text = "".join(re.findall(r"^ {7}(.*\n)", section, re.M))
    assert text.count("make build\n") == 1 and text.count("END\n") == 4
    return text.replace("make build\n", "").replace("/tmp/", f"{tmp_path}/").replace(
        "build/portolan", PORTOLAN)


def test_typed_as_it_stands_it_answers_and_leaves_nothing(tmp_path):
    """By a shell whose namespaces and /run nobody else sees."""
    script = "mount -t tmpfs run /run && ip link set lo up && ip netns list >names && " \
        "exec 2>&1\n" + steps(tmp_path) + "ip netns list >>names; ls /run/netns >>names\n"
    run = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
                          "--mount-proc", "bash", "-c", script], cwd=tmp_path, timeout=30,
                         capture_output=True, text=True)
    assert "\nhello from the pod\n" in run.stdout, run.stdout + run.stderr
    assert re.search(r"^192\.0\.2\.1 .*GET /", run.stdout, re.M), run.stdout
    assert re.search(r"^games +gameserver .* True +True .*192\.0\.2\.10", run.stdout, re.M), run.stdout
    assert (tmp_path / "names").read_text() == ""
    assert not (tmp_path / "cluster").exists() and not (tmp_path / "www").exists()


def test_nothing_waits_longer_each_time(tmp_path):
    """curl doubles its pause between retries."""
    assert "--retry" not in steps(tmp_path)
