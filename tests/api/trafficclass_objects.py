"""TrafficClasses, right and wrong."""

from objects import without

VERSION = "net.renner.uno/v1alpha1"

ADDRESSES = {"ipv4": "net.renner.uno/pod0-v4", "ipv6": "net.renner.uno/pod0-v6"}
RULE4 = {"family": "IPv4", "priority": 1001, "from": ["PodCIDRs"]}
RULE6 = {"family": "IPv6", "priority": 1000, "from": ["PodCIDRs"]}
MESH = {"link": "pod0", "addressAnnotations": ADDRESSES}
GATEWAY = {"link": "ingress0", "addressAnnotations": ADDRESSES}


def trafficclass(name="x", **spec):
    return {"apiVersion": VERSION, "kind": "TrafficClass", "metadata": {"name": name},
            "spec": {"table": 47, "rules": [RULE6, RULE4], **spec}}


def routes(**fields):
    return trafficclass(routes=fields)


def mesh(**fields):
    return routes(mesh=MESH | fields)


def gateway(**fields):
    return routes(gateway=GATEWAY | fields)


def rule(**fields):
    """RULE4 with these; None takes one away."""
    return trafficclass(rules=[{k: v for k, v in (RULE4 | fields).items() if v is not None}])


GOOD = {
    "a smallest class": trafficclass(),
    "every route": routes(attached={"links": ["mgmt0", "eth0.40"]}, mesh=MESH, gateway=GATEWAY,
                          localPods={"device": "cilium_host"}, reject=["ServiceCIDRs"],
                          fallThrough=["PodCIDRs", "AttachedNetworks", "10.0.0.0/8"]),
    "no routes fall through": routes(gateway=GATEWAY, fallThrough=[]),
    "main, with rules alone": trafficclass(table=254),
    "the lowest table": trafficclass(table=1),
    "the highest table": trafficclass(table=4294967295),
    "a table beside the kernel's": trafficclass(table=252),
    "tables beside those of held addresses": trafficclass(table=131071),
    "the lowest priority": rule(priority=107),
    "the highest priority": rule(priority=32765),
    "destinations alone": rule(**{"from": None, "to": ["10.0.0.0/8"]}),
    "both": rule(to=["ServiceCIDRs"]),
    "every name": rule(to=["PodCIDRs", "NodePodCIDR", "ServiceCIDRs", "AttachedNetworks"]),
    "a prefix with host bits": rule(**{"from": ["10.244.1.7/16"]}),
    "everything, said aloud": rule(to=["0.0.0.0/0"]),
    "an IPv6 prefix": trafficclass(rules=[RULE6 | {"to": ["fd00::/8", "2001:db8::1/128"]}]),
    "every form of an IPv6 prefix": trafficclass(rules=[RULE6 | {"to": [
        "::/0", "::1/128", "1::/16", "1:2:3:4:5:6:7:8/127", "1::8/64", "1:2::7:8/99",
        "FD00::a:b:c:d:e:f/8", "1:2:3:4:5:6:7::/112"]}]),
    "to be kept": trafficclass(cleanupPolicy="Keep"),
    "one priority in both families": trafficclass(rules=[RULE4, RULE6 | {"priority": 1001}]),
    "IPv4 alone": trafficclass(families=["IPv4"], rules=[RULE4]),
    "nodes selected": trafficclass(nodeSelector={
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]}),
    "a mesh in one family": mesh(addressAnnotations={"ipv4": "pod0-v4"}),
    "all of a mesh": mesh(asn=4294967294, holdTimeSeconds=240, bfd=True, gracefulRestart=False),
    "a gateway of BIRD's": gateway(manager="BIRD"),
}

