"""Makes the namespaces and wires of a topology; knows nothing of nodes and pods."""

import ipaddress

from . import firewall, netns

# A new namespace copies its IPv4 settings from the first one. Say what Debian has, and do without
# duplicate address detection, which only takes time here, and without the rate limit of ICMP
# errors, which would turn a refusal into a time-out.
QUIET = {"net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.default.rp_filter": 0,
         "net.ipv6.conf.all.accept_dad": 0, "net.ipv6.conf.default.accept_dad": 0,
         "net.ipv4.icmp_ratelimit": 0, "net.ipv6.icmp.ratelimit": 0}
FORWARD = {"net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1}


def namespaces(names):
    netns.run(["ip", "-batch", "-"], stdin="".join(f"netns add {name}\n" for name in names))
    for name in names:
        netns.set_sysctls(name, QUIET)
        netns.ip_batch(name, ["link set lo up"])


def delete_namespaces(names):
    """Ignores those that are gone."""
    names = [name for name in names if netns.exists(name)]
    if names:
        netns.run(["ip", "-force", "-batch", "-"],
                  stdin="".join(f"netns del {name}\n" for name in names))


def wires(topology, ns):
    for (host_a, link_a), (host_b, link_b) in topology.links:
        netns.ip_batch(ns(host_a), [f"link add {link_a} type veth peer name {link_b} "
                                    f"netns {ns(host_b)}", f"link set {link_a} up"])
        netns.ip_batch(ns(host_b), [f"link set {link_b} up"])


def host(spec, ns):
    """Addresses, routes and sysctls of one host, and its NAT when it is a home router."""
    if spec.router:
        netns.set_sysctls(ns, FORWARD)
    netns.set_sysctls(ns, spec.sysctls)
    lines = [f"addr add {address} dev {link}" + (" nodad" if ":" in address else "")
             for link, addresses in spec.addresses.items() for address in addresses]
    netns.ip_batch(ns, lines + [f"route add {route}" for route in spec.routes])
    if spec.cni == "bridge":    # its plugin takes the one that is there; a port would else change
        netns.ip_batch(ns, ["link add cni0 type bridge forward_delay 0"])   # after 15 s once more
    if spec.nat:
        netns.run_in(ns, ["nft", "-f", "-"], stdin=firewall.home_router(spec.nat))


def overlay(spec, ns):
    """The bridges, their addresses, and the switch that makes one segment of them."""
    netns.ip_batch(ns(spec.switch), ["link add switch type bridge forward_delay 0",
                                     "link set switch up"])
    netns.set_sysctls(ns(spec.switch), {"net.bridge.bridge-nf-call-iptables": 0})
    for name, address in spec.members.items():
        # Given, so that it does not follow those of the pods' ports.
        mac = ":".join(f"{byte:02x}" for byte in (0x0e, 0x58, *ipaddress.ip_address(address).packed))
        netns.ip_batch(ns(name), [
            f"link add {spec.bridge} address {mac} type bridge forward_delay 0",
            f"link add {spec.port} type veth peer name {name} netns {ns(spec.switch)}",
            f"link set {spec.port} mtu {spec.mtu} master {spec.bridge} up",
            f"link set {spec.bridge} mtu {spec.mtu} up",
            f"addr add {address}/{spec.prefix} dev {spec.bridge}"])
        netns.ip_batch(ns(spec.switch), [f"link set {name} master switch up"])


def policy_rules(spec, ns):
    """The routing policy a mesh agent installs, in both families."""
    for family in (4, 6):
        netns.ip_batch(ns, [f"rule add {rule}" for rule in spec.rules], family)
