"""Endpoints come and go under fire; the two features share one node."""

import bisect
import os
import random
import time

import pytest

from lab import wait_until
from lab.hammer import Hammer
from lab.services import NAMESPACE
from lab.witness import witness
from proxy_world import CLIENT, NODE_A, POD_RANGES, PROTOCOLS
from world import has_table

pytestmark = pytest.mark.folder_only("the objects mean the same wherever they come from")

EVENTS = int(os.environ.get("PORTOLAN_SCALE_EVENTS", "1000"))
PORT = 30080
PODS = ("a1", "a2", "a3", "b1", "b2")


def next_pods(chance, pods):
    """The pods after a grow, a shrink or a replacement of one."""
    absent = [pod for pod in PODS if pod not in pods]
    ways = [way for way, possible in (("grow", absent), ("shrink", len(pods) > 1),
                                      ("replace", absent)) if possible]
    way, pods = chance.choice(ways), list(pods)
    if way in ("shrink", "replace"):
        pods.remove(chance.choice(pods))
    if way in ("grow", "replace"):
        pods.insert(chance.randrange(len(pods) + 1), chance.choice(absent))
    return pods


def scale(proxy, svc, events, seed):
    """[(written, applied, pods)]: between the two moments both these and those before may serve."""
    chance = random.Random(seed)
    pods = ["a1", "b1"]
    history = [(0.0, 0.0, pods)]
    for _ in range(events):
        pods = next_pods(chance, pods)
        written = time.monotonic()
        proxy.endpoints(svc, *pods)
        history.append((written, time.monotonic(), pods))
    return history


def allowed(history, connect):
    """Whether the pod was an endpoint at some moment of the connection."""
    written = [entry[0] for entry in history]
    last = bisect.bisect_right(written, connect.ended) - 1
    for at in range(last, -1, -1):
        if connect.pod in history[at][2]:
            return True
        if history[at][1] < connect.began:      # all before were replaced by then
            return False
    return False


@pytest.mark.parametrize("kind", ["plain", "affinity", "external-local"])
def test_scaling_under_fire(proxy, kind, record_property):
    """None reaches a removed endpoint, none passes untranslated, none is refused."""
    options = {"plain": {}, "affinity": {"sessionAffinity": "ClientIP"},
               "external-local": {"externalTrafficPolicy": "Local"}}[kind]
    events = EVENTS if kind == "plain" else EVENTS // 5
    svc = proxy.service("a1", "b1", node_port=PORT, **options)
    lab = proxy.lab
    first = "tcp flags & (fin | syn | rst | ack) == syn"
    with witness(proxy.host, "postrouting", 300, left4=f"ip daddr 10.96.0.0/16 {first}",
                 left6=f"ip6 daddr fd00:10:96::/112 {first}") as untranslated:
        # From outside with policy Local there may be nobody to serve: inside there always is.
        outside = lab.client.ns if kind != "external-local" else lab.pod("a2").ns
        hammers = [hammer for family in (4, 6) for hammer in (
            Hammer(lab.pod("a3").ns, svc.ip(family), 80, pause=0.002),
            Hammer(outside, NODE_A[family], PORT, pause=0.002),
            Hammer(proxy.host.ns, svc.ip(family), 80, pause=0.01))]
        history = scale(proxy, svc, events, seed=events)
        connects = [connect for hammer in hammers for connect in hammer.stop()]
        left = untranslated.counts()
    failed = [connect for connect in connects if connect.error]
    astray = [connect for connect in connects if not connect.error
              and not allowed(history, connect)]
    again = sum(1 for connect in connects if connect.again)
    seconds = history[-1][1] - history[1][0]
    text = (f"{kind}: {events} events in {seconds:.1f} s, {len(connects)} connections, "
            f"{again} first packets sent again")
    record_property("scaling", text)
    print(text)
    assert len(connects) > events
    assert not failed, (text, left, failed[:10])
    assert not astray, (text, [(c, [h for h in history if h[0] <= c.ended][-3:])
                               for c in astray[:5]])
    assert left == {"left4": 0, "left6": 0}, (text, left)
    assert again <= len(connects) / 200, text


# PortMaps beside it

