"""A network namespace of a test's own, with a folder of manifests and at most one agent."""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
BIN = os.environ.get("PORTOLAN_BIN", str(ROOT / "build/portolan"))
NAMESPACE = f"ptl-{os.environ.get('LAB_NAME', 'cli')}{os.getpid()}"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-a"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.10"},
                                 {"type": "InternalIP", "address": "2001:db8::10"}]}}
TAINTED = NODE | {"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler",
                                       "effect": "NoSchedule", "value": "1"}]}}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def within(seconds, look, what):
    """What `look` returns as soon as it is true."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"after {seconds} s: {what}"
        time.sleep(0.01)
    return found


class Host:
    """A namespace with a folder of manifests and at most one agent."""

    def __init__(self, folder):
        self.folder = folder
        self.agent = None
        self.log = folder.parent / "agent.log"

    def run(self, *command, check=True):
        return subprocess.run(["ip", "netns", "exec", NAMESPACE, *command], check=check,
                              capture_output=True, text=True, timeout=20)

    def put(self, name, *objects):
        path = self.folder / f".{name}.part"
        path.write_text(yaml.safe_dump_all(objects))
        path.rename(self.folder / f"{name}.yaml")

    def arguments(self, *options):
        return [BIN, "agent", "--node", "edge-a", "--source", f"dir:{self.folder}",
                "--state-dir", str(self.folder.parent / "state"), *options]

    def start(self, *options, limit=None):
        """`limit`: of open files, which the program may raise."""
        limited = ["prlimit", f"--nofile={limit}:"] if limit else []
        self.agent = subprocess.Popen(
            ["ip", "netns", "exec", NAMESPACE, *limited, *self.arguments(*options)],
            stderr=self.log.open("w"))
        return self

    def stop(self):
        self.agent.terminate()
        assert self.agent.wait(20) == 0, self.log.read_text()
        self.agent = None

    def get(self, url):
        """(status, headers, body); status 0: nobody answers."""
        done = self.run("curl", "-g", "-s", "-i", "-m", "5", url, check=False)
        if done.returncode:
            return 0, {}, ""
        head, body = done.stdout.replace("\r\n", "\n").split("\n\n", 1)
        lines = head.splitlines()
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        return int(lines[0].split()[1]), headers, body

    @contextlib.contextmanager
    def server(self, answer, port, name="python3"):
        """A program of that name that answers every request on 127.0.0.1 so, or not at all."""
        program = f"""
import socket
s = socket.create_server(("127.0.0.1", {port}))
print(flush=True)
while True:
    c = s.accept()[0]
    c.recv(1000)
    c.sendall({answer.encode()!r})
    c.close()
"""
        process = subprocess.Popen(["ip", "netns", "exec", NAMESPACE, "bash", "-c",
                                    'exec -a "$0" python3 -c "$1"', name, program],
                                   stdout=subprocess.PIPE)
        try:
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()
            process.wait()

    def ready(self):
        within(10, lambda: self.get("http://127.0.0.1:10266/readyz")[0] == 200,
               lambda: self.log.read_text())
        return self




def service(name, health_port, **spec):
    """A load balancer's Service with external traffic policy Local."""
    return {"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "games"},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"],
                     "externalTrafficPolicy": "Local", "healthCheckNodePort": health_port,
                     "ports": [{"name": "web", "protocol": "TCP", "port": 80, "nodePort": 30080}],
                     **spec}}


def endpoints(name, *nodes, **metadata):
    """A slice with one endpoint on each of the nodes."""
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-1", "namespace": "games",
                         "labels": {"kubernetes.io/service-name": name}, **metadata},
            "addressType": "IPv4", "ports": [{"name": "web", "protocol": "TCP", "port": 8080}],
            "endpoints": [{"addresses": [f"10.244.0.{i + 2}"], "nodeName": node}
                          for i, node in enumerate(nodes)]}
