"""PortMaps and PortMapClasses, right and wrong, as an API server and a folder judge them alike."""

import copy

VERSION = "kuport.wlz.li/v1alpha1"


def portmap(name, **spec):
    return {"apiVersion": VERSION, "kind": "PortMap", "metadata": {"name": name},
            "spec": {"className": "public", "protocol": "TCP", "port": 3000,
                     "serviceRef": {"name": "game", "port": "main"}, **spec}}


def portmapclass(name, **spec):
    return {"apiVersion": VERSION, "kind": "PortMapClass", "metadata": {"name": name},
            "spec": {"nodes": {"edge-a": {"interfaces": ["eth0"]}},
                     "returnPath": {"mode": "Vxlan"}, **spec}}


def without(made, *path):
    """The object less one field."""
    made = copy.deepcopy(made)
    at = made
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return made


def nodes(*interfaces):
    return {"edge-a": {"interfaces": list(interfaces)}}


def vxlan(**fields):
    return {"mode": "Vxlan", "vxlan": fields}


def expressions(**fields):
    return {"matchExpressions": [fields]}


GOOD = {
    "as in the manual": portmap("x"),
    "udp": portmap("x", protocol="UDP"),
    "lowest port": portmap("x", port=1),
    "highest port": portmap("x", port=65535),
    "a range": portmap("x", port=3000, endPort=3010),
    "a range of one": portmap("x", endPort=3000),
    "no interfaces named": portmap("x", interfaces=[]),
    "interfaces named": portmap("x", interfaces=["eth0", "wt0", "eth0.100", "br-1@x"]),
    "longest interface name": portmap("x", interfaces=["e23456789012345"]),
    "an interface of three dots": portmap("x", interfaces=["...", ".a", "..b"]),
    "the unnamed port": portmap("x", serviceRef={"name": "game", "port": ""}),
    "nulls": portmap("x", endPort=None, interfaces=None),
    "a smallest class": portmapclass("x"),
    "no return path": portmapclass("x", returnPath={"mode": "None"}),
    "multi": portmapclass("x", servingMode="Multi"),
    "an interface twice": portmapclass("x", nodes=nodes("eth0", "eth0")),
    "two nodes": portmapclass("x", nodes={"a": {"interfaces": ["e"]}, "b": {"interfaces": ["f"]}}),
    "a port alone": portmapclass("x", ports={"min": 80, "max": 80}),
    "ports": portmapclass("x", ports={"min": 1024, "max": 2048, "reserved": [1080, 1080]}),
    "only a lowest port": portmapclass("x", ports={"min": 1024}),
    "only reserved ports": portmapclass("x", ports={"reserved": [22]}),
    "a selector of everything": portmapclass("x", namespaceSelector={}),
    "labels selected": portmapclass("x", namespaceSelector={"matchLabels": {"a": "b", "c": ""}}),
    "expressions selected": portmapclass(
        "x", namespaceSelector=expressions(key="a", operator="In", values=["b", "c"])),
    "an operator of no meaning": portmapclass(
        "x", namespaceSelector=expressions(key="a", operator="Near")),
    "all numbers given": portmapclass("x", returnPath=vxlan(
        vni=16777215, port=1, subnet="10.0.0.0/24", subnet6="fd00::/112")),
    "one number given": portmapclass("x", returnPath=vxlan(vni=1)),
    "a subnet that is none": portmapclass("x", returnPath=vxlan(subnet="nonsense")),
}

