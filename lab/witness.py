"""Counts packets on a host from outside of what is under test."""

import contextlib
import json

from .firewall import replaced


def refusals(port):
    """What tells a client that nobody serves the port; an ICMP error quotes the packet it is of, and
    late ones of other packets do not count."""
    return {"reset": f"tcp sport {port} tcp flags & rst == rst",
            "unreachable4": f"icmp type destination-unreachable @th,240,16 {port}",
            "unreachable6": f"icmpv6 type destination-unreachable @th,400,16 {port}"}


class Witness:
    """Named counters in a table of its own; `matches` are {name: nft match}."""

    def __init__(self, host, hook, priority, matches, name="witness"):
        self.host = host
        self.name = name
        # Many a good name is a word of nft's.
        rules = "".join(f'  {match} counter name "n_{key}"\n' for key, match in matches.items())
        counters = "".join(f" counter n_{key} {{\n }}\n" for key in matches)
        host.nft(replaced("inet", name, f"{counters} chain seen {{\n  type filter hook {hook} "
                          f"priority {priority}; policy accept;\n{rules} }}\n"))

    def counts(self):
        listed = json.loads(self.host.out("nft", "-j", "list", "counters", "table", "inet",
                                          self.name))
        return {entry["counter"]["name"][2:]: entry["counter"]["packets"]
                for entry in listed["nftables"] if "counter" in entry}

    def __getitem__(self, key):
        return self.counts()[key]

    def close(self):
        self.host.run("nft", "delete", "table", "inet", self.name, check=False)


@contextlib.contextmanager
def witness(host, hook, priority, name="witness", **matches):
    """`with witness(node, "postrouting", 300, left="ip daddr 10.96.0.0/16") as seen: seen["left"]`"""
    watching = Witness(host, hook, priority, matches, name)
    try:
        yield watching
    finally:
        watching.close()
