"""A cluster of S services with E endpoints each, the same bytes every time, as the folder source and
an API server take it.

    state = State(10000, 10)
    state.objects()        # -> {key: object}; key is (plural, namespace, name)
    FolderWriter(path).show(state.objects())
    ApiWriter(kubeconfig).show(state.objects())

Both writers only touch what differs from what they showed before. Slices have at most 100 endpoints,
as the EndpointSlice controller makes them. Service number i has the address FIRST_SERVICE + i, its
endpoint number k runs on node (i + k) % NODES and has the address FIRST_POD + k * 65536 + i, beyond
POD_RANGE from the 127th endpoint on; tests/bench/raw_services.c knows the same rule.
"""

import base64
import contextlib
import http.client
import ipaddress
import json
import os
import queue
import ssl
import threading
from pathlib import Path
from urllib.parse import urlsplit

import yaml

NODE = "bench"
NODES = 100
NODE_ADDRESS = ipaddress.IPv4Address("192.0.2.10")
FIRST_SERVICE = ipaddress.IPv4Address("10.96.0.10")
SERVICE_RANGE = "10.96.0.0/16"
FIRST_POD = ipaddress.IPv4Address("10.128.0.0")
POD_RANGE = "10.128.0.0/9"
PER_SLOT = 65536
MOVED_SLOT = 127
SERVICE_PORT, POD_PORT = 80, 8080
PER_NAMESPACE = 100
SLICE_MAX = 100
SERVICES_MAX, ENDPOINTS_MAX = 65000, 50000


def node(i):
    return NODE if i % NODES == 0 else f"node-{i % NODES:03d}"


def namespace(i):
    return f"team-{i // PER_NAMESPACE:03d}"


def name(i):
    return f"service-{i:05d}"


def address(i):
    return str(FIRST_SERVICE + i)


def pod(i, k):
    return str(FIRST_POD + (k if k < MOVED_SLOT else k + 1) * PER_SLOT + i)


def moved_pod(i):
    return str(FIRST_POD + MOVED_SLOT * PER_SLOT + i)


def key(kind, i, part=0):
    return (kind, namespace(i), name(i) if kind == "services" else f"{name(i)}-{part:05d}")


def meta(i, number, object_name):
    return {"name": object_name, "namespace": namespace(i),
            "uid": f"{number:08d}-0000-4000-8000-{i:012d}",
            "creationTimestamp": "2026-01-01T00:00:00Z"}


def service(i):
    return {"apiVersion": "v1", "kind": "Service",
            "metadata": meta(i, 1, name(i)) | {"labels": {"app": name(i)}},
            "spec": {"type": "ClusterIP", "clusterIP": address(i), "clusterIPs": [address(i)],
                     "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                     "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
                     "selector": {"app": name(i)},
                     "ports": [{"name": "http", "protocol": "TCP", "port": SERVICE_PORT,
                                "targetPort": POD_PORT}]}}


def endpoint(i, k, moved):
    return {"addresses": [moved_pod(i) if moved else pod(i, k)],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": node(i + k),
            "targetRef": {"kind": "Pod", "name": f"{name(i)}-{k:03d}{'-b' if moved else ''}",
                          "namespace": namespace(i),
                          "uid": f"00000003-{k:04d}-4000-8000-{i:012d}"}}


def slices(i, endpoints, moved=False):
    """The slices of service i; `moved`: its first endpoint is another pod."""
    found = {}
    for first in range(0, endpoints, SLICE_MAX):
        part = first // SLICE_MAX
        found[key("endpointslices", i, part)] = {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": meta(i, 2, f"{name(i)}-{part:05d}") | {"labels": {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": name(i)}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "protocol": "TCP", "port": POD_PORT}],
            "endpoints": [endpoint(i, k, moved and not k)
                          for k in range(first, min(first + SLICE_MAX, endpoints))]}
    return found


class State:
    def __init__(self, services, endpoints, spare=0):
        """`spare`: more services that have slices but no Service yet."""
        if not 0 <= services + spare <= SERVICES_MAX or not 0 <= endpoints <= ENDPOINTS_MAX:
            raise ValueError(f"{services}:{endpoints}: at most {SERVICES_MAX} services with "
                             f"{ENDPOINTS_MAX} endpoints each")
        self.services, self.endpoints, self.spare = services, endpoints, spare

    def objects(self):
        found = {("nodes", "", node(i)): {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": node(i)},
            "status": {"addresses": [{"type": "InternalIP", "address": str(NODE_ADDRESS + i)}]}}
            for i in range(NODES)}
        for i in range(0, self.services + self.spare, PER_NAMESPACE):
            found["namespaces", "", namespace(i)] = {
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(i)}}
        for i in range(self.services + self.spare):
            if i < self.services:
                found[key("services", i)] = service(i)
            found |= slices(i, self.endpoints)
        return found


def parse(text):
    services, colon, endpoints = text.partition(":")
    if not (colon and services.isdigit() and endpoints.isdigit()):
        raise ValueError(f"{text!r} is no state: give services and endpoints each, as in 1000:10")
    return State(int(services), int(endpoints))


