"""Where the objects are: what is deleted, what is refused; in a folder bad files, half-written
files, several documents, unknown kinds."""

import contextlib
import os
import re
import time

import pytest

from lab import Kube, KubeError, wait_until
from world import EDGE, NAMESPACE

files = pytest.mark.folder_only("an API server takes no object that is bad, and none in pieces")


def mapping_file(world, name):
    return world.objects.path("PortMap", name, NAMESPACE)


@files
def test_a_bad_file_keeps_its_last_good_version_and_others_go_on(cluster):
    cluster.public()
    cluster.expose("web", ["a1"], "tcp", 3000)
    path = mapping_file(cluster, "web")
    with open(path) as file:
        good = file.read()
    with open(path, "w") as file:
        file.write(good.replace("spec:", "spec: ]:\n  - {"))
    name = re.escape(os.path.basename(path))
    agent = cluster.lab.agent("edge-a")
    agent.wait_log(os.path.basename(path))
    assert re.search(name + r":\d+:\d+", agent.log()), agent.log()
    cluster.expose("other", ["a2"], "tcp", 3100)
    cluster.sees_client("tcp", EDGE, 3000, "a1")
    cluster.sees_client("tcp", EDGE, 3100, "a2")
    with open(path, "w") as file:
        file.write(good)
    cluster.expose("more", ["a2"], "tcp", 3200)
    cluster.programmed("web")
    cluster.sees_client("tcp", EDGE, 3000, "a1")


@files
def test_a_bad_file_that_is_new_stops_nothing_else(cluster):
    with open(os.path.join(cluster.source.directory, "broken.yaml"), "w") as file:
        file.write("kind: PortMap\nmetadata: {name: [\n")
    cluster.public()
    cluster.expose("web", ["a1"], "tcp", 3000)
    cluster.sees_client("tcp", EDGE, 3000, "a1")
    assert re.search(r"broken\.yaml:\d+:\d+", cluster.lab.agent("edge-a").log())


@files
def test_a_bad_file_stops_nothing_where_nothing_runs_yet(world):
    with open(os.path.join(world.source.directory, "broken.yaml"), "w") as file:
        file.write("kind: PortMap\nmetadata: {name: [\n")
    world.start_agents()
    world.public()
    world.expose("web", ["a1"], "tcp", 3000)
    world.sees_client("tcp", EDGE, 3000, "a1")


@files
def test_an_agent_that_starts_with_a_bad_file_takes_nothing_away(cluster):
    cluster.public()
    cluster.expose("web", ["a1"], "tcp", 3000)
    path = cluster.objects.path("Service", "web", NAMESPACE)
    with open(path) as file:
        good = file.read()
    agent = cluster.lab.agent("edge-a")
    agent.stop()
    agent.clear_log()
    with open(path, "w") as file:
        file.write(good + "\n---\nfoo: [\n")
    agent.restart()
    agent.wait_log(os.path.basename(path))

    def ready():
        return cluster.lab.node("edge-a").run("curl", "-s", "127.0.0.1:10266/readyz",
                                              check=False).stdout
    wait_until(lambda: re.search(re.escape(os.path.basename(path)) + r":\d+:\d+", ready()), 5,
               "/readyz to name the file")
    cluster.sees_client("tcp", EDGE, 3000, "a1")
    with open(path, "w") as file:
        file.write(good)
    wait_until(lambda: "ok" in ready(), 5, "the agent to be ready")
    cluster.sees_client("tcp", EDGE, 3000, "a1")


@files
def test_a_file_written_in_pieces_is_taken_when_it_is_whole(cluster):
    cluster.public()
    cluster.service("web", ["a1"], [("main", "TCP", 8080)])
    cluster.portmap("web", "tcp", 3000)
    path = mapping_file(cluster, "web")
    with open(path) as file:
        text = file.read()
    cluster.programmed("web")
    changed = text.replace("port: 3000", "port: 3000\n  interfaces: [enp1s0]")
    with open(path, "w") as file:
        for start in range(0, len(changed), 20):
            file.write(changed[start:start + 20])
            file.flush()
            cluster.lab.probe("tcp", EDGE, 3000)    # gives the agent time to read the part
    cluster.programmed("web")
    cluster.sees_client("tcp", EDGE, 3000, "a1")


def test_a_deleted_object_is_gone(cluster):
    cluster.public()
    cluster.expose("web", ["a1"], "tcp", 3000)
    cluster.objects.delete("PortMap", "web", NAMESPACE)
    cluster.wait_error("tcp", EDGE, 3000, "refused")


@files
def test_several_documents_and_unknown_kinds_in_one_file(cluster):
    cluster.public()
    cluster.service("web", ["a1"], [("main", "TCP", 8080)])
    cluster.portmap("web", "tcp", 3000)
    path = mapping_file(cluster, "web")
    with open(path) as file:
        mapping = file.read()
    everything = ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: games}\n"
                  "data: {a: b}\n---\n" + mapping + "---\n"
                  + mapping.replace("name: web", "name: web2", 1).replace("3000", "3100"))
    with open(path, "w") as file:
        file.write(everything)
    cluster.mappings["web2"] = {"className": "public", "protocol": "tcp", "port": 3100}
    cluster.programmed("web2")
    cluster.sees_client("tcp", EDGE, 3100, "a1")
    time.sleep(0.2)     # time to say it twice
    assert cluster.lab.agent("edge-a").log().count("ConfigMap") <= 1


def test_an_immutable_field_keeps_its_first_value(cluster):
    cluster.public()
    cluster.expose("web", ["a1"], "tcp", 3000)
    refused = pytest.raises(KubeError, match="port cannot change")
    with refused if isinstance(cluster.source, Kube) else contextlib.nullcontext():
        cluster.portmap("web", "tcp", 3100)
    cluster.expose("other", ["a2"], "tcp", 3200)
    cluster.sees_client("tcp", EDGE, 3000, "a1")
    assert cluster.lab.probe("tcp", EDGE, 3100).error == "refused"


@pytest.mark.folder_only("in an API server a status is a part of its object")
def test_a_status_file_goes_with_its_object(cluster):
    cluster.public()
    cluster.expose("web", ["a1"], "tcp", 3000)
    cluster.objects.delete("PortMap", "web", NAMESPACE)
    cluster.wait_error("tcp", EDGE, 3000, "refused")
    path = cluster.status.path("portmaps", "web", NAMESPACE)
    wait_until(lambda: not os.path.exists(path), 5, f"{path} to go")
