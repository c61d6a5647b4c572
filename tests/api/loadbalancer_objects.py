"""Services whose address a node holds, and the rights of deploy/loadbalancer.yaml."""

import contextlib

from manifests import DEPLOY

CLASS = "reweave.levk.dev/node-address"
ADDRESSES = "reweave.levk.dev/addresses"
OVERLAY = "reweave.levk.dev/weave"


def held(name="web", ip="192.0.2.1", ns="games", **spec):
    spec = {"type": "LoadBalancer", "loadBalancerClass": CLASS, "loadBalancerIP": ip,
            "allocateLoadBalancerNodePorts": False,
            "ports": [{"name": "http", "port": 80}]} | spec
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": ns},
            "spec": spec}


@contextlib.contextmanager
def installed_rights(api):
    api.kubectl("apply", "--server-side", "-f", DEPLOY / "loadbalancer.yaml")
    yield
    api.kubectl("delete", "-f", DEPLOY / "loadbalancer.yaml")