def changes(before, after):
    """What is new or different, in the order it can be made; what is gone, the reverse."""
    order = ["nodes", "namespaces", "services", "endpointslices"]
    put = [(k, o) for k, o in after.items() if before.get(k) != o]
    gone = [k for k in before if k not in after]
    return (sorted(put, key=lambda item: order.index(item[0][0])),
            sorted(gone, key=lambda k: -order.index(k[0])))


# ---- the folder ------------------------------------------------------------------------------


class FolderWriter:
    """One file per object, or with `packed` one per namespace and kind."""

    def __init__(self, folder, packed=False):
        self.folder, self.packed, self.shown = Path(folder), packed, {}
        self.folder.mkdir(parents=True, exist_ok=True)

    def file(self, object_key):
        plural, ns, object_name = object_key
        stem = f"{ns}-{plural}" if self.packed and ns else \
            plural if not ns else f"{ns}-{plural}-{object_name}"
        return self.folder / f"{stem}.yaml"  # JSON, of which YAML is a superset

    def show(self, objects):
        put, gone = changes(self.shown, objects)
        touched = {self.file(k) for k, _ in put} | {self.file(k) for k in gone}
        texts = {file: [] for file in touched}
        for k, o in objects.items():
            if (file := self.file(k)) in touched:
                texts[file].append(json.dumps(o))
        for file, parts in texts.items():
            if not parts:
                file.unlink()
                continue
            new = file.with_suffix(".new")  # no manifest until it is whole
            new.write_text("\n---\n".join(parts) + "\n")
            os.replace(new, file)
        self.shown = objects
        return len(put), len(gone)


# ---- the API server ----------------------------------------------------------------------------

PATHS = {"nodes": "/api/v1/nodes", "namespaces": "/api/v1/namespaces",
         "services": "/api/v1/namespaces/{}/services",
         "endpointslices": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"}


class ApiWriter:
    """By plain requests over `connections` at a time, with a kubeconfig's current context."""

    def __init__(self, kubeconfig, connections=8):
        self.kubeconfig, self.connections, self.shown = Path(kubeconfig), connections, {}
        config = yaml.safe_load(self.kubeconfig.read_text())

        def entry(plural, kind, wanted):
            return next(e[kind] for e in config[plural] if e["name"] == wanted)
        context = entry("contexts", "context", config["current-context"])
        cluster = entry("clusters", "cluster", context["cluster"])
        user = entry("users", "user", context["user"])
        self.url = urlsplit(cluster["server"])
        self.headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if "token" in user:
            self.headers["Authorization"] = f"Bearer {user['token']}"
        authority = cluster.get("certificate-authority-data")
        self.tls = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"),
            cadata=authority and base64.b64decode(authority).decode())
        if "client-certificate" in user:
            self.tls.load_cert_chain(user["client-certificate"], user["client-key"])

    def _connect(self):
        if self.url.scheme == "http":
            return http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)
        return http.client.HTTPSConnection(self.url.hostname, self.url.port, timeout=60,
                                           context=self.tls)

    def _ask(self, connection, method, path, body=None):
        connection.request(method, path, body and json.dumps(body), self.headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")

    def _put(self, connection, object_key, body):
        plural, ns, object_name = object_key
        path = PATHS[plural].format(ns)
        metadata = {k: v for k, v in body["metadata"].items() if k != "uid"}  # the server's to give
        body = body | {"metadata": metadata}
        status, said = 409, ""
        if object_key not in self.shown:
            status, said = self._ask(connection, "POST", path, body)
        if status == 409:
            status, said = self._ask(connection, "PUT", f"{path}/{object_name}", body)
        if status not in (200, 201):
            raise RuntimeError(f"{path}/{object_name}: {status} {said[:500]}")

    def _delete(self, connection, object_key):
        plural, ns, object_name = object_key
        path = f"{PATHS[plural].format(ns)}/{object_name}"
        status, said = self._ask(connection, "DELETE", path)
        if status not in (200, 202, 404):
            raise RuntimeError(f"DELETE {path}: {status} {said[:500]}")

    def _work(self, jobs, failures):
        with contextlib.closing(self._connect()) as connection:
            while not failures:
                try:
                    job = jobs.get_nowait()
                except queue.Empty:
                    return
                try:
                    job(connection)
                except (OSError, RuntimeError, http.client.HTTPException) as error:
                    failures.append(error)

    def _all(self, work):
        """The jobs in any order, several at a time."""
        jobs, failures = queue.SimpleQueue(), []
        for job in work:
            jobs.put(job)
        threads = [threading.Thread(target=self._work, args=(jobs, failures))
                   for _ in range(self.connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise RuntimeError(f"the API server: {failures[0]}")

    def show(self, objects):
        put, gone = changes(self.shown, objects)
        for plurals in (("nodes", "namespaces"), ("services",), ("endpointslices",)):
            self._all([lambda c, k=k, o=o: self._put(c, k, o) for k, o in put if k[0] in plurals])
        # A namespace stays: without controllers its deletion would not end.
        self._all([lambda c, k=k: self._delete(c, k) for k in gone if k[0] != "namespaces"])
        self.shown = objects
        return len(put), len(gone)
