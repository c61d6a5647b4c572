"""What the tests of the kube source share: a cluster's objects, kubeconfig files, certificates, and
agents in network namespaces of their own that talk to a faulty server inside."""

import base64
import ctypes
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

from faulty_server import GROUP, Server

ROOT = Path(__file__).resolve().parents[2]
BIN = os.path.abspath(os.environ.get("PORTOLAN_BIN", ROOT / "build/portolan"))
SANITIZED = b"__asan_init" in Path(BIN).read_bytes() if os.path.exists(BIN) else False
PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def until(condition, what, seconds=20):
    """The first true value of condition(). `what`: a text, or what makes one."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what() if callable(what) else what}"
        time.sleep(0.02)
    return value


# ---- objects ----


def node(name, ip="10.9.0.1"):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"addresses": [{"type": "InternalIP", "address": ip}]}}


def portmap(name, port=3000, ns="games", **spec):
    return {"apiVersion": GROUP, "kind": "PortMap", "metadata": {"name": name, "namespace": ns},
            "spec": {"className": "public", "protocol": "TCP", "port": port,
                     "serviceRef": {"name": "web", "port": "http"}} | spec}


def portmap_class(*nodes, name="public", interface="eth0"):
    return {"apiVersion": GROUP, "kind": "PortMapClass", "metadata": {"name": name},
            "spec": {"nodes": {n: {"interfaces": [interface]} for n in nodes},
                     "returnPath": {"mode": "Vxlan"}}}


def endpoint_slice(node_name, address="10.244.0.7", ns="games", service="web"):
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": f"{service}-1", "namespace": ns,
                         "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
            "endpoints": [{"addresses": [address], "nodeName": node_name,
                           "targetRef": {"kind": "Pod", "name": f"{service}-0", "namespace": ns}}]}


def put_cluster(server, *nodes):
    for n in nodes:
        server.put(node(n))
    server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "games"}})
    server.put(endpoint_slice(nodes[0]))
    server.put(portmap_class(*nodes))


# ---- who and where ----


def kubeconfig(path, url, cluster=None, user=None):
    """`cluster` and `user`: more fields of these."""
    Path(path).write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": url} | (cluster or {})}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user or {}}]}))
    return str(path)


def b64(path):
    return base64.b64encode(Path(path).read_bytes()).decode()


class Certificates:
    """A CA in a folder, and what it signs."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.ca = str(self.folder / "ca.crt")
        self._openssl("req", "-x509", *self._key("ca.key"), "-out", "ca.crt", "-days", "2", "-subj",
                      "/CN=test-ca")

    def _openssl(self, *words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=self.folder)

    @staticmethod
    def _key(path):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path]

    def make(self, name, extension):
        """Paths of a certificate and its key."""
        self._openssl("req", *self._key(f"{name}.key"), "-subj", f"/CN={name}", "-out", f"{name}.csr")
        (self.folder / f"{name}.ext").write_text(extension + "\n")
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                      "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext", "-out",
                      f"{name}.crt")
        return str(self.folder / f"{name}.crt"), str(self.folder / f"{name}.key")

    def server(self, names="IP:127.0.0.1", client_required=False):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.make("server", f"subjectAltName={names}"))
        if client_required:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.ca)
        return context


# ---- the program ----


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(*words, prefix=(), **kwargs):
    return subprocess.run([*prefix, BIN, *words], capture_output=True, text=True,
                          timeout=kwargs.pop("timeout", 60), **kwargs)