@pytest.fixture
def both(proxy):
    """Both features on node-a; a class whose mappings answer on its outer interface."""
    proxy.restart("--features", "portmap,serviceproxy", "--cluster-cidr", POD_RANGES)
    proxy.objects.portmapclass("public", {"node-a": ["enp1s0"]})
    proxy.mappings = []
    yield proxy
    for name in proxy.mappings:
        proxy.objects.delete("PortMap", name, NAMESPACE)
    proxy.objects.delete("PortMapClass", "public")


def mapping(proxy, pod, proto, port):
    """A PortMap of the port to the pod; returns its name."""
    svc = proxy.service(pod, ports=((proto, proto.upper(), 80, 8080),), settle=False)
    proxy.objects.portmap(NAMESPACE, svc.name, "public", proto.upper(), port, svc.name, proto)
    proxy.mappings.append(svc.name)
    return svc.name


def unmap(proxy, name):
    proxy.mappings.remove(name)
    proxy.objects.delete("PortMap", name, NAMESPACE)


@pytest.mark.parametrize("proto", PROTOCOLS)
def test_a_portmap_wins_over_a_node_port(both, family, proto):
    proxy = both
    svc = proxy.service("a2", node_port=PORT)
    mapped = mapping(proxy, "a1", proto, PORT)
    proxy.wait_served("client", proto, NODE_A[family], PORT, "a1")
    proxy.served("client", proto, NODE_A[family], PORT, "a1", CLIENT[family])
    # It is the mapping's on its interface alone, and for its protocol alone.
    proxy.served("a3", proto, NODE_A[family], PORT, "a2")
    other = {"tcp": "udp", "udp": "tcp"}[proto]
    proxy.served("client", other, NODE_A[family], PORT, "a2", proxy.addresses())
    proxy.served("a3", proto, svc.ip(family), 80, "a2")
    wait_until(lambda: [line for line in proxy.agent.log().splitlines()
                        if f"object=apps/{svc.name} " in line and str(PORT) in line
                        and f"PortMap apps/{mapped} " in line],
               5, lambda: f"the log to say who wins:\n{proxy.agent.log()[-3000:]}")
    unmap(proxy, mapped)
    proxy.wait_served("client", proto, NODE_A[family], PORT, "a2")


def test_the_features_do_not_touch_each_other(both, family):
    """One table; streams through a mapping and a Service while the other is changed."""
    proxy = both
    mapped = mapping(proxy, "a1", "tcp", 3000)
    svc = proxy.service("a2", node_port=PORT)
    proxy.wait_served("client", "tcp", NODE_A[family], 3000, "a1")
    tables = [line for line in proxy.host.out("nft", "list", "tables").splitlines()
              if "portolan" in line]
    assert tables == ["table inet portolan"] and has_table(proxy.host)
    streams = [proxy.lab.stream("tcp", NODE_A[family], port, push=True).wait_answer()
               for port in (3000, PORT)]
    for pods in (["a3"], ["a2", "b1"], ["a2"]):
        proxy.endpoints(svc, *pods)
        proxy.served("client", "tcp", NODE_A[family], 3000, "a1", CLIENT[family])
        proxy.served("client", "tcp", NODE_A[family], PORT, pods, proxy.addresses())
    unmap(proxy, mapped)
    proxy.settle()
    wait_until(lambda: proxy.dial("client", "tcp", NODE_A[family], 3000).error == "refused", 5,
               "the mapping to be gone")
    proxy.served("client", "tcp", NODE_A[family], PORT, "a2")
    reports = [stream.stop() for stream in streams]
    assert all(report.nothing_lost for report in reports), reports


def test_a_feature_that_is_switched_off_leaves_nothing(both):
    proxy = both
    mapping(proxy, "a1", "tcp", 3000)
    proxy.service("a2", node_port=PORT)
    proxy.wait_served("client", "tcp", NODE_A[4], 3000, "a1")
    proxy.restart("--features", "serviceproxy", "--cluster-cidr", POD_RANGES)
    proxy.served("client", "tcp", NODE_A[4], PORT, "a2")
    assert proxy.dial("client", "tcp", NODE_A[4], 3000).error == "refused"
    assert "steer" not in proxy.host.out("nft", "list", "chains", "inet")
