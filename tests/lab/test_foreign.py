"""Somebody else changes what is ours: it is noticed and mended within a second."""

import json

import pytest

from lab import promptly, seconds_until
from world import EDGE, EDGE6, elements, links, routes, rules, table_text

MENDED = 1.0
TABLE = "inet portolan"
MARK = 0x6b700000


@pytest.fixture
def serving(serving):
    """And a large range."""
    serving.expose("range", ["a1"], "udp", 20000, target=20000, endPort=22000)
    return serving


def state(node):
    """All that is ours on a node, as it should look, without counters and handles."""
    addresses = [line.partition(":")[2] for name in sorted(links(node))
                 for line in node.out("ip", "-o", "addr", "show", "dev", name).splitlines()]
    return {"table": table_text(node), "links": links(node), "addresses": addresses,
            "up": node.out("ip", "-br", "link", "show", "type", "vxlan", "up").split()[:1],
            "rules": rules(node) + rules(node, 6), "routes": routes(node) + routes(node, 6)}


def delete_first_element(node, name):
    key = elements(node, name)[0]
    node.nft(f"delete element {TABLE} {name} {{ {element_key(key)} }}")


def element_key(entry):
    """nft's JSON of an element, back as text: [key, data], {"elem": {"val": ...}}, or a key."""
    if isinstance(entry, list):
        entry = entry[0]
    if isinstance(entry, dict) and "elem" in entry:
        entry = entry["elem"]["val"]
    if isinstance(entry, dict) and "concat" in entry:
        return " . ".join(element_key(part) for part in entry["concat"])
    if isinstance(entry, dict) and "range" in entry:
        return "-".join(str(end) for end in entry["range"])
    return str(entry)


def first_rule(node, chain=None):
    """(chain, handle) of a rule of our table."""
    listed = json.loads(node.out("nft", "-j", "list", "table", *TABLE.split()))["nftables"]
    return next((entry["rule"]["chain"], entry["rule"]["handle"]) for entry in listed
                if "rule" in entry and chain in (None, entry["rule"]["chain"]))


def point_elsewhere(node):
    key = element_key(elements(node, "target4")[0])
    node.nft(f"delete element {TABLE} target4 {{ {key} }}\n"
             f"add element {TABLE} target4 {{ {key} : 192.0.2.200 . 9 }}")


def delete_rule(node):
    chain, handle = first_rule(node)
    node.nft(f"delete rule {TABLE} {chain} handle {handle}")


def edit_rule(node):
    chain, handle = first_rule(node)
    node.nft(f"replace rule {TABLE} {chain} handle {handle} counter accept")


def add_rule(node):
    chain, _ = first_rule(node)
    node.nft(f"insert rule {TABLE} {chain} meta l4proto tcp counter drop")


def flush_chain(node):
    chain, _ = first_rule(node)
    node.nft(f"flush chain {TABLE} {chain}")


def link_of(node):
    return next(iter(links(node)))


def ip(node, line, family=4):
    node.run("ip", f"-{family}", *line.split())


