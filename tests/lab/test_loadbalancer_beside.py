"""Held addresses with PortMaps and the service proxy on the same nodes. With both overlays."""

import pytest

from lab import wait_until
from lb_world import CLIENT, HELD, PROTOCOLS, rules_of
from lab.services import NAMESPACE

PUBLIC = "public"
HOLDER_RULE = (104, "0x6c000000/0xff000000", "131180")     # edge-a's name hashes to 107


@pytest.fixture
def with_portmaps(lb):
    """PortMaps of node a to pods of its own and of node c, over a return link, with Services beside."""
    lb.restart("--features", "portmap,loadbalancer", "--overlay", lb.mode.overlay)
    lb.objects.portmapclass(PUBLIC, {lb.a: ["enp1s0"]})
    for pod, port in (("a1", 3100), ("c1", 3110)):
        for proto in PROTOCOLS:
            name = f"{pod}-{proto}"
            lb.objects.service(NAMESPACE, name, [("main", proto.upper(), 8080)])
            lb.objects.endpoints(NAMESPACE, name, [lb.lab.pod(pod)], [("main", proto.upper(), 8080)])
            lb.objects.portmap(NAMESPACE, name, PUBLIC, proto.upper(), port, name, "main")
    yield lb
    for pod in ("a1", "c1"):
        for proto in PROTOCOLS:
            name = f"{pod}-{proto}"
            lb.objects.delete("PortMap", name, NAMESPACE)
            lb.objects.delete("Service", name, NAMESPACE)
            lb.objects.delete("EndpointSlice", f"{name}-ipv4", NAMESPACE)
    lb.objects.delete("PortMapClass", PUBLIC)


def both_serve(lb, svc):
    for proto in PROTOCOLS:
        for pod, port in (("a1", 3100), ("c1", 3110)):
            lb.wait_served("client", proto, HELD, port, pod)
            lb.served("client", proto, HELD, port, pod, CLIENT)
        lb.served("client", proto, HELD, svc.port, "c1", CLIENT)


def test_portmaps_and_held_addresses_on_one_node(with_portmaps):
    """One client port at once to the same pod both ways: each answer from where it was asked."""
    lb = with_portmaps
    svc = lb.service("c1")
    both_serve(lb, svc)
    for proto in PROTOCOLS:
        for port in (3110, svc.port):
            lb.served("client", proto, HELD, port, "c1", CLIENT, source_port=40002)
    streams = [lb.lab.stream(proto, HELD, port, push=True).wait_answer()
               for proto in PROTOCOLS for port in (3110, svc.port)]
    later = lb.service("b1")
    lb.delete(later)
    lb.settle()
    assert all(stream.stop().nothing_lost for stream in streams)


def test_their_marks_are_not_mistaken(with_portmaps):
    """PortMaps' marks begin with 0x6b: 107, which edge-a's name hashes to and does not get."""
    lb = with_portmaps
    both_serve(lb, lb.service("c1"))
    found = rules_of(lb.node("c"))
    assert HOLDER_RULE in found, found
    portmaps = [mark for _, mark, _ in found if mark.startswith("0x6b7")]
    assert portmaps and not [mark for _, mark, _ in found if mark.startswith("0x6b000000/")], found


def test_a_portmap_and_a_service_of_one_port(with_portmaps):
    """The PortMap has it; when it goes the Service does."""
    lb = with_portmaps
    svc = lb.service("b1")
    lb.objects.service(NAMESPACE, "same", [("main", "TCP", 8080)])
    lb.objects.endpoints(NAMESPACE, "same", [lb.lab.pod("a2")], [("main", "TCP", 8080)])
    lb.objects.portmap(NAMESPACE, "same", PUBLIC, "TCP", svc.port, "same", "main")
    try:
        lb.wait_served("client", "tcp", HELD, svc.port, "a2")
        lb.served("client", "udp", HELD, svc.port, "b1", CLIENT)
    finally:
        lb.objects.delete("PortMap", "same", NAMESPACE)
    lb.wait_served("client", "tcp", HELD, svc.port, "b1")
    lb.objects.delete("Service", "same", NAMESPACE)
    lb.objects.delete("EndpointSlice", "same-ipv4", NAMESPACE)


@pytest.fixture
def with_proxy(lb):
    lb.restart("--features", "loadbalancer,serviceproxy", "--overlay", lb.mode.overlay,
               "--cluster-cidr", lb.mode.pod_range)
    return lb


@pytest.mark.parametrize("pod", ["a1", "b1", "c1"])
def test_with_the_service_proxy_the_holder_alone_has_the_address(with_proxy, pod):
    """Nothing for it on other nodes; the cluster IP of the same Service works where its pod is routed."""
    lb = with_proxy
    svc = lb.service(pod)
    wait_until(lambda: lb.ingress(svc) == [{"ip": HELD, "ipMode": "Proxy"}], 5, "the status")
    for proto in PROTOCOLS:
        lb.served("client", proto, HELD, svc.port, pod, CLIENT)
        for source in {"a1": ("a2", lb.a), "b1": ("b2", lb.b), "c1": (lb.c,)}[pod]:
            lb.wait_served(source, proto, svc.ip(), svc.port, pod)
    assert lb.serves("a", svc)
    assert not lb.serves("b", svc) and not lb.serves("c", svc)


def test_with_the_service_proxy_other_balancers_addresses_are_the_proxys(with_proxy):
    lb = with_proxy
    mine, other = lb.service("b1"), lb.service("a1", address=None, loadBalancerClass=None)
    other.ingress = [{"ip": "198.18.0.77"}]
    lb.lead(lb.a, "198.18.0.77")
    other.put()
    lb.settle()
    for proto in PROTOCOLS:
        lb.served("client", proto, HELD, mine.port, "b1", CLIENT)
        lb.wait_served("client", proto, "198.18.0.77", other.port, "a1")


def test_the_service_proxy_comes_and_goes_under_streams(lb):
    """The same flow is planned for by one feature or the other: what stands is taken over."""
    svc = lb.service("b1")
    streams = [lb.lab.stream(proto, HELD, svc.port, push=True).wait_answer() for proto in PROTOCOLS]
    lb.restart("--features", "loadbalancer,serviceproxy", "--overlay", lb.mode.overlay,
               "--cluster-cidr", lb.mode.pod_range)
    lb.restart(*lb.mode.flags)
    assert all(stream.stop().nothing_lost for stream in streams)