# The object, and what the API server says of it.
BAD = {
    "no spec": (without(portmap("x"), "spec"), "spec: Required value"),
    "no className": (without(portmap("x"), "spec", "className"), "spec.className: Required"),
    "no protocol": (without(portmap("x"), "spec", "protocol"), "spec.protocol: Required"),
    "no port": (without(portmap("x"), "spec", "port"), "spec.port: Required"),
    "no serviceRef": (without(portmap("x"), "spec", "serviceRef"), "spec.serviceRef: Required"),
    "no serviceRef.name": (without(portmap("x"), "spec", "serviceRef", "name"),
                           "spec.serviceRef.name: Required"),
    "no serviceRef.port": (without(portmap("x"), "spec", "serviceRef", "port"),
                           "spec.serviceRef.port: Required"),
    "className a number": (portmap("x", className=5), "spec.className in body must be of type str"),
    "protocol SCTP": (portmap("x", protocol="SCTP"), 'supported values: "TCP", "UDP"'),
    "protocol in small letters": (portmap("x", protocol="tcp"), 'supported values: "TCP", "UDP"'),
    "port 0": (portmap("x", port=0), "should be greater than or equal to 1"),
    "port 65536": (portmap("x", port=65536), "should be less than or equal to 65535"),
    "port below 0": (portmap("x", port=-1), "should be greater than or equal to 1"),
    "port beyond 32 bits": (portmap("x", port=2 ** 40 + 80), "spec.port"),
    "port a string": (portmap("x", port="3000"), "spec.port in body must be of type integer"),
    "port a fraction": (portmap("x", port=3000.5), "spec.port"),
    "endPort 0": (portmap("x", endPort=0), "should be greater than or equal to 1"),
    "endPort 65536": (portmap("x", endPort=65536), "should be less than or equal to 65535"),
    "interfaces a string": (portmap("x", interfaces="eth0"), "spec.interfaces in body must be of"),
    "interface without name": (portmap("x", interfaces=[""]), "should match"),
    "interface of 16 bytes": (portmap("x", interfaces=["e234567890123456"]), "15"),
    "interface with a slash": (portmap("x", interfaces=["a/b"]), "should match"),
    "interface with a colon": (portmap("x", interfaces=["a:1"]), "should match"),
    "interface with a space": (portmap("x", interfaces=["a b"]), "should match"),
    "interface with a line end": (portmap("x", interfaces=["ab\n"]), "should match"),
    "interface of one dot": (portmap("x", interfaces=["."]), "should match"),
    "interface of two dots": (portmap("x", interfaces=["eth0", ".."]), "should match"),
    "a field of no meaning": (portmap("x", interface="eth0"), 'unknown field "spec.interface"'),
    "serviceRef a string": (portmap("x", serviceRef="game"), "spec.serviceRef in body must be of"),
    "a class without spec": (without(portmapclass("x"), "spec"), "spec: Required"),
    "no nodes": (without(portmapclass("x"), "spec", "nodes"), "spec.nodes: Required"),
    "nodes empty": (portmapclass("x", nodes={}), "should have at least 1 propert"),
    "nodes a list": (portmapclass("x", nodes=["edge-a"]), "spec.nodes in body must be of type obj"),
    "a node without interfaces": (portmapclass("x", nodes={"edge-a": {}}),
                                  "spec.nodes.edge-a.interfaces: Required"),
    "a node with none": (portmapclass("x", nodes=nodes()), "should have at least 1 item"),
    "a node's interface named wrong": (portmapclass("x", nodes=nodes("a/b")), "should match"),
    "servingMode Both": (portmapclass("x", servingMode="Both"),
                         'supported values: "Single", "Multi"'),
    "ports.min 0": (portmapclass("x", ports={"min": 0}), "should be greater than or equal to 1"),
    "ports.max 65536": (portmapclass("x", ports={"max": 65536}), "less than or equal to 65535"),
    "ports.min above ports.max": (portmapclass("x", ports={"min": 2000, "max": 1000}),
                                  "spec.ports.min: Invalid value"),
    "ports.min above the default": (portmapclass("x", ports={"min": 65535, "max": 65534}),
                                    "min must not be above max"),
    "a field of ports of no meaning": (portmapclass("x", ports={"minimum": 5}),
                                       'unknown field "spec.ports.minimum"'),
    "reserved 0": (portmapclass("x", ports={"reserved": [80, 0]}), "spec.ports.reserved[1]"),
    "reserved 70000": (portmapclass("x", ports={"reserved": [70000]}), "spec.ports.reserved[0]"),
    "reserved a number": (portmapclass("x", ports={"reserved": 80}), "must be of type array"),
    "a label a number": (portmapclass("x", namespaceSelector={"matchLabels": {"a": 1}}),
                         "must be of type string"),
    "an expression without key": (
        portmapclass("x", namespaceSelector=expressions(operator="Exists")), "key: Required"),
    "an expression without operator": (
        portmapclass("x", namespaceSelector=expressions(key="a")), "operator: Required"),
    "no returnPath": (without(portmapclass("x"), "spec", "returnPath"),
                      "spec.returnPath: Required"),
    "no mode": (portmapclass("x", returnPath={}), "spec.returnPath.mode: Required"),
    "mode Geneve": (portmapclass("x", returnPath={"mode": "Geneve"}),
                    'supported values: "Vxlan", "None"'),
    "vni 0": (portmapclass("x", returnPath=vxlan(vni=0)), "greater than or equal to 1"),
    "vni beyond 24 bits": (portmapclass("x", returnPath=vxlan(vni=1 << 24)),
                           "less than or equal to 16777215"),
    "vxlan port 0": (portmapclass("x", returnPath=vxlan(port=0)), "greater than or equal to 1"),
    "vxlan port 65536": (portmapclass("x", returnPath=vxlan(port=65536)),
                         "less than or equal to 65535"),
    "subnet a number": (portmapclass("x", returnPath=vxlan(subnet=10)), "must be of type string"),
    "subnet6 a list": (portmapclass("x", returnPath=vxlan(subnet6=[])), "must be of type string"),
}

# A range that runs backwards is refused by the API server. An agent that meets one all the same
# says so in the mapping's status, so a folder lets it in.
BACKWARDS = portmap("x", port=3000, endPort=2999)

# What an accepted mapping may become: fields of the spec, None takes one away.
MAY_CHANGE = {
    "interfaces": {"interfaces": ["eth0"]},
    "service": {"serviceRef": {"name": "other", "port": "main"}},
    "service port": {"serviceRef": {"name": "game", "port": "other"}},
}

# And what it may not: from which spec, to which, and the field that is named.
MAY_NOT_CHANGE = {
    "className": ({}, {"className": "private"}, "className"),
    "protocol": ({}, {"protocol": "UDP"}, "protocol"),
    "port": ({}, {"port": 3001}, "port"),
    "endPort": ({"endPort": 3010}, {"endPort": 3011}, "endPort"),
    "endPort added": ({}, {"endPort": 3010}, "endPort"),
    "endPort added that says nothing new": ({}, {"endPort": 3000}, "endPort"),
    "endPort taken away": ({"endPort": 3010}, {"endPort": None}, "endPort"),
}
