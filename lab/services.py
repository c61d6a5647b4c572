"""Services and what belongs to them, as concise Python; kept wherever Objects are kept."""

import copy
from dataclasses import dataclass, field

NAMESPACE = "apps"
BOTH = (("tcp", "TCP", 80, 8080), ("udp", "UDP", 80, 8080))
SERVICE_RANGE = {4: "10.96.0.0/16", 6: "fd00:10:96::/112"}


def cluster_ip(number, family=4):
    return f"10.96.1.{number}" if family == 4 else f"fd00:10:96::1{number:02x}"


def external_ip(number, family=4):
    """An address the network leads to node-a and that nobody has."""
    return f"198.18.0.{number}" if family == 4 else f"2001:db8:18::{number:x}"


@dataclass
class Service:
    """One Service. `ports` are (name, protocol, port, target[, node port]).

    Change a field and put() it again; endpoints() replaces a slice.
    """
    objects: object
    name: str
    number: int                                     # its addresses follow from it
    ports: tuple = BOTH
    families: tuple = (4, 6)
    spec: dict = field(default_factory=dict)        # further fields, as the API has them
    ingress: list = field(default_factory=list)     # status.loadBalancer.ingress
    labels: dict = None
    slices: set = field(default_factory=set)

    def ip(self, family=4):
        return cluster_ip(self.number, family)

    def external(self, family=4):
        """What `lb=True` and `external=True` make of it."""
        return external_ip(self.number, family)

    def put(self, **changes):
        """Writes the Service; `changes` replace fields of the spec, None takes one away."""
        self.spec = {key: value for key, value in {**self.spec, **changes}.items()
                     if value is not None}
        ips = [self.ip(family) for family in self.families]
        spec = {"clusterIP": ips[0], "clusterIPs": ips, "ipFamilyPolicy":
                "PreferDualStack" if len(ips) > 1 else "SingleStack",
                "ipFamilies": [f"IPv{family}" for family in self.families],
                "ports": [self._port(*port) for port in self.ports], **self.spec}
        spec = {key: value for key, value in spec.items() if value != ""}
        body = {"spec": spec}
        if self.ingress:
            body["status"] = {"loadBalancer": {"ingress": self.ingress}}
        self.objects.put("v1", "Service", self.name, body, NAMESPACE, self.labels)
        return self

    def _port(self, name, protocol, port, target, node_port=None):
        return {"name": name, "protocol": protocol, "port": port, "targetPort": target,
                **({"nodePort": node_port} if node_port else {})}

    def endpoints(self, *pods, families=None, ports=None, suffix="", **more):
        """One slice per family. A pod may be (pod, {"conditions": ..., "hints": ...}).

        `ports` are (name, protocol, target); those of the Service when not said.
        """
        ports = ports if ports is not None else [(n, p, t) for n, p, _, t, *_ in self.ports]
        for family in families or self.families:
            name = f"{self.name}{suffix}-v{family}"
            self.slices.add(name)
            self.objects.put("discovery.k8s.io/v1", "EndpointSlice", name, {
                "addressType": f"IPv{family}",
                "endpoints": [_endpoint(pod, family) for pod in pods],
                "ports": [{"name": n, "protocol": p, "port": t} for n, p, t in ports]},
                NAMESPACE, {"kubernetes.io/service-name": self.name, **more.get("labels", {})})
        return self

    def delete(self):
        """The Service alone; its slices stay, as they do for a moment in a cluster."""
        self.objects.delete("Service", self.name, NAMESPACE)

    def delete_endpoints(self):
        for name in sorted(self.slices):
            self.objects.delete("EndpointSlice", name, NAMESPACE)
        self.slices.clear()


def _endpoint(pod, family):
    pod, more = pod if isinstance(pod, tuple) else (pod, {})
    return {"addresses": [pod.address(family)], "nodeName": pod.node,
            "conditions": {"ready": True}, **copy.deepcopy(more),
            "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": pod.name}}
