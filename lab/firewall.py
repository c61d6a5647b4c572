"""The nftables tables that are not ours: home routers, what a CNI does, a host firewall.

Each function returns text for `nft -f`; loading it again replaces what was there.
"""


def replaced(family, name, body):
    """One transaction that leaves exactly `body` in the table."""
    table = f"table {family} {name}"
    return f"{table} {{\n}}\ndelete {table}\n{table} {{\n{body}}}\n"


def _port_set(ports):
    return "{ " + ", ".join(map(str, ports)) + " }"


def home_router(nat):
    """Masquerade to the outside, nothing unasked for comes in, some ports forwarded."""
    wan = nat["wan"]
    forwards = "".join(
        f'  iifname "{wan}" {proto} dport {_port_set(nat[proto])} dnat to {nat["to"]}\n'
        for proto in ("tcp", "udp") if nat.get(proto))
    return replaced("ip", "home", f"""\
 chain pre {{ type nat hook prerouting priority dstnat; policy accept;
{forwards} }}
 chain post {{ type nat hook postrouting priority srcnat; policy accept;
  oifname "{wan}" masquerade
 }}
 chain in {{ type filter hook input priority filter; policy accept;
  iifname "{wan}" ct state established,related accept
  iifname "{wan}" drop
 }}
""")


def _split(subnets):
    four = next((s for s in subnets if ":" not in s), None)
    six = next((s for s in subnets if ":" in s), None)
    return [(f, s) for f, s in (("ip", four), ("ip6", six)) if s]


def masquerade(style, node_subnets, cluster_subnets):
    """What the CNI's agent keeps in postrouting.

    flannel: pods leave the cluster as the node; what enters the node's own pods stays as it is.
    cilium: as well, whatever enters a pod from outside the pod network comes from the node.
    weave: whatever leaves or enters the pod network does so as the node, on any node it passes.
    """
    lines = []
    if style == "weave":
        for family, cluster in _split(cluster_subnets):
            lines += [f"{family} saddr {cluster} {family} daddr != {cluster} counter masquerade",
                      f"{family} saddr != {cluster} {family} daddr {cluster} counter masquerade"]
        node_subnets = []
    clusters = dict(_split(cluster_subnets))
    for family, subnet in _split(node_subnets) if style != "none" else []:
        cluster = clusters[family]
        source, target = f"{family} saddr", f"{family} daddr"
        lines.append(f"{source} {subnet} {target} != {cluster} counter masquerade")
        if style == "flannel":
            lines.append(f"{target} {subnet} counter return")
            lines.append(f"{source} != {cluster} {target} {cluster} counter masquerade")
        if style == "cilium":
            local = "{ %s, fe80::/10 }" % subnet if family == "ip6" else subnet
            lines.append(f'oifname {{ "cni0", "veth*" }} {source} != {local} counter masquerade')
    rules = "".join(f"  {line}\n" for line in lines)
    return replaced("inet", "cnimasq", " chain postrouting {\n  type nat hook postrouting priority "
                    "srcnat; policy accept;\n" + rules + " }\n")


HOST_FIREWALL = "talos"


def host_firewall(trusted, udp_ports):
    """Drops new connections to the node's own addresses, before destination NAT sees them."""
    names = ", ".join(f'"{name}"' for name in trusted)
    ports = f"udp dport {_port_set(udp_ports)} accept" if udp_ports else ""
    return replaced("inet", HOST_FIREWALL, f"""\
 chain ingress {{ type filter hook prerouting priority dstnat - 10; policy accept;
  iifname {{ {names} }} accept
  ct state {{ established, related }} accept
  {ports}
  fib daddr type local meta l4proto {{ tcp, udp }} counter drop
 }}
""")
