"""--help and the manual page name the same commands and options."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = os.environ.get("PORTOLAN_BIN", str(ROOT / "build/portolan"))
PROXY = ["agent", "--node", "a", "--source", "dir:/x", "--features", "portmap,serviceproxy"]
HELD = ["plan", "--node", "a", "--source", "dir:/x", "--features", "serviceproxy,loadbalancer"]
IPVS = PROXY + ["--proxy-mode", "ipvs"]
COMMANDS = ["agent", "plan", "diff", "get", "cleanup", "version"]


def portolan(*args, **kwargs):
    return subprocess.run([BIN, *args], capture_output=True, text=True, timeout=20, **kwargs)


def manual():
    """Section of each command -> the options it names with their placeholder."""
    text = (ROOT / "man/portolan.8").read_text().replace("\\-", "-").replace("\\fI", "")
    commands = text.split(".SH COMMANDS")[1].split(".SH SOURCES")[0]
    sections = {}
    for part in commands.split("\n.SS ")[1:]:
        name, body = part.split("\n", 1)
        found = set()
        for line in re.findall(r"^\.TP\n(.*)$", body, re.M):
            words = line.replace("\\fR", "").replace(",\\ ", " ").replace("\\ ", " ").split()
            long = next(i for i, w in enumerate(words) if w.startswith("--"))
            letter = next((w for w in words if re.fullmatch(r"-\w,?", w)), "").rstrip(",")
            option = (letter, words[long], words[long + 1] if len(words) > long + 1 else "")
            assert option not in found, f"{name}: {option} is there twice"
            found.add(option)
        sections[name] = found
    return sections


def help_of(command):
    found = set()
    for line in portolan(command, "--help").stdout.splitlines():
        if match := re.match(r"  (?:(-\w), )?(--[\w-]+)(?: ([A-Zd][\w:]*))?(?:  | [a-z])", line + "  "):
            if match[2] != "--help":
                found.add((match[1] or "", match[2], match[3] or ""))
    return found


def test_overview_lists_every_command():
    out = portolan("--help")
    assert out.returncode == 0
    assert re.findall(r"^  (\w+) ", out.stdout, re.M) == COMMANDS
    assert list(manual()) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_manual_agree(command):
    assert help_of(command) == manual()[command]


@pytest.mark.parametrize("command", COMMANDS)
def test_manual_gives_the_defaults_help_gives(command):
    text = (ROOT / "man/portolan.8").read_text().replace("\\-", "-").replace("\\&", "")
    for default in re.findall(r"\(default (\S+)\)", portolan(command, "--help").stdout):
        assert default in text


def test_every_option_of_the_agent_is_in_the_docs():
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    options = {option for _, option, _ in help_of("agent")}
    assert len(options) > 30
    assert [option for option in sorted(options) if not re.search(rf"{option}(?![\w-])", pages)] == []


@pytest.mark.parametrize("args, says", [
    ([], "a command is needed"),
    (["fly"], "unknown command 'fly'"),
    (["agent"], "--node"),
    (["agent", "--node", "a"], "--source"),
    (["agent", "--node"], "needs a value"),
    (["agent", "--nope"], "--nope"),
    (["agent", "--node", "a", "--source", "dir:/x", "--features", "portmap,tea"], "'tea'"),
    (PROXY + ["--proxy-mode", "iptables"], "nft or ipvs"),
    (PROXY + ["--proxy-mode", "userspace"], "userspace"),
    (PROXY + ["--scheduling-method", "rr"], "--proxy-mode ipvs only"),
    (PROXY + ["--proxy-mode", "nft", "--strict-arp"], "--proxy-mode ipvs only"),
    (["plan", "--node", "a", "--source", "dir:/x", "--weight", "2"], "--features serviceproxy"),
    (IPVS + ["--scheduling-method", "fo"], "seq (sed), nq"),
    (IPVS + ["--weight", "0"], "1 to 65535"),
    (IPVS + ["--weight", "65536"], "1 to 65535"),
    (IPVS + ["--node-address", "192.0.2.1,eth0"], "'eth0'"),
    (IPVS + ["--node-address", "192.0.2.1", "--node-address", "192.0.2"], "'192.0.2'"),
    (IPVS + ["--node-address", "192.0.2.1,"], "''"),
    (IPVS + ["--node-address", "127.0.0.1"], "127.0.0.1 is a loopback address"),
    (IPVS + ["--node-address", "192.0.2.1", "--nodeport-addresses", "primary"], "not go together"),
    (IPVS + ["--ipvs-exclude-cidrs", "10.0.0.0/8", "--ipvs-exclude-cidrs", "x"], "'x'"),
    (IPVS + ["--iptables-mode", "xtables"], "auto, nft or legacy"),
    (PROXY + ["--cluster-cidr", "10.0.0.0/8,10.1.0.0"], "'10.1.0.0'"),
    (PROXY + ["--nodeport-addresses", "eth0"], "'eth0'"),
    (PROXY + ["--detect-local-mode", "BridgeInterface"], "NodeCIDR"),
    (PROXY + ["--detect-local-mode", "NodeCIDR", "--cluster-cidr", "::/0"], "--cluster-cidr"),
    (PROXY + ["--masquerade-bit", "32"], "0 to 31"),
    (PROXY + ["--healthz-bind-address", "10256"], "IP:PORT"),
    (PROXY + ["--metrics-bind-address", "::1:10249"], "[IP6]:PORT"),
    (PROXY + ["--config-sync-period", "15"], "15m"),
    (PROXY + ["--config-sync-period", "5m1h"], "1h30m"),
    (PROXY + ["--config-sync-period", "0s"], "from 1s"),
    (["agent", "--node", "a", "--source", "dir:/x", "--healthz-bind-address", "none"],
     "--features serviceproxy"),
    (HELD, "--overlay is needed"),
    (HELD + ["--overlay", "a/b"], "interface name"),
    (HELD + ["--overlay", "weave", "--overlay-subnet", "10.0.0.0/8"], "--overlay vxlan"),
    (HELD + ["--overlay", "vxlan", "--overlay-subnet", "10.0.0.0/31"], "10.0.0.0/31"),
    (HELD + ["--overlay", "vxlan", "--overlay-subnet", "fd00::/64"], "IPv4"),
    (HELD + ["--overlay", "weave", "--masquerade-bit", "24"], "below 24"),
    (PROXY + ["--overlay", "weave"], "--features loadbalancer"),
    (PROXY + ["--address-exclude", ""], "--features loadbalancer"),
    (["agent", "--node", "a", "--source", "dir:/x", "--metrics-address", "localhost:1"], "IP:PORT"),
    (["plan", "--node", "a", "--source", "dir:/x", "--masquerade-all"], "--features serviceproxy"),
    (["agent", "--node", "a", "--source", "dir:/x", "--dry-run", "--log-level", "loud"], "loud"),
    (["agent", "--node", "a", "--source", "dir:/x", "--cni-vxlan-port", "70000"], "1 to 65535"),
    (["agent", "--node", "a", "--source", "dir:/x", "extra"], "too many"),
    (["get"], "too few"),
    (["get", "pods", "--source", "dir:/x"], "pods"),
    (["get", "portmaps", "--source", "dir:/x", "-o", "xml"], "xml"),
    (["plan", "--node", "a", "--source", "dir:/x", "-o", "xml"], "xml"),
    (["plan", "--node", "a", "--source", "dir:/x", "--now", "noon"], "noon"),
])
def test_wrong_usage_is_one_line_and_status_2(args, says):
    out = portolan(*args, env={k: v for k, v in os.environ.items()
                               if k not in ("NODE_NAME", "KUBERNETES_SERVICE_HOST")})
    assert out.returncode == 2
    assert out.stdout == ""
    assert len(out.stderr.splitlines()) == 1 and says in out.stderr


@pytest.mark.parametrize("source, says", [
    ("dir:/nonexistent-folder", "/nonexistent-folder"),
    ("/tmp", "dir:"),
    ("kube:", "--kubeconfig"),
    ("file:/tmp", "kube:"),
])
def test_a_source_that_cannot_be_read_fails_with_one_line(source, says):
    outside = {k: v for k, v in os.environ.items() if k != "KUBERNETES_SERVICE_HOST"}
    out = portolan("get", "portmaps", "--source", source, env=outside)
    assert out.returncode == 1
    assert len(out.stderr.splitlines()) == 1 and says in out.stderr


def test_version():
    assert re.fullmatch(r"portolan \d+\.\d+\.\d+\n", portolan("version").stdout)
