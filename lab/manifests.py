"""Writes API objects as YAML files, one object a file, each change atomic."""

import datetime
import os
import uuid

import yaml

GROUP = "kuport.wlz.li/v1alpha1"
EPOCH = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)


def write_atomically(path, text):
    """A reader sees the old file or the new one, never a part."""
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.tmp")
    with open(temporary, "w") as file:
        file.write(text)
    os.rename(temporary, path)


class Manifests:
    """A manifest folder. Objects are created one second apart, in the order of their writing."""

    def __init__(self, directory, epoch=EPOCH):
        self.directory = directory
        self.epoch = epoch
        os.makedirs(directory, exist_ok=True)
        self._known = {}
        self._count = 0

    def path(self, kind, name, namespace=None):
        return os.path.join(self.directory, ".".join(filter(None, (kind.lower(), namespace, name)))
                            + ".yaml")

    def put(self, api, kind, name, body, namespace=None, labels=None, created=None):
        """Writes an object; the same name again is an update with a higher generation."""
        key = (kind, namespace, name)
        if key not in self._known:
            self._count += 1
            moment = self.epoch + datetime.timedelta(seconds=self._count)
            self._known[key] = {"creationTimestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
                                "uid": str(uuid.UUID(int=self._count)), "generation": 0}
        meta = self._known[key]
        meta["generation"] += 1
        if created:
            meta["creationTimestamp"] = created
        metadata = {"name": name, **({"namespace": namespace} if namespace else {}),
                    **({"labels": labels} if labels else {}), **meta}
        text = yaml.safe_dump({"apiVersion": api, "kind": kind, "metadata": metadata, **body},
                              sort_keys=False)
        write_atomically(self.path(kind, name, namespace), text)

    def delete(self, kind, name, namespace=None):
        os.unlink(self.path(kind, name, namespace))
        self._known.pop((kind, namespace, name), None)

    def node(self, name, internal_ip, labels=None):
        self.put("v1", "Node", name, {"status": {"addresses": [
            {"type": "InternalIP", "address": internal_ip},
            {"type": "Hostname", "address": name}]}}, labels=labels)

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

    def portmapclass(self, name, nodes, created=None, **spec):
        """`nodes` maps a node to its interfaces; further fields of the spec as keywords."""
        self.put(GROUP, "PortMapClass", name, {"spec": {
            "nodes": {node: {"interfaces": list(links)} for node, links in nodes.items()},
            "returnPath": {"mode": "Vxlan"}, **spec}}, created=created)

    def portmap(self, namespace, name, class_name, protocol, port, service, port_name,
                created=None, **spec):
        self.put(GROUP, "PortMap", name, {"spec": {
            "className": class_name, "protocol": protocol, "port": port, **spec,
            "serviceRef": {"name": service, "port": port_name}}}, namespace, created=created)
