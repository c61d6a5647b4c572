"""A large cluster on a real API server: 5,000 Services with 50,000 endpoints, listed and watched.

The last file of the run by its name, since the objects stay.
"""

import http.client
import json
import re
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster import path_of
from kube_help import endpoint_slice, portmap, portmap_class

SERVICES, ENDPOINTS = 5000, 10  # of each
MAPPINGS = 100
MEMORY = 200  # MiB: no measure of quality, but far above what it needs


def service(name):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "games"},
            "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}}


def slice_of(i):
    made = endpoint_slice("edge-a", service=f"s{i}")
    made["endpoints"] = [
        {"addresses": [f"10.{i // 250}.{i % 250}.{e}"], "nodeName": "edge-a",
         "conditions": {"ready": True},
         "targetRef": {"kind": "Pod", "name": f"s{i}-6d5f7b8c9-{e:05}", "namespace": "games",
                       "uid": f"00000000-0000-4000-8000-{i:08}{e:04}"}} for e in range(ENDPOINTS)]
    return made


class Crew:
    """Requests by several threads, each over one connection."""

    def __init__(self, api, threads=8):
        self.api, self.local = api, threading.local()
        self.context = ssl.create_default_context(cafile=api.file("ca.crt"))
        self.pool = ThreadPoolExecutor(threads)

    def _ask(self, request):
        method, path, body = request
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPSConnection(
                "127.0.0.1", self.api.port, timeout=120, context=self.context)
        self.local.connection.request(method, path, body and json.dumps(body), {
            "Authorization": f"Bearer {self.api.admin_token}", "Content-Type": "application/json"})
        answer = self.local.connection.getresponse()
        said = answer.read()
        assert answer.status in (200, 201), said
        return answer.status

    def all(self, requests):
        return list(self.pool.map(self._ask, requests))


@pytest.fixture
def large(cluster):
    cluster.nodes(["edge-a"])
    crew = Crew(cluster.api)
    made = [o for i in range(SERVICES) for o in (service(f"s{i}"), slice_of(i))]
    crew.all(("POST", path_of(o), o) for o in made)
    cluster.put(portmap_class("edge-a"))
    for i in range(MAPPINGS):
        cluster.put(portmap(f"m{i}", 4000 + i, serviceRef={"name": f"s{i}", "port": "http"}))
    return cluster  # these objects stay: their deletion takes longer than all else here


def memory(agent):
    """Resident now and at its peak, in MiB, and seconds of CPU."""
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    stat = Path(f"/proc/{agent.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (*(int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) / 1024
              for name in ("VmRSS", "VmHWM")), (int(stat[11]) + int(stat[12])) / 100)


@pytest.mark.parametrize("features", ["portmap"])
def test_a_large_cluster_is_listed_and_watched(large, features):
    begin = time.monotonic()
    agent = large.agent("edge-a", large.config(token=large.token()), "--features", features)
    large.until(lambda: agent.ready()[0] == 200, "agent that is ready", 120)
    ready = time.monotonic() - begin
    now, peak, cpu = memory(agent)
    print(f"{features}: ready after {ready:.1f} s and {cpu:.1f} s of CPU; "
          f"{now:.0f} MiB resident, at most {peak:.0f}")
    large.programmed(f"m{MAPPINGS - 1}", 60)
    crew, changed = Crew(large.api), [slice_of(i) for i in range(500)]
    for o in changed:  # all their pods move
        for e, endpoint in enumerate(o["endpoints"]):
            endpoint["addresses"] = [f"10.200.{e}.{int(o['metadata']['name'][1:-2]) % 250}"]
    crew.all(("PUT", f"{path_of(o)}/{o['metadata']['name']}", o) for o in changed)
    large.until(lambda: re.search(rf"10\.200\.\d\.{MAPPINGS - 1} \. 8080",
                                  agent.namespace.run("nft", "list", "ruleset")),
                "pod's new address in the kernel", 60)
    now, peak, cpu = memory(agent)
    print(f"after 500 changed slices: {now:.0f} MiB resident, at most {peak:.0f}; "
          f"{cpu:.1f} s of CPU")
    assert peak < MEMORY
