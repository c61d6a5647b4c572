"""What the tests here rely on: the kernel has it, and it does what it is known for."""

import contextlib
import re

import pytest

from lab import build, netns
from lab.probe import open_socket

SCHEDULERS = ("rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "sed", "nq")
SETS = ("hash:ip", "hash:ip,port", "hash:ip,port,ip", "hash:ip,port,net")


@pytest.fixture
def host():
    """A namespace of its own."""
    build.namespaces(["ptl-bare"])
    yield "ptl-bare"
    build.delete_namespaces(["ptl-bare"])


def run(ns, line, **options):
    return netns.run_in(ns, line.split(), **options).stdout


def test_ipvs_has_its_schedulers_and_a_namespace_of_its_own(host):
    run(host, "ipvsadm --restore", stdin="".join(
        f"-A -t 192.0.2.1:{port} -s {name}\n" for port, name in enumerate(SCHEDULERS, 80)))
    assert re.findall(r"^TCP  192\.0\.2\.1:\d+ (\w+)$", run(host, "ipvsadm -Ln"),
                      re.MULTILINE) == list(SCHEDULERS)
    assert "192.0.2.1" not in netns.run(["ipvsadm", "-Ln"]).stdout


def test_sets_are_of_every_type_and_legacy_rules_match_them(host):
    run(host, "ipset restore", stdin="".join(
        f"create s{n}-{family} {kind} family {family}\n"
        for n, kind in enumerate(SETS) for family in ("inet", "inet6"))
        + "create ports bitmap:port range 0-65535\nadd s1-inet 192.0.2.1,tcp:80\n")
    for command, family in (("iptables-legacy", "inet"), ("ip6tables-legacy", "inet6")):
        run(host, f"{command} -t nat -A OUTPUT -m set --match-set s1-{family} dst,dst -j ACCEPT")
        run(host, f"{command} -t nat -A POSTROUTING -j MASQUERADE --random-fully")
        run(host, f"{command} -A INPUT -m set --match-set ports dst -j REJECT")
    assert "--match-set s1-inet dst,dst -j ACCEPT" in run(host, "iptables-legacy-save")


def test_devices(host):
    netns.ip_batch(host, ["link add d0 type dummy", "link set d0 up",
                          "link add d0.7 link d0 type vlan id 7", "link set d0.7 up",
                          "addr add fd00::7/64 dev d0.7 nodad"])
    assert "vlan protocol 802.1Q id 7" in run(host, "ip -d link show dev d0.7")


@pytest.mark.no_nftables
def test_there_is_no_nftables_for_ip(host):
    """So whatever works here works without."""
    done = netns.run_in(host, ["nft", "add", "table", "inet", "t"], check=False)
    assert done.returncode != 0


def test_an_empty_server_refuses(host):
    netns.ip_batch(host, ["link add d0 type dummy", "link set d0 up", "addr add 192.0.2.1 dev d0"])
    run(host, "ipvsadm --restore", stdin="-A -t 192.0.2.1:80 -s rr\n")
    with contextlib.closing(open_socket(host, "tcp", "192.0.2.1")) as sock:
        sock.settimeout(2)
        with pytest.raises(ConnectionRefusedError):
            sock.connect(("192.0.2.1", 80))
    assert "192.0.2.1:80" in run(host, "ipvsadm -Ln")
