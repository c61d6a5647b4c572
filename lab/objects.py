"""The objects tests and the demo are made of, wherever they are kept."""

GROUP = "kuport.wlz.li/v1alpha1"


class Objects:
    """A cluster's objects. Those who derive from it keep them: `manifests.py` in a folder,
    `kube.py` in an API server. They have:

    put(api, kind, name, body, namespace, labels, annotations)
                                                   make an object, or replace what it says
    put_together(documents)                        several at the same moment: (kind, name, body,
                                                   namespace) of our own kinds
    put_again(kind, name, namespace, labels)       what was put before, perhaps with other labels
    delete(kind, name, namespace)
    younger()                                      what is made from now on has a later
                                                   creationTimestamp than all before
    """

    def node(self, name, internal_ip, labels=None, annotations=None):
        self.put("v1", "Node", name, {"status": {"addresses": [
            {"type": "InternalIP", "address": internal_ip},
            {"type": "Hostname", "address": name}]}}, labels=labels, annotations=annotations)

    def namespace(self, name, labels=None):
        self.put("v1", "Namespace", name, {}, labels=labels)

    def service(self, namespace, name, ports):
        """`ports` is a list of (name, protocol, port number)."""
        self.put("v1", "Service", name, {"spec": {"ports": [
            {"name": port_name, "protocol": protocol, "port": number}
            for port_name, protocol, number in ports]}}, namespace)

    def endpoints(self, namespace, service, pods, ports, family=4, slice_name=None):
        """One EndpointSlice of a service. A pod may be (pod, {"ready": False}) for conditions."""
        pairs = [pod if isinstance(pod, tuple) else (pod, {"ready": True}) for pod in pods]
        self.put("discovery.k8s.io/v1", "EndpointSlice", slice_name or f"{service}-ipv{family}", {
            "addressType": f"IPv{family}",
            "endpoints": [{"addresses": [pod.address(family)], "nodeName": pod.node,
                           "conditions": conditions,
                           "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod.name}}
                          for pod, conditions in pairs],
            "ports": [{"name": port_name, "protocol": protocol, "port": number}
                      for port_name, protocol, number in ports],
        }, namespace, labels={"kubernetes.io/service-name": service})

    def portmapclass(self, name, nodes, **spec):
        """`nodes` maps a node to its interfaces; further fields of the spec as keywords."""
        self.put(GROUP, "PortMapClass", name, {"spec": {
            "nodes": {node: {"interfaces": list(links)} for node, links in nodes.items()},
            "returnPath": {"mode": "Vxlan"}, **spec}})

    def portmap(self, namespace, name, class_name, protocol, port, service, port_name, **spec):
        self.put(GROUP, "PortMap", name,
                 portmap_body(class_name, protocol, port, service, port_name, **spec), namespace)


def portmap_body(class_name, protocol, port, service, port_name, **spec):
    return {"spec": {"className": class_name, "protocol": protocol, "port": port, **spec,
                     "serviceRef": {"name": service, "port": port_name}}}
