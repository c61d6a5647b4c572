"""The pod behind a mapping changes."""

import itertools
import time

import pytest

from lab import probe, promptly, seconds_until
from world import CLIENT, EDGE, elements

PROMPT = 0.1        # seconds from the change of the file to the last answer of the old pod


@pytest.fixture
def mapped(cluster):
    """tcp and udp 3000 on edge-a; call with the pods they lead to."""
    cluster.public()

    def expose(*pods):
        for proto in ("tcp", "udp"):
            cluster.expose(proto, pods, proto, 3000)
        return cluster
    return expose


def seconds_stale(cluster, proto, pod):
    """Dials without pause until 20 in a row were answered by the pod; returns when the last that was
    not began, from now, and all answers."""
    answers = []

    def there():
        # A first packet that is lost is sent again after a second.
        found = cluster.lab.probe(proto, EDGE, 3000, timeout=0.9)
        answers.append(found.pod or found.error)
        return found.pod == pod
    stale = seconds_until(there, lambda: f"{pod} to answer: {answers}")
    return stale, answers + [cluster.sees_client(proto, EDGE, 3000, pod).pod for _ in range(19)]


@pytest.mark.parametrize("proto", ["tcp", "udp"])
@pytest.mark.parametrize("old, new", [("a1", "a2"), ("b1", "b2")], ids=["same-node", "over-a-link"])
def test_new_connections_go_to_the_new_pod_within_100_ms(mapped, proto, old, new):
    cluster = mapped(old)
    cluster.sees_client(proto, EDGE, 3000, old)
    pods = itertools.cycle((new, old))

    def one():
        pod = next(pods)
        cluster.move(proto, [pod], proto)
        stale, answers = seconds_stale(cluster, proto, pod)
        assert set(answers) <= {old, new}, f"a connection was lost during the move: {answers}"
        return stale
    promptly(PROMPT, one)


@pytest.mark.parametrize("proto", ["tcp", "udp"])
@pytest.mark.parametrize("old, new", [("a1", "b1"), ("b1", "a1"), ("b1", "c1")])
def test_a_pod_may_move_to_another_node(mapped, proto, old, new):
    cluster = mapped(old)
    cluster.move(proto, [new], proto)
    cluster.wait_answer(proto, EDGE, 3000, new)
    cluster.sees_client(proto, EDGE, 3000, new)


@pytest.mark.parametrize("old, new", [("a1", "a2"), ("b1", "b2"), ("a1", "b1"), ("b1", "a1")])
def test_a_udp_client_with_one_socket_follows_with_its_next_packet(mapped, old, new):
    cluster = mapped(old)
    with probe.open_socket(cluster.lab.client.ns, "udp", EDGE, source_port=40001) as sock:
        sock.settimeout(5)

        def ask():
            sock.sendto(b"hello", (EDGE, 3000))
            return sock.recv(2000).split()[:2]

        assert ask() == [f"pod={old}".encode(), f"peer={CLIENT}".encode()]
        cluster.move("udp", [new], "udp")
        cluster.wait_answer("udp", EDGE, 3000, new)
        time.sleep(PROMPT)      # the client is silent for a while
        assert ask() == [f"pod={new}".encode(), f"peer={CLIENT}".encode()]


@pytest.mark.parametrize("old, new", [("a1", "a2"), ("b1", "b2")])
def test_a_busy_udp_client_follows_within_100_ms(mapped, old, new):
    """It never pauses, so its conntrack entry would live for ever."""
    cluster = mapped(old)
    stream = cluster.lab.stream("udp", EDGE, 3000).wait_answer()
    pods, expected = itertools.cycle((new, old)), [old]

    def one():
        expected.append(next(pods))
        cluster.move("udp", expected[-1:], "udp")
        changed = time.monotonic()
        return stream.wait_change(len(expected)) - changed
    promptly(PROMPT + 0.02, one)
    report = stream.stop()
    assert report.pods == expected and report.longest_gap < 1, report


@pytest.mark.parametrize("old, new", [("a1", "a2"), ("b1", "b2"), ("a1", "b1"), ("b1", "a1")])
def test_a_tcp_stream_to_a_pod_that_still_runs_is_not_cut(mapped, old, new):
    cluster = mapped(old)
    stream = cluster.lab.stream("tcp", EDGE, 3000, push=True).wait_answer()
    cluster.move("tcp", [new], "tcp")
    cluster.wait_answer("tcp", EDGE, 3000, new)
    time.sleep(0.5)     # the stream has to live on for a while
    report = stream.stop()
    assert report.nothing_lost and report.pods == [old], report


def test_a_moved_pod_keeps_its_name_and_changes_its_address(mapped, lab):
    cluster = mapped("a2")
    try:
        lab.move_pod("a2", "worker-b")
        for proto in ("tcp", "udp"):
            cluster.move(proto, ["a2"], proto)
            cluster.wait_answer(proto, EDGE, 3000, "a2")
            cluster.sees_client(proto, EDGE, 3000, "a2")
    finally:
        lab.move_pod("a2", "edge-a")


def test_other_mappings_are_untouched_by_a_move(mapped, lab):
    cluster = mapped("a1")
    cluster.expose("other", ["a1"], "tcp", 3100)
    stream = lab.stream("tcp", EDGE, 3100, push=True).wait_answer()
    for pod in ["a2", "b1", "b2", "a1"] * 5:
        cluster.move("tcp", [pod], "tcp")
        cluster.wait_answer("tcp", EDGE, 3000, pod)
    assert stream.stop().nothing_lost
    assert len(elements(lab.node("edge-a"), "target4")) == 3
