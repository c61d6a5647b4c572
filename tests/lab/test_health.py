"""What the agent says of itself over HTTP: /livez, /readyz and /metrics."""

import contextlib
import os
import re

import pytest

from lab import Folder, wait_until
from world import EDGE, NAMESPACE, links, table_text

URL = "127.0.0.1:10266"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def fetch(node, path):
    """(HTTP status, content type, body) as curl gets it on the node."""
    said = node.run("curl", "-s", "-m", "5", "-w", "\n%{http_code} %{content_type}", URL + path,
                    check=False).stdout
    body, _, last = said.rpartition("\n")
    status, _, kind = last.partition(" ")
    return int(status or 0), kind, body


def ready(node):
    """(HTTP status, body); status 0 while nobody answers."""
    status, _, body = fetch(node, "/readyz")
    return status, body


def wait_ready(node, timeout=10):
    wait_until(lambda: ready(node) == (200, "ok\n"), timeout,
               lambda: f"{node.name} to be ready; it says {ready(node)}", interval=0.05)


def wait_unready(node, reason, timeout=10):
    """Waits for a 503 whose body matches; the agent lives meanwhile."""
    def unready():
        status, body = ready(node)
        return status == 503 and re.search(reason, body)
    wait_until(unready, timeout, lambda: f"{node.name} to say '{reason}'; it says {ready(node)}",
               interval=0.05)
    assert fetch(node, "/livez")[0] == fetch(node, "/healthz")[0] == 200


@contextlib.contextmanager
def away(cluster):
    """The source cannot be followed: the folder is not there, the API server not in reach."""
    lab, source = cluster.lab, cluster.source
    if isinstance(source, Folder):
        os.rename(source.directory, f"{source.directory}.away")
    else:
        lab.disconnect()
    try:
        yield
    finally:
        if isinstance(source, Folder):
            os.rename(f"{source.directory}.away", source.directory)
        else:
            lab.connect(source.port)


def test_not_ready_before_the_first_pass(world, lab):
    """Its Node object says what addresses the node has: without it there is no pass."""
    edge = lab.node("edge-a")
    world.objects.delete("Node", "edge-a")
    world.public()
    world.start_agents()
    wait_unready(edge, "no Node object edge-a")
    wait_ready(lab.node("worker-b"))
    world.objects.node("edge-a", lab.mesh_address("edge-a"))
    wait_ready(edge)


def test_not_ready_while_the_source_is_away_and_the_kernel_keeps_what_it_has(cluster, lab):
    edge = lab.node("edge-a")
    cluster.public()
    cluster.expose("web", ["b1"], "tcp", 3000)
    wait_ready(edge)
    kept = table_text(edge), links(edge)
    with away(cluster):
        for node in lab.nodes():
            wait_unready(node, "source: ")
        cluster.sees_client("tcp", EDGE, 3000, "b1")
        assert (table_text(edge), links(edge)) == kept
    for node in lab.nodes():
        wait_ready(node, 35)    # it tries again after half a minute at most
    cluster.move("web", ["a1"], "tcp")
    cluster.wait_answer("tcp", EDGE, 3000, "a1")


def test_while_the_source_is_away_what_somebody_else_changes_is_mended(cluster, lab):
    """The last known objects are as good as before."""
    edge = lab.node("edge-a")
    cluster.public()
    cluster.expose("web", ["b1"], "tcp", 3000)
    kept = table_text(edge)
    with away(cluster):
        wait_unready(edge, "source: ")
        edge.nft("delete table inet portolan")
        edge.delete_link(*links(edge))
        wait_until(lambda: table_text(edge) == kept and links(edge), 5,
                   lambda: f"table and link to be back:\n{table_text(edge)}")
        cluster.wait_answer("tcp", EDGE, 3000, "b1")
    wait_ready(edge, 35)


@pytest.mark.kube_only("an agent does not start without its folder")
def test_started_without_its_api_server_it_keeps_the_kernel_and_follows_later(cluster, lab):
    edge, agent = lab.node("edge-a"), lab.agent("edge-a")
    cluster.public()
    cluster.expose("web", ["b1"], "tcp", 3000)
    cluster.expose("gone", ["a1"], "tcp", 3100)
    kept = table_text(edge), links(edge)
    with away(cluster):
        agent.kill()
        agent.restart()
        wait_unready(edge, "not every needed object has been seen")
        cluster.objects.delete("PortMap", "gone", NAMESPACE)
        cluster.sees_client("tcp", EDGE, 3000, "b1")
        cluster.sees_client("tcp", EDGE, 3100, "a1")
        assert (table_text(edge), links(edge)) == kept
    wait_ready(edge, 35)
    cluster.wait_error("tcp", EDGE, 3100, "refused")
    cluster.sees_client("tcp", EDGE, 3000, "b1")


def test_what_the_kernel_refuses_makes_it_unready(cluster, lab):
    """A stranger's device has the name of the link."""
    edge = lab.node("edge-a")
    edge.ip("link add pl4242 type bridge")
    try:
        cluster.public()
        cluster.service("web", ["b1"], [("main", "TCP", 8080)])
        cluster.portmap("web", "tcp", 3000)
        wait_unready(edge, "pl4242")
        assert metrics(edge)[("portolan_kernel_refused_objects",)] >= 1
    finally:
        edge.delete_link("pl4242")
    cluster.programmed("web")
    wait_ready(edge)
    assert metrics(edge)[("portolan_kernel_refused_objects",)] == 0


