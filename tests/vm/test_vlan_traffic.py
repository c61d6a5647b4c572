"""Four VLANs on one trunk per node: each kind of traffic takes its own, with real BIRD.

The nodes are those of lab/links.py, but their links are sub-interfaces; packets are counted by
sockets on them, this kernel having no nftables. Nor does it masquerade: the router knows the pods.
"""

import errno
import socket
import struct
import subprocess
from collections import Counter

import pytest

from lab import fixtures, netns
from lab.links import LINKS, PORT, WORLD, LinksLab
from lab.netns import wait_until

ETH_P_ALL, PACKET_OUTGOING = 3, 4
UDP, IPV4, IPV6 = 17, 0x0800, 0x86DD
FAMILIES = (4, 6)


def flow(packet):
    """(source, destination) of a probe or its answer, else None."""
    kind = struct.unpack("!H", packet[12:14])[0]
    if kind == IPV4 and packet[23] == UDP:
        ends, ports = packet[26:34], packet[34:38]
        pair = [socket.inet_ntop(socket.AF_INET, ends[i:i + 4]) for i in (0, 4)]
    elif kind == IPV6 and packet[20] == UDP:
        ends, ports = packet[22:54], packet[54:58]
        pair = [socket.inet_ntop(socket.AF_INET6, ends[i:i + 16]) for i in (0, 16)]
    else:
        return None
    return tuple(pair) if PORT in struct.unpack("!HH", ports) else None


class VlanLab(LinksLab):
    """The links of a node are VLANs of trunk0; br-trunk in `sw` carries all of them."""

    def __init__(self, name):
        super().__init__(name)
        self.ears = {}

    def nft(self, host, text):
        pass

    def down(self):
        for ear in self.ears.values():
            ear.close()
        self.ears = {}
        super().down()

    def _trunk(self, host):
        if not netns.run_in(self.ns("sw"), ["ip", "-br", "link", "show", "type", "bridge"]
                            ).stdout.count("br-trunk"):
            self.ip("sw", "link add br-trunk type bridge mcast_snooping 0", "link set br-trunk up")
        if not self.run(host, "ip", "link", "show", "trunk0", check=False).stdout:
            self.ip("sw", f"link add t-{host} type veth peer name trunk0 netns {self.ns(host)}",
                    f"link set t-{host} master br-trunk", f"link set t-{host} up")
            self.ip(host, "link set trunk0 up")

    def _plug(self, host, link, number):
        vlan = LINKS[link]
        self._trunk(host)
        self.ip(host, f"link add link trunk0 name {link} type vlan id {vlan}",
                f"addr add 10.{vlan}.0.{number}/24 dev {link}",
                f"addr add fd00:{vlan}::{number:x}/64 dev {link} nodad", f"link set {link} up")
        with netns.entered(self.ns(host)):
            ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            ear.bind((link, ETH_P_ALL))
            ear.setblocking(False)
        self.ears[host, link] = ear

    def _flush(self):
        for host, link in self.ears:
            self._heard(host, link)

    def _heard(self, host, link):
        """{(link, source, destination): packets}: what a node sent, and what the router got."""
        seen = Counter()
        while True:
            try:
                packet, where = self.ears[host, link].recvfrom(2048)
            except OSError as error:
                if error.errno != errno.ENETDOWN:  # which a link that went down says once
                    return seen
                continue
            pair = flow(packet)
            if pair and (where[2] == PACKET_OUTGOING) == (host != "gw"):
                seen[(link, *pair)] += 1

    def counted(self, host):
        return {key: n for owner, link in self.ears if owner == host
                for key, n in self._heard(host, link).items()}


@pytest.fixture(scope="module")
def lab(binary):
    lab = VlanLab(fixtures.instance_name("n"))
    try:
        with lab:
            lab.put_sample("hybrid")
            for node in lab.nodes:
                lab.start_agent(node, binary, "--bird-away-seconds", "2")
            for node in lab.nodes:
                lab.start_bird(node)
            lab.wait_sessions(4, timeout=60)
            yield lab
    finally:
        lab.down()


def expect(lab, source, address, links, router=frozenset()):
    seen = [None]

    def there():
        seen[0] = lab.probe(source, address)
        return seen[0].links == links and seen[0].answers == 3
    wait_until(there, 30, lambda: f"{source} to {address} over {links}: {seen[0]}", 0.05)
    assert {link for link, _ in seen[0].router} == set(router)


def both(link):
    return {"k8s-1": {link}, "k8s-2": {link}}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_kind_of_traffic_has_its_vlan(lab, family):
    expect(lab, "p1a", lab.pod(2, "a", family), both("pod0"))
    expect(lab, "p1a", lab.pod(1, "b", family), {})
    expect(lab, "p1a", WORLD[family], {"k8s-1": {"ingress0"}}, {"ingress0"})
    expect(lab, "world", lab.pod(1, "a", family), {"k8s-1": {"ingress0"}}, {"ingress0"})
    expect(lab, "k8s-1", lab.address(2, "node0", family), both("node0"))
    expect(lab, "k8s-1", lab.pod(2, "a", family), both("node0"))
    expect(lab, "k8s-1", WORLD[family], {"k8s-1": {"mgmt0"}}, {"mgmt0"})


def test_without_one_nodes_bird_its_pods_are_reached_over_node0(lab):
    lab.stop_bird("k8s-2")
    for family in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", family), both("node0"))
        expect(lab, "p1a", lab.pod(3, "a", family), {"k8s-1": {"pod0"}, "k8s-3": {"pod0"}})
    lab.start_bird("k8s-2")
    for family in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", family), both("pod0"))


def test_a_vlan_that_goes_down_and_comes_back(lab):
    lab.ip("k8s-1", "link set ingress0 down")
    for family in FAMILIES:
        expect(lab, "p1a", lab.pod(2, "a", family), both("pod0"))
    lab.ip("k8s-1", "link set ingress0 up", "addr replace fd00:47::1/64 dev ingress0 nodad")
    for family in FAMILIES:
        expect(lab, "p1a", WORLD[family], {"k8s-1": {"ingress0"}}, {"ingress0"})


def test_the_links_are_vlans_of_one_trunk(lab):
    said = lab.run("k8s-1", "ip", "-d", "-br", "link").stdout
    assert {f"{link}@trunk0" for link in LINKS} <= set(said.split())


def test_its_status_is_told_where_there_is_no_nftables(lab, binary):
    def rows():
        listed = subprocess.run([binary, "get", "trafficclasses", *lab.folder.arguments], check=True,
                                capture_output=True, text=True).stdout
        return [line.split()[:5] for line in listed.splitlines()[1:]]
    wait_until(lambda: rows() == [["pods", "47", "ingress0", "pod0", "3/3"]], 30, rows)
