"""A cluster on the real API server whose nodes are network namespaces with an agent each.

    with Cluster(api, folder, "x") as cluster:
        cluster.nodes(["edge-a"])
        agent = cluster.agent("edge-a", cluster.config(token=token))
        cluster.put(portmap("web"))
        cluster.accepted("web")

Its Kubernetes namespace is "games"; what it creates it deletes again.
"""

import contextlib
import sys
from pathlib import Path

import yaml

from apiserver import ROOT, wait_for
from manifests import NAMESPACE
from relay import Relay

sys.path.insert(0, str(ROOT / "tests/source"))

from faulty_server import KINDS  # noqa: E402
from kube_help import Agent, Namespace  # noqa: E402

PLURALS = {kind: (version, plural) for plural, (version, kind) in KINDS.items()}
MERGE = "application/merge-patch+json"


def path_of(o):
    """Of the collection an object is in."""
    version, plural = PLURALS[o["kind"]]
    prefix = "/apis/" if "/" in version else "/api/"
    ns = o["metadata"].get("namespace")
    return f"{prefix}{version}{f'/namespaces/{ns}' if ns else ''}/{plural}"


def portmap_path(name, ns="games"):
    return f"/apis/kuport.wlz.li/v1alpha1/namespaces/{ns}/portmaps/{name}"


def class_path(name="public"):
    return f"/apis/kuport.wlz.li/v1alpha1/portmapclasses/{name}"


class Cluster:
    def __init__(self, api, folder, prefix):
        """`prefix`: of the network namespaces' names."""
        self.api, self.folder, self.prefix = api, Path(folder), prefix
        self.namespaces, self.agents, self.made = {}, [], {}
        self.relay = Relay(api.port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.ExitStack() as stack:  # each of them, also when one fails
            stack.callback(self._delete_all)
            for namespace in self.namespaces.values():
                stack.callback(namespace.close)
            stack.callback(self.relay.close)
            for agent in self.agents:
                stack.callback(agent.stop)

    def _delete_all(self):
        for path in reversed(self.made):
            self.api.call("DELETE", path)

    # ---- objects ----

    def put(self, o):
        """Creates it, or merges it into the one there is."""
        path = path_of(o)
        one = f"{path}/{o['metadata']['name']}"
        status, answer = self.api.call("POST", path, o)
        if status == 409:
            status, answer = self.api.call("PATCH", one, o, content_type=MERGE)
        if status not in (200, 201):
            raise RuntimeError(f"{one}: {status} {answer}")
        if o["kind"] != "Namespace":  # never quite deleted here
            self.made[one] = None
        return answer

    def delete(self, path):
        status, answer = self.api.call("DELETE", path)
        if status != 200:
            raise RuntimeError(f"{path}: {status} {answer}")

    def get(self, path):
        """None: there is no such object."""
        status, answer = self.api.call("GET", path)
        return answer if status == 200 else None

    def conditions(self, name, ns="games"):
        """Of a PortMap: {type: (status, reason)}."""
        status = (self.get(portmap_path(name, ns)) or {}).get("status", {})
        return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}

    def class_status(self, name="public"):
        return (self.get(class_path(name)) or {}).get("status", {})

    def rows(self, name="public"):
        """Of the class's status: {node: row}."""
        return {row["name"]: row for row in self.class_status(name).get("nodes", [])}

    # ---- nodes and agents ----

    def nodes(self, names):
        """Makes them: namespaces, and Node objects with distinct InternalIPs."""
        for name in names:
            i = len(self.namespaces)
            address = f"198.51.100.{i + 10}"
            namespace = Namespace(f"{self.prefix}-{i}", address)
            self.namespaces[name] = namespace
            self.relay.add(namespace.listen(self.api.port))
            self.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                      "status": {"addresses": [{"type": "InternalIP", "address": address}]}})

    def token(self, *options):
        """Of the agents' ServiceAccount, as an admin makes one."""
        return self.api.kubectl("create", "token", "portolan", "-n", NAMESPACE,
                                *options).stdout.strip()

    def config(self, name="agent", cluster=None, **user):
        """A kubeconfig in our folder for a `user` entry such as token=TOKEN."""
        path = self.folder / f"{name}.kubeconfig"
        made = yaml.safe_load(Path(self.api.write_kubeconfig(name, **user)).read_text())
        made["clusters"][0]["cluster"] |= cluster or {}
        path.write_text(yaml.safe_dump(made))
        return str(path)

    def agent(self, node, config, *words):
        agent = Agent(self.namespaces[node], self.folder, config, node, *words)
        self.agents.append(agent)
        return agent

    def logs(self):
        return "".join(agent.log() for agent in self.agents)

    def until(self, condition, what, seconds=20, interval=0.05):
        """The first true value of condition()."""
        try:
            return wait_for(condition, what, seconds, interval)
        except TimeoutError as error:
            raise AssertionError(f"{error}; the agents say:\n{self.logs()[-8000:]}") from None

    def accepted(self, name, seconds=20):
        self.until(lambda: self.conditions(name).get("Accepted") == ("True", "Valid"),
                   f"PortMap {name} that is accepted", seconds)

    def programmed(self, name, seconds=20):
        self.until(lambda: self.conditions(name).get("Programmed") == ("True", "AllNodesReady"),
                   f"PortMap {name} that is programmed", seconds)
