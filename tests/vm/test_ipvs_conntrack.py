"""Connections that are there already, on IPVS: which follow a change, which must not.

Test names begin with the number of the behaviour in the service proxy's specification.
"""

import socket
import struct

import pytest

from lab import wait_until
from lab.probe import open_socket
from proxy_world import NODE_A
from test_serviceproxy_conntrack import (  # noqa: F401
    PORT,
    lasting,
    only_stale_udp_entries_are_deleted,
    test_row_33_udp_follows_when_its_endpoint_is_removed,
    test_row_33_udp_follows_when_its_endpoint_is_replaced,
    test_row_34_udp_is_served_once_there_is_an_endpoint,
    WAYS,
    test_row_35_a_change_while_the_agent_was_away,
    test_row_35_nothing_is_deleted_when_nothing_changes,
)


def addresses_of(svc, family):
    return {"cluster": (svc.ip(family), 80), "external": (svc.external(family), 80),
            "node": (NODE_A[family], PORT)}


def test_row_35_only_stale_udp_entries_are_deleted(proxy, lasting, family):  # noqa: F811
    """TCP's go with their connections of IPVS, which row 36 is about."""
    only_stale_udp_entries_are_deleted(proxy, family)


@pytest.mark.parametrize("way", list(WAYS))
def test_row_36_tcp_outlives_its_endpoint_but_not_its_service(proxy, family, way):
    svc = proxy.service("a1", node_port=PORT, external=True)
    source, kind = WAYS[way]
    address, port = addresses_of(svc, family)[kind]
    stream = proxy.lab.stream("tcp", address, port, source=source, push=True).wait_answer()
    proxy.endpoints(svc, "a2")
    proxy.served(source, "tcp", address, port, "a2")
    proxy.endpoints(svc)
    proxy.refused(source, "tcp", address, port)
    report = stream.stop()
    assert report.nothing_lost and report.pods == ["a1"], report
    proxy.endpoints(svc, "a1")
    sock, _ = dialled(proxy, source, address, port)
    with sock:
        svc.delete()
        proxy.settle()
        sock.settimeout(0.5)
        with pytest.raises(OSError):
            echoes(sock)


def dialled(proxy, source, address, port):
    """A connection that stands, and says hello."""
    sock = open_socket(proxy.place(source).ns, "tcp", address)
    sock.settimeout(3)
    sock.connect((address, port))
    pod = sock.recv(200).decode().split()[0].removeprefix("pod=")
    return sock, pod


def echoes(sock, text=b"still here"):
    sock.sendall(text)
    return sock.recv(100) == text


def dest(proxy, pod, family, port=8080):
    address = proxy.lab.pod(pod).address(family)
    return f"[{address}]:{port}" if family == 6 else f"{address}:{port}"


def test_row_52_a_removed_destination_with_connections_drains(proxy, family):
    """Weight 0 while a TCP connection stands; it comes back when the endpoint does."""
    svc = proxy.service("a1", "a2")
    address = svc.ip(family)
    connections = [dialled(proxy, "a3", address, 80) for _ in range(2)]
    assert {pod for _, pod in connections} == {"a1", "a2"}
    try:
        proxy.endpoints(svc, "a2")
        tcp, udp = (proxy.kernel().dests(proto, address, 80) for proto in ("tcp", "udp"))
        assert tcp == {dest(proxy, "a1", family): 0, dest(proxy, "a2", family): 1}
        assert udp == {dest(proxy, "a2", family): 1}
        assert all(echoes(sock) for sock, _ in connections)
        assert set(proxy.pods_of("a3", "tcp", address, 80, 6)) == {"a2"}
        proxy.endpoints(svc, "a1", "a2")
        assert proxy.kernel().dests("tcp", address, 80) == {
            dest(proxy, "a1", family): 1, dest(proxy, "a2", family): 1}
        assert set(proxy.pods_of("a3", "tcp", address, 80, 6)) == {"a1", "a2"}
        assert all(echoes(sock) for sock, _ in connections)
    finally:
        for sock, _ in connections:
            sock.close()


def test_row_52_without_connections_it_goes_at_once(proxy, family):
    svc = proxy.service("a1", "a2")
    proxy.endpoints(svc, "a2")
    for proto in ("tcp", "udp"):
        assert proxy.kernel().dests(proto, svc.ip(family), 80) == {dest(proxy, "a2", family): 1}


def test_row_52_a_drained_destination_goes_when_its_connections_have(proxy):
    """The agent looks again each minute; a start is a look too. What was reset is remembered by IPVS
    for ten seconds."""
    svc = proxy.service("a1", "a2")
    sock, pod = dialled(proxy, "a3", svc.ip(), 80)
    other = ({"a1", "a2"} - {pod}).pop()
    with sock:
        proxy.endpoints(svc, other)
        proxy.restart(*proxy.flags)     # what drains is known from the kernel
        assert proxy.kernel().dests("tcp", svc.ip(), 80) == {dest(proxy, pod, 4): 0,
                                                             dest(proxy, other, 4): 1}
        assert echoes(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        source = f"{proxy.lab.pod('a3').address(4)}:{sock.getsockname()[1]}"
    wait_until(lambda: source not in proxy.host.out("ipvsadm", "-Lnc"), 15,
               "IPVS to forget the connection", interval=0.2)
    proxy.restart(*proxy.flags)
    assert proxy.kernel().dests("tcp", svc.ip(), 80) == {dest(proxy, other, 4): 1}


def test_row_52_a_client_with_affinity_leaves_what_drains(proxy, family):
    """New connections of a remembered client go elsewhere, the old one stays."""
    svc = proxy.service("a1", "a2", sessionAffinity="ClientIP", node_port=PORT)
    sock, pod = dialled(proxy, "a3", NODE_A[family], PORT)
    other = ({"a1", "a2"} - {pod}).pop()
    with sock:
        proxy.endpoints(svc, other)
        assert set(proxy.pods_of("a3", "tcp", NODE_A[family], PORT, 4)) == {other}
        assert echoes(sock)