# ---- metrics ----------------------------------------------------------------------------------

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


def parse(text):
    """{(sample name, (label, value)...): number}; asserts the rules of the text format 0.0.4."""
    found, kinds, helped, family = {}, {}, set(), None
    assert text.endswith("\n")
    for line in text.splitlines():
        if match := re.fullmatch(rf"# HELP ({NAME}) (.+)", line):
            family = match[1]
            assert family not in helped, f"two HELP lines: {line}"
            helped.add(family)
        elif match := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line):
            assert match[1] == family and family not in kinds, f"TYPE does not follow HELP: {line}"
            kinds[family] = match[2]
        else:
            match = SAMPLE.fullmatch(line)
            assert match, f"not a sample: {line}"
            assert match[1] in {family + end for end in SUFFIXES[kinds[family]]}, line
            key = (match[1], *sorted(re.findall(LABEL, match[2] or "")))
            assert key not in found, f"twice: {line}"
            found[key] = float(match[match.re.groups])
    for family in (name for name, kind in kinds.items() if kind == "histogram"):
        check_histogram(found, family)
    return found


def check_histogram(found, family):
    buckets = sorted((float(dict(labels)["le"]), number) for (name, *labels), number in
                     found.items() if name == f"{family}_bucket")
    assert [n for _, n in buckets] == sorted(n for _, n in buckets), f"{family}: not cumulative"
    assert buckets[-1] == (float("inf"), found[(f"{family}_count",)])


def metrics(node):
    status, kind, body = fetch(node, "/metrics")
    assert (status, kind) == (200, METRICS_TYPE)
    return parse(body)


def wait_metric(node, number, name, **labels):
    key = (name, *sorted(labels.items()))
    wait_until(lambda: metrics(node).get(key) == number, 5,
               lambda: f"{key} to be {number}; it is {metrics(node).get(key)}", interval=0.05)


def test_metrics_say_what_the_agent_sees_and_does(cluster, lab):
    edge = lab.node("edge-a")
    cluster.public()
    cluster.expose("web", ["b1"], "tcp", 3000)
    cluster.service("empty", [], [("main", "TCP", 8080)])
    cluster.portmap("empty", "tcp", 3100)
    for kind, number in (("Node", 3), ("PortMapClass", 1), ("PortMap", 2), ("EndpointSlice", 2)):
        wait_metric(edge, number, "portolan_objects", kind=kind)
    wait_metric(edge, len(links(edge)), "portolan_links")
    wait_metric(edge, 1, "portolan_problems", reason="NoReadyEndpoint")
    before = metrics(edge)
    assert before[("portolan_kernel_operations_total", ("op", "add"))] > 0
    cluster.objects.delete("PortMap", "web", NAMESPACE)
    cluster.move("empty", ["a1"], "tcp")
    cluster.programmed("empty")
    wait_metric(edge, 0, "portolan_links")
    wait_metric(edge, 0, "portolan_problems", reason="NoReadyEndpoint")
    wait_metric(edge, 1, "portolan_objects", kind="PortMap")
    after = metrics(edge)
    for name in ("portolan_passes_total", "portolan_kernel_operations_total"):
        assert all(after[key] >= before[key] for key in before if key[0].startswith(name))
    assert after[("portolan_passes_total", ("result", "clean"))] > \
        before[("portolan_passes_total", ("result", "clean"))]
    assert after[("portolan_passes_total", ("result", "failed"))] == 0
    assert after[("portolan_kernel_operations_total", ("op", "delete"))] > \
        before[("portolan_kernel_operations_total", ("op", "delete"))]
    assert after[("portolan_plan_duration_seconds_count",)] == \
        sum(after[("portolan_passes_total", ("result", result))] for result in ("clean", "failed"))


@pytest.mark.kube_only("a folder is not asked")
def test_metrics_count_requests_to_the_api_server(cluster, lab):
    edge = lab.node("edge-a")
    cluster.public()
    cluster.expose("web", ["a1"], "tcp", 3000)
    def written():
        now = metrics(edge)
        return now if now.get(("portolan_api_requests_total", ("code", "200"),
                               ("verb", "PATCH"))) else None
    wait_until(written, 5, lambda: f"a PATCH to be counted: {metrics(edge)}")
    assert ("portolan_watch_restarts_total", ("resource", "portmaps")) in metrics(edge)
    with away(cluster):
        wait_until(lambda: metrics(edge)[("portolan_watch_restarts_total",
                                          ("resource", "portmaps"))] >= 1, 10, "a watch to end")


def test_anything_else_is_not_found_and_nothing_is_taken(cluster, lab):
    edge = lab.node("edge-a")
    wait_ready(edge)
    assert fetch(edge, "/")[0] == fetch(edge, "/metrics/x")[0] == 404
    said = edge.out("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", "-d", "x",
                    URL + "/readyz")
    assert said == "405"
    assert edge.out("curl", "-s", "-I", URL + "/readyz").startswith("HTTP/1.1 200")
