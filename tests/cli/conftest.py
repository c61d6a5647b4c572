"""What the tests share."""

import subprocess

import pytest

from host import NAMESPACE, NODE, Host


@pytest.fixture
def host(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "state").mkdir()
    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    host = Host(tmp_path / "source")
    try:
        host.run("ip", "link", "set", "lo", "up")
        host.put("node", NODE)
        yield host
        if host.agent:
            host.stop()
        assert "Sanitizer" not in host.log.read_text() if host.log.exists() else True
    finally:
        if host.agent:
            host.agent.kill()
            host.agent.wait()
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=True)
