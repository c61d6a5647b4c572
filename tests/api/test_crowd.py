"""Many agents write one class at once, on a real API server."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster import class_path
from kube_help import endpoint_slice, portmap, portmap_class

ROWS = 100
CLAIMS = 50
LONG = 600  # seconds; a hundred agents share the machine with their server


@pytest.fixture
def crowd(cluster):
    """Starts an agent on each of n new nodes, node-0 first."""
    def crowd(n):
        names = [f"node-{i}" for i in range(n)]
        cluster.nodes(names)
        config = cluster.config(token=cluster.token())
        for name in names:
            cluster.agent(name, config)
        return names
    return crowd


def test_a_hundred_rows_written_at_once_all_land(cluster, crowd):
    names = [f"node-{i}" for i in range(ROWS)]
    cluster.put(portmap_class(*names))
    crowd(ROWS)
    begin = time.monotonic()
    cluster.until(lambda: len(cluster.rows()) == ROWS, "every row", LONG, 1)
    print(f"{ROWS} rows landed {time.monotonic() - begin:.1f} s after the start")
    assert sorted(cluster.rows()) == sorted(names)
    managers = {m["manager"] for m in cluster.get(class_path())["metadata"]["managedFields"]
                if m["operation"] == "Apply"}
    assert managers == {f"portolan-{name}" for name in names}


def test_fifty_agents_claim_links_at_once(cluster, crowd):
    """The pods are on 50 nodes, and only node-0 accepts: each of the others claims a link to it."""
    cluster.put(portmap_class("node-0"))
    names = crowd(CLAIMS + 1)
    cluster.until(lambda: cluster.rows(), "row of node-0", 60)
    others = names[1:]
    for i, name in enumerate(others):
        cluster.put(endpoint_slice(name, f"10.244.{i}.7", service=f"s{i}"))

    def put(i):
        cluster.put(portmap(f"m{i}", 4000 + i, serviceRef={"name": f"s{i}", "port": "http"}))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(put, range(len(others))))

    def links():
        return cluster.class_status().get("links", [])
    begin = time.monotonic()
    cluster.until(lambda: len(links()) == CLAIMS, "claim for each pair", LONG, 1)
    print(f"{CLAIMS} claims landed in {time.monotonic() - begin:.1f} s")
    made = links()
    assert {frozenset(link["peers"]) for link in made} == {frozenset(("node-0", n)) for n in others}
    for field in ("slot", "subnet", "key"):
        assert len({link[field] for link in made}) == CLAIMS, made
    for i in range(CLAIMS):
        cluster.programmed(f"m{i}", LONG)
    assert {link["key"]: link["slot"] for link in links()} == \
        {link["key"]: link["slot"] for link in made}  # none was renumbered
