"""A real API server as the agents' source.

It listens on the machine's loopback; `Lab.connect()` relays the loopback of each node to it, so
that nothing of a node's network is changed for it, and one kubeconfig serves everywhere.
"""

import concurrent.futures
import datetime
import http.client
import json
import ssl
import threading
import time

from . import netns
from .objects import GROUP, Objects
from .statuses import Statuses

PLURALS = {"Node": "nodes", "Namespace": "namespaces", "Service": "services",
           "EndpointSlice": "endpointslices", "ServiceCIDR": "servicecidrs",
           "PortMap": "portmaps", "PortMapClass": "portmapclasses",
           "TrafficClass": "trafficclasses"}
CORE = ("nodes", "services")
APPLY = "application/apply-patch+yaml"      # JSON is YAML
MERGE = "application/merge-patch+json"


class KubeError(RuntimeError):
    """The API server refused; the message is its own. `status` is HTTP's."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class KubeClient:
    """Requests as the admin, each thread on a connection of its own that it keeps."""

    def __init__(self, port, ca_file, token):
        self.port = port
        self.context = ssl.create_default_context(cafile=ca_file)
        self.headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self.threads = threading.local()

    def __call__(self, method, path, body=None, content_type="application/json"):
        """The object the server answers with."""
        text = None if body is None else json.dumps(body)
        try:
            status, answer = self._ask(method, path, text, content_type)
        except (http.client.HTTPException, ConnectionError):    # the server has closed it, idle
            self._forget()
            status, answer = self._ask(method, path, text, content_type)
        if status >= 300:
            raise KubeError(status, answer.get("message", f"HTTP status {status}"))
        return answer

    def apply(self, path, document):
        """By one field manager: what an object does not say any more goes from it."""
        return self("PATCH", f"{path}?fieldManager=lab&force=true", document, APPLY)

    def apply_node(self, path, main, status):
        """Two addresses of one type cannot be applied."""
        answer = self.apply(path, main)
        self("PATCH", f"{path}/status", {"status": status}, MERGE)
        return answer

    def _ask(self, method, path, text, content_type):
        connection = getattr(self.threads, "connection", None)
        if not connection:
            connection = self.threads.connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=30, context=self.context)
        connection.request(method, path, text, {**self.headers, "Content-Type": content_type})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def _forget(self):
        self.threads.connection.close()
        self.threads.connection = None


def path_of(api, plural, name="", namespace=None, subresource=""):
    words = ["/api/v1" if api == "v1" else f"/apis/{api}",
             *(("namespaces", namespace) if namespace else ()), plural, name, subresource]
    return "/".join(filter(None, words))


class KubeObjects(Objects):
    def __init__(self, client):
        self.client = client
        self.made = {}          # (kind, namespace, name): the arguments of put()
        self.namespaces = set()     # nobody finishes their deletion: they stay
        self.newest = 0         # creation of the youngest, seconds since the epoch

    def put(self, api, kind, name, body, namespace=None, labels=None, annotations=None):
        metadata = {"name": name, **({"namespace": namespace} if namespace else {}),
                    **({"labels": labels} if labels else {}),
                    **({"annotations": annotations} if annotations else {})}
        path = path_of(api, PLURALS[kind], name, namespace)
        main = {"apiVersion": api, "kind": kind, "metadata": metadata,
                **{key: value for key, value in body.items() if key != "status"}}
        key = (kind, namespace, name)
        if kind == "Node":
            answer = self.client.apply_node(path, main, body["status"])
        else:
            answer = self.client.apply(path, main)
            if "status" in body or key in self.made and "status" in self.made[key][3]:
                self.client.apply(f"{path}/status", {"apiVersion": api, "kind": kind,
                                                     "metadata": {"name": name},
                                                     "status": body.get("status", {})})
        created = datetime.datetime.fromisoformat(
            answer["metadata"]["creationTimestamp"].replace("Z", "+00:00"))
        self.newest = max(self.newest, created.timestamp())
        self.made[key] = (api, kind, name, body, namespace, labels)
        if kind == "Namespace":
            self.namespaces.add(name)

    def put_together(self, documents):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda d: self.put(GROUP, *d), documents))

    def put_again(self, kind, name, namespace=None, labels=None):
        self.put(*self.made[kind, namespace, name][:-1], labels)

    def delete(self, kind, name, namespace=None):
        api = self.made.pop((kind, namespace, name))[0]
        self.client("DELETE", path_of(api, PLURALS[kind], name, namespace))

    def younger(self):
        """The server's clock has whole seconds."""
        netns.wait_until(lambda: time.time() >= self.newest + 1, 2, "the next second")

    def clear(self):
        """Deletes all but namespaces and the service range, which is the server's own."""
        for api, kind in {(key_api, kind) for key_api, kind, *_ in self.made.values()}:
            if kind in ("Namespace", "ServiceCIDR"):
                continue
            scopes = self.namespaces if kind in ("PortMap", "Service", "EndpointSlice") else [None]
            for namespace in scopes:
                self.client("DELETE", path_of(api, PLURALS[kind], namespace=namespace))
        self.made.clear()


class KubeStatuses(Statuses):
    interval = 0.02     # a look is a request

    def __init__(self, client):
        self.client = client

    def read(self, plural, name, namespace=None):
        try:
            api = "v1" if plural in CORE else GROUP
            return self.client("GET", path_of(api, plural, name, namespace))
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    def edit(self, plural, name, change, namespace=None):
        document = self.read(plural, name, namespace)
        change(document["status"])
        self.client("PUT", path_of(GROUP, plural, name, namespace, "status"), document)

    def versions(self):
        """Of all objects an agent may write."""
        lists = [path_of(GROUP, "portmaps"), path_of(GROUP, "portmapclasses"),
                 path_of("v1", "nodes"), path_of("v1", "services"),
                 path_of("events.k8s.io/v1", "events")]
        return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"]
                for path in lists for item in self.client("GET", path)["items"]}


class KubeSource:
    """What tells agents where the API server is."""

    def __init__(self, port, ca_file, token, kubeconfig):
        """`token` is an admin's; `kubeconfig` the agents'."""
        self.port = port
        self.client = KubeClient(port, ca_file, token)
        self.arguments = ["--source", "kube:", "--kubeconfig", kubeconfig]


class Kube(KubeSource):
    """One for a whole run: each test starts from what clear() leaves, an empty cluster."""

    def __init__(self, *access):
        super().__init__(*access)
        self.objects = KubeObjects(self.client)
        self.status = KubeStatuses(self.client)

    def clear(self):
        self.objects.clear()