class Namespace:
    """A network namespace with loopback and an eth0."""

    def __init__(self, name, address="198.51.100.10"):
        self.name = name
        subprocess.run(["ip", "netns", "add", name], check=True)
        for words in ("link set lo up", "link add eth0 type veth peer name peer0",
                      f"addr add {address}/24 dev eth0", "link set eth0 up",
                      "link set peer0 up"):
            subprocess.run(["ip", "-n", name, *words.split()], check=True)

    def close(self):
        subprocess.run(["ip", "netns", "del", self.name], check=True)

    def run(self, *words, stdin=None):
        """What a command in it prints; it must succeed."""
        return subprocess.run(["ip", "netns", "exec", self.name, *words], input=stdin, text=True,
                              capture_output=True, check=True, timeout=30).stdout

    def inside(self, what):
        """what(), in a thread that is in the namespace: sockets made there stay in it."""
        result = []

        def thread():
            with open(f"/run/netns/{self.name}") as f:
                assert _libc.setns(f.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            try:
                result.append(what())
            except Exception as error:
                result.append(error)
        t = threading.Thread(target=thread)
        t.start()
        t.join()
        if isinstance(result[0], Exception):
            raise result[0]
        return result[0]

    def listen(self, port=0):
        def make():
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
            s.listen(64)
            return s
        return self.inside(make)

    def fetch(self, path):
        """(status, text) of the agent's own HTTP."""
        def get():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:10266{path}", timeout=5) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
            except OSError:
                return 0, ""
        return self.inside(get)


class Agent:
    """`portolan agent` in a namespace. Its log is in .log()."""

    def __init__(self, namespace, folder, config, node, *words):
        self.namespace, self.config = namespace, config
        self.path = Path(folder) / f"agent-{node}.log"
        with open(self.path, "w") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", namespace.name, BIN, "agent", "--node", node,
                 "--kubeconfig", config, "--state-dir", f"{folder}/state-{node}", *words],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)

    def log(self):
        return self.path.read_text()

    def ready(self):
        return self.namespace.fetch("/readyz")

    def metric(self, name):
        """The sum of its samples whose line holds `name`."""
        text = self.namespace.fetch("/metrics")[1]
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if re.match(name, line))

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(10) == 0, self.log()


def conditions(server, name, ns="games"):
    """Of a PortMap: {type: (status, reason)}."""
    o = server.get("portmaps", ns, name) or {}
    return {c["type"]: (c["status"], c["reason"])
            for c in o.get("status", {}).get("conditions", [])}


class World:
    """A faulty server, a cluster in it, and agents on nodes of their own: each node is a namespace in
    which the server listens on 127.0.0.1."""

    def __init__(self, folder, name, nodes=("edge-a",)):
        self.folder = Path(folder)
        self.namespaces, self.agents = {}, []
        for i, n in enumerate(nodes):
            self.namespaces[n] = Namespace(f"{name}-{i}")
        self.server = Server(listeners=self._listen(0))
        self.server.start()
        self.config = kubeconfig(self.folder / "kubeconfig", self.server.url)
        put_cluster(self.server, *nodes)

    def _listen(self, port):
        listeners = []
        for namespace in self.namespaces.values():
            listeners.append(namespace.listen(port))
            port = listeners[0].getsockname()[1]
        return listeners

    def agent(self, node="edge-a", *words):
        agent = Agent(self.namespaces[node], self.folder, self.config, node, *words)
        self.agents.append(agent)
        return agent

    def restart_server(self):
        self.server.listeners = self._listen(self.server.port)
        self.server.start()

    def accepted(self, name, seconds=20):
        """Waits until an agent has said that the mapping is accepted."""
        return until(lambda: conditions(self.server, name).get("Accepted") == ("True", "Valid"),
                     lambda: f"{name} accepted: {conditions(self.server, name)}\n" +
                     "".join(a.log() for a in self.agents), seconds)

    def row(self, node, name="public"):
        """The node's row in the class's status, or None."""
        status = self.server.get("portmapclasses", "", name).get("status", {})
        return next((r for r in status.get("nodes", []) if r["name"] == node), None)

    def close(self):
        try:
            for agent in self.agents:
                agent.stop()
        finally:
            self.server.stop()
            for namespace in self.namespaces.values():
                namespace.close()