# The object, and what the API server says of it.
BAD = {
    "no spec": (without(trafficclass(), "spec"), "spec: Required value"),
    "no table": (without(trafficclass(), "spec", "table"), "spec.table: Required"),
    "no rules": (without(trafficclass(), "spec", "rules"), "spec.rules: Required"),
    "table 0": (trafficclass(table=0), "should be greater than or equal to 1"),
    "table of 33 bits": (trafficclass(table=1 << 32), "less than or equal to 4294967295"),
    "table 253": (trafficclass(table=253), "tables 253 and 255 belong to the kernel"),
    "table 255": (trafficclass(table=255), "tables 253 and 255 belong to the kernel"),
    "the first table of held addresses": (trafficclass(table=131072), "of held addresses"),
    "the last table of held addresses": (trafficclass(table=131322), "of held addresses"),
    "routes in main": (trafficclass(table=254, routes={}), "may not write routes"),
    "rules empty": (trafficclass(rules=[]), "should have at least 1 item"),
    "17 rules": (trafficclass(rules=[RULE4 | {"priority": 1000 + i} for i in range(17)]),
                 "must have at most 16 items"),
    "a rule twice": (trafficclass(rules=[RULE4, RULE4]), "spec.rules[1]: Duplicate value"),
    "a rule of everything": (rule(**{"from": None}), "would catch everything"),
    "a rule of a family that is none of its own": (
        trafficclass(families=["IPv4"]), "a rule's family must be one of families"),
    "a rule without family": (rule(family=None), "family: Required"),
    "a rule without priority": (rule(priority=None), "priority: Required"),
    "family IPv5": (rule(family="IPv5"), 'supported values: "IPv4", "IPv6"'),
    "priority 106": (rule(priority=106), "greater than or equal to 107"),
    "priority 32766": (rule(priority=32766), "less than or equal to 32765"),
    "from empty": (rule(**{"from": []}), "should have at least 1 item"),
    "from a name of no meaning": (rule(**{"from": ["Pods"]}), "or a prefix such as 10.0.0.0/8"),
    "from an address": (rule(**{"from": ["10.0.0.1"]}), "or a prefix such as 10.0.0.0/8"),
    "from a prefix too long": (rule(**{"from": ["10.0.0.0/33"]}), "or a prefix such as"),
    "from a prefix with a zero too many": (rule(**{"from": ["010.0.0.0/8"]}), "or a prefix such as"),
    "from a prefix with a line end": (rule(**{"from": ["10.0.0.0/8\n"]}), "or a prefix such as"),
    "an IPv6 prefix too long": (rule(**{"from": ["fd00::/129"]}), "or a prefix such as"),
    "an IPv6 prefix with three colons": (rule(**{"from": ["fd00:::1/64"]}), "or a prefix such as"),
    "an IPv6 prefix with two gaps": (rule(**{"from": ["1::2::3/64"]}), "or a prefix such as"),
    "an IPv6 prefix of nine": (rule(**{"from": ["1:2:3:4:5:6:7:8:9/64"]}), "or a prefix such as"),
    "cleaned up otherwise": (trafficclass(cleanupPolicy="Leave"),
                             'supported values: "Delete", "Keep"'),
    "from twice the same": (rule(**{"from": ["PodCIDRs", "PodCIDRs"]}), "Duplicate value"),
    "from nine": (rule(**{"from": [f"10.{i}.0.0/16" for i in range(9)]}), "at most 8 items"),
    "from the other family": (rule(**{"from": ["fd00::/8"]}),
                              "from holds a prefix that is not of the rule's family"),
    "to the other family": (rule(to=["PodCIDRs", "fd00::/8"]),
                            "to holds a prefix that is not of the rule's family"),
    "to configuration": (rule(to=["10.0.0.0/8; route 0.0.0.0/0 blackhole"]), "or a prefix such as"),
    "families empty": (trafficclass(families=[]), "should have at least 1 item"),
    "a family twice": (trafficclass(families=["IPv4", "IPv4"]), "Duplicate value"),
    "a field of no meaning": (trafficclass(tables=[1]), 'unknown field "spec.tables"'),
    "attached to nothing": (routes(attached={"links": []}), "should have at least 1 item"),
    "attached without links": (routes(attached={}), "links: Required"),
    "a link of 16 bytes": (gateway(link="e234567890123456"), "15"),
    "a link with a quotation mark": (gateway(link='a"b'), "should match"),
    "a link that is a pattern": (gateway(link="eth*"), "should match"),
    "a link with a question mark": (mesh(link="eth?"), "should match"),
    "a link with a backslash": (mesh(link="a\\b"), "should match"),
    "a link that begins with a minus": (mesh(link="-eth0"), "should match"),
    "a link with a space": (mesh(link="a b"), "should match"),
    "a link with a percent sign": (mesh(link="a%b"), "should match"),
    "a link with a line end": (mesh(link="ab\n"), "should match"),
    "a device with a quotation mark": (routes(localPods={"device": '"'}), "should match"),
    "localPods without device": (routes(localPods={}), "device: Required"),
    "a mesh without link": (routes(mesh={"addressAnnotations": ADDRESSES}), "link: Required"),
    "a mesh without addresses": (routes(mesh={"link": "pod0"}), "addressAnnotations: Required"),
    "a mesh without an annotation": (mesh(addressAnnotations={}), "at least 1 propert"),
    "an annotation with a space": (mesh(addressAnnotations={"ipv4": "a b"}), "should match"),
    "asn 0": (mesh(asn=0), "greater than or equal to 1"),
    "asn of all ones": (mesh(asn=4294967295), "less than or equal to 4294967294"),
    "holdTimeSeconds 2": (mesh(holdTimeSeconds=2), "greater than or equal to 3"),
    "holdTimeSeconds 241": (mesh(holdTimeSeconds=241), "less than or equal to 240"),
    "bfd a string": (mesh(bfd="yes"), "must be of type boolean"),
    "a gateway without link": (routes(gateway={"addressAnnotations": ADDRESSES}), "link: Required"),
    "a gateway without addresses": (routes(gateway={"link": "a"}), "addressAnnotations: Required"),
    "a gateway of somebody's": (gateway(manager="Kubelet"), 'supported values: "Agent", "BIRD"'),
    "fallThrough a name of no meaning": (routes(fallThrough=["Services"]), "or a prefix such as"),
    "reject a name of no meaning": (routes(reject=["10/8"]), "or a prefix such as"),
}
