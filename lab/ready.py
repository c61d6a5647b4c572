"""Waits until a mapping can be dialled.

Programmed=True is the word of the node that serves. A pod on another node needs that node's agent
as well, which acts on the same objects a moment earlier or later: its kernel tells when it has.
"""

import ipaddress

from . import netns


def _own_end(claim, node):
    """The address of the node's end of a link: the lower one is the alphabetically first node's."""
    lower = ipaddress.ip_interface(claim["subnet"]).ip
    return str(lower + sorted(claim["peers"]).index(node))


def _has_element(node, key):
    """Looks in the map of single ports and in that of large ranges."""
    return any(node.run("nft", "get", "element", "inet", "portolan", name, "{", key, "}",
                        check=False).returncode == 0 for name in ("target4", "targetrange4"))


def wait_ready(lab, status, namespace, name, spec, everywhere=(), timeout=10):
    """`spec` is the mapping's; `everywhere` are the accepting nodes of a class that is Multi."""
    status.wait_portmap(namespace, name, timeout=timeout)
    now = status.portmap(namespace, name)
    pod_node = now.get("endpoint", {}).get("node")
    programming = set(everywhere) or {row["node"] for row in now.get("published", [])}
    for claim in status.portmapclass(spec["className"]).get("links", []):
        others = set(claim["peers"]) - {pod_node}
        if "unusedSince" in claim or len(others) != 1 or not others <= programming:
            continue
        key = f"{_own_end(claim, pod_node)} . {spec['protocol'].lower()} . {spec['port']}"
        netns.wait_until(lambda: _has_element(lab.node(pod_node), key), timeout,
                         f"{pod_node} to hold {key} for {namespace}/{name}")
