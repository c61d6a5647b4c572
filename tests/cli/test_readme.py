"""The first mapping of the README is read as it stands."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PORTOLAN = os.environ.get("PORTOLAN_BIN", str(ROOT / "build/portolan"))


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