NFT = {
    "an element deleted": lambda n: delete_first_element(n, "target4"),
    "an IPv6 element deleted": lambda n: delete_first_element(n, "target6"),
    "a steering element deleted": lambda n: delete_first_element(n, "open4"),
    "an element added": lambda n: n.nft(
        f"add element {TABLE} target4 {{ {EDGE} . tcp . 4444 : 10.244.1.2 . 8080 }}"),
    "an element edited": point_elsewhere,
    "a map flushed": lambda n: n.nft(f"flush map {TABLE} target4"),
    "a rule deleted": delete_rule,
    "a rule edited": edit_rule,
    "a rule added": add_rule,
    "a chain flushed": flush_chain,
    "a chain added": lambda n: n.nft(
        f"add chain {TABLE} strange {{ type filter hook forward priority 5; policy accept; }}"),
    "a set added": lambda n: n.nft(f"add set {TABLE} strange {{ type ipv4_addr; }}"),
    "the table deleted": lambda n: n.nft(f"delete table {TABLE}"),
    "the table emptied": lambda n: n.nft(f"flush table {TABLE}"),
    "the table dormant": lambda n: n.nft(f"add table {TABLE} {{ flags dormant; }}"),
}
ROUTING = {
    "a link deleted": lambda n: ip(n, f"link del {link_of(n)}"),
    "a link shut": lambda n: ip(n, f"link set {link_of(n)} down"),
    "a link's mtu changed": lambda n: ip(n, f"link set {link_of(n)} mtu 1300"),
    "a link's address deleted": lambda n: ip(n, f"addr flush dev {link_of(n)} scope global"),
    "a link's address added": lambda n: ip(n, f"addr add 192.0.2.99/32 dev {link_of(n)}"),
    "the unreachable stand-in route deleted": lambda n: ip(n, "route del unreachable "
                                                              "169.254.76.0/24"),
    "rule 103 deleted": lambda n: ip(n, "rule del pref 103"),
    "IPv6 rule 103 deleted": lambda n: ip(n, "rule del pref 103", 6),
    "a rule of ours added": lambda n: ip(
        n, "rule add pref 102 fwmark 0x6b700055 lookup 255 protocol 107"),
    "a route of ours added": lambda n: ip(
        n, "route add unreachable 192.0.2.128/25 table 255 proto 107"),
}
POD_NODE = {
    "rule 101 deleted": lambda n: ip(n, "rule del pref 101"),
    "rule 102 deleted": lambda n: ip(n, "rule del pref 102"),
    "IPv6 rule 102 deleted": lambda n: ip(n, "rule del pref 102", 6),
    "rule 102 edited": lambda n: n.ip(
        "rule del pref 102", f"rule add pref 102 fwmark {MARK:#x} lookup 7120 protocol 107"),
    "the link's route deleted": lambda n: ip(n, "route flush table 200"),
    "the link's IPv6 route deleted": lambda n: ip(n, "route flush table 200", 6),
    "the link's route edited": lambda n: ip(
        n, "route replace default via 192.168.2.1 table 200 proto 107"),
    "a link deleted": lambda n: ip(n, f"link del {link_of(n)}"),
    "a marking element deleted": lambda n: delete_first_element(n, "replymark4"),
}


def cases():
    for node, changes in (("edge-a", NFT), ("edge-a", ROUTING), ("worker-b", POD_NODE)):
        for name, change in changes.items():
            yield pytest.param(node, change, id=f"{name} on {node}".replace(" ", "-"))


def mended(node, change):
    before = state(node)

    def one():
        change(node)
        return seconds_until(lambda: state(node) == before,
                             lambda: f"{node.name} to be mended; differing: "
                                     f"{difference(before, state(node))}")
    promptly(MENDED, one)


def difference(before, now):
    return {key: (before[key], now[key]) for key in before if before[key] != now[key]}


@pytest.mark.parametrize("name, change", cases())
def test_is_mended(serving, lab, name, change):
    mended(lab.node(name), change)
    for proto in ("tcp", "udp"):
        serving.wait_answer(proto, EDGE, 3000, "a1")
        serving.wait_answer(proto, EDGE, 3010, "b1")
        serving.wait_answer(proto, EDGE6, 3010, "b1")


def test_forwarding_switched_off_is_switched_on_again(serving, lab):
    edge = lab.node("edge-a")

    def one():
        edge.sysctl("net.ipv4.ip_forward", 0)
        return seconds_until(lambda: edge.sysctl("net.ipv4.ip_forward") == "1", "forwarding")
    promptly(MENDED, one)


def test_what_is_not_ours_stays(serving, lab):
    """A stranger's link, rule and route that look like ours but do not carry our marks."""
    node = lab.node("edge-a")
    node.ip("link add pl77 type vxlan id 77 remote 192.0.2.1 dstport 4999 dev enp1s0",
            "link set pl77 up", "rule add pref 101 fwmark 0x77 lookup main protocol 199",
            "rule add pref 102 from 192.0.2.77 lookup 200",
            "route add 192.0.2.77/32 dev enp1s0 table 200 proto static")
    node.nft("table inet portolan2 { set target4 { type ipv4_addr; elements = { 192.0.2.1 } ; }; }")
    try:
        mended(node, NFT["the table deleted"])
        serving.expose("later", ["b2"], "tcp", 3100)
        serving.sees_client("tcp", EDGE, 3100, "b2")
        assert node.has_link("pl77")
        assert "proto 199" in node.out("ip", "rule") and "192.0.2.77" in node.out("ip", "rule")
        assert "192.0.2.77" in node.out("ip", "route", "show", "table", "200")
        assert "192.0.2.1" in node.out("nft", "list", "table", "inet", "portolan2")
    finally:
        node.run("nft", "delete", "table", "inet", "portolan2")
        node.ip("link del pl77", "rule del pref 101 fwmark 0x77",
                "rule del pref 102 from 192.0.2.77", "route del 192.0.2.77/32 table 200")
