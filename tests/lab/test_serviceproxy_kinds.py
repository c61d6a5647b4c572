"""What makes a Service ours or not, and what a start and an end take along; by both sources.

Test names begin with the number of the behaviour in the service proxy's specification.
"""

import re

import pytest

from lab import wait_until
from lab.services import NAMESPACE
from proxy_world import BARRIER, NODE_A, PROTOCOLS

PORT = 30080


def gone(proxy, svc, family):
    """Nobody answers for the Service, on any address; nothing of it is in the kernel."""
    proxy.settle()
    for address, port in ((svc.ip(family), 80), (svc.external(family), 80)):
        found = proxy.dial("client", "tcp", address, port, timeout=0.2)
        assert not found.answered, found
    proxy.refused("client", "tcp", NODE_A[family], PORT)
    held = proxy.table()
    assert svc.ip(family) not in held and svc.external(family) not in held


def back(proxy, svc, family, pod="a1"):
    proxy.settle()
    for address, port in ((svc.ip(family), 80), (svc.external(family), 80),
                          (NODE_A[family], PORT)):
        for proto in PROTOCOLS:
            proxy.served("client", proto, address, port, pod)


@pytest.fixture
def exposed(proxy):
    return proxy.service("a1", node_port=PORT, external=True)


@pytest.mark.parametrize("value", ["foreign-proxy", ""])
def test_row_45_service_proxy_name(proxy, exposed, family, value):
    back(proxy, exposed, family)
    for _ in range(2):
        exposed.labels = {"service.kubernetes.io/service-proxy-name": value}
        exposed.put()
        gone(proxy, exposed, family)
        exposed.labels = None
        exposed.put()
        back(proxy, exposed, family)


def test_row_46_headless_by_label(proxy, exposed, family):
    exposed.labels = {"service.kubernetes.io/headless": ""}
    exposed.put()
    gone(proxy, exposed, family)
    exposed.labels = None
    exposed.put()
    back(proxy, exposed, family)


def test_row_46_external_name_and_back(proxy, exposed, family):
    """The slices stay; it has no address they could serve."""
    proxy.objects.put("v1", "Service", exposed.name, {
        "spec": {"type": "ExternalName", "externalName": "example.org"}}, NAMESPACE)
    gone(proxy, exposed, family)
    exposed.put()
    back(proxy, exposed, family)


def test_row_46_headless_has_no_rules(proxy, family):
    svc = proxy.service("a1", clusterIP="None", clusterIPs=["None"])
    assert proxy.lab.pod("a1").address(family) not in [
        word for element in proxy.elements(f"endpoint{family}") for word in element
        if element[0] != BARRIER]
    assert not re.search(rf"\b{svc.name}\b", proxy.agent.log())


# What kube-proxy left

def kube_proxy_tables(proxy):
    """What kube-proxy's modes leave on a node, beside rules of others in the same chains."""
    host = proxy.host
    for command in ("iptables-nft", "ip6tables-nft"):
        for line in ("-t nat -N KUBE-SERVICES", "-t nat -N KUBE-SEP-ABCDEFGHIJKLMNOP",
                     "-t nat -A KUBE-SERVICES -j KUBE-SEP-ABCDEFGHIJKLMNOP",
                     "-t nat -N KUBE-POSTROUTING", "-t nat -N OURS",
                     "-t nat -A OURS -j RETURN", "-t nat -A PREROUTING -j OURS"):
            host.run(command, "-w", *line.split())
        for chain in ("PREROUTING", "OUTPUT"):
            host.run(command, "-w", "-t", "nat", "-A", chain, "-m", "comment", "--comment",
                     "kubernetes service portals", "-j", "KUBE-SERVICES")
        host.run(command, "-w", "-t", "nat", "-A", "POSTROUTING", "-m", "comment", "--comment",
                 "kubernetes postrouting rules", "-j", "KUBE-POSTROUTING")
        for line in ("-N KUBE-FORWARD", "-N OURS", "-A OURS -j RETURN", "-A FORWARD -j OURS",
                     "-A FORWARD -j KUBE-FORWARD"):
            host.run(command, "-w", *line.split())
    for family in ("ip", "ip6"):
        host.nft(f"add table {family} kube-proxy\n"
                 f"add chain {family} kube-proxy services\n"
                 f"add table {family} not-kube-proxy\n")


def kube_proxy_left(proxy):
    """(what of kube-proxy's is there, what of others)"""
    lines = [line.strip() for line in proxy.host.out("nft", "-s", "list", "ruleset").splitlines()]
    return ([line for line in lines if "KUBE-" in line or " kube-proxy" in line],
            [line for line in lines if "OURS" in line or "not-kube" in line])


@pytest.fixture
def kube_proxy_was_here(proxy):
    kube_proxy_tables(proxy)
    yield kube_proxy_left(proxy)
    for family in ("ip", "ip6"):
        for table in ("nat", "filter", "kube-proxy", "not-kube-proxy"):
            proxy.host.run("nft", "delete", "table", family, table, check=False)


def test_row_48_leftovers_of_kube_proxy_go_only_when_asked(proxy, kube_proxy_was_here, family):
    """A start leaves them, `cleanup --kube-proxy` takes them and nothing else."""
    theirs, others = kube_proxy_was_here
    assert theirs and others
    svc = proxy.service("a1")
    proxy.restart(*proxy.flags)
    assert kube_proxy_left(proxy) == (theirs, others)
    before = proxy.table()
    done = proxy.host.run(proxy.binary, "cleanup", "--kube-proxy")
    assert done.returncode == 0, done
    assert kube_proxy_left(proxy) == ([], others)
    assert proxy.table() == before
    proxy.served("a2", "tcp", svc.ip(family), 80, "a1")
    again = proxy.host.run(proxy.binary, "cleanup", "--kube-proxy")
    assert again.returncode == 0 and kube_proxy_left(proxy) == ([], others)


@pytest.fixture
def mode_ipvs_was_here(proxy):
    """What the mode ipvs leaves where the kernel has no IPVS; kube-ipvs0 is a bridge here."""
    host = proxy.host
    host.run("ip", "link", "add", "kube-ipvs0", "type", "bridge")
    host.run("ip", "link", "set", "kube-ipvs0", "alias", "portolan: addresses of services")
    host.run("ip", "addr", "add", "10.96.200.1/32", "dev", "kube-ipvs0")
    for name in ("KUBE-CLUSTER-IP", "KUBE-DROP", "KUBE-OURS"):
        host.run("ipset", "create", name, "hash:ip,port")
    for command in ("iptables-nft", "ip6tables-nft"):
        for line in ("-N KUBE-SERVICES", "-N KUBE-SVC-OTHER", "-A PREROUTING -j KUBE-SERVICES"):
            host.run(command, "-w", "-t", "nat", *line.split())
    host.run("iptables-nft", "-w", "-t", "nat", "-A", "KUBE-SERVICES", "-m", "set", "--match-set",
             "KUBE-CLUSTER-IP", "dst,dst", "-j", "RETURN")
    yield
    for family in ("ip", "ip6"):
        host.run("nft", "delete", "table", family, "nat", check=False)
    host.run("ip", "link", "del", "kube-ipvs0", check=False)
    for name in ("KUBE-CLUSTER-IP", "KUBE-DROP", "KUBE-OURS"):
        host.run("ipset", "destroy", name, check=False)


def test_row_48_what_the_mode_ipvs_left_goes_when_the_table_stands(proxy, mode_ipvs_was_here,
                                                                   family):
    """And nothing but that; without the alias it would be kube-proxy's."""
    svc = proxy.service("a1")
    proxy.agent.clear_log()
    proxy.restart(*proxy.flags)
    wait_until(lambda: "event=mode_changed" in proxy.agent.log(), 5, "the agent to tell of it")
    assert proxy.host.run("ip", "link", "show", "kube-ipvs0", check=False).returncode
    proxy.served("a2", "tcp", svc.ip(family), 80, "a1")
    assert proxy.host.out("ipset", "list", "-n").split() == ["KUBE-OURS"]
    ruleset = proxy.host.out("nft", "list", "ruleset")
    assert "KUBE-SERVICES" not in ruleset and "chain KUBE-SVC-OTHER" in ruleset


def test_row_48_it_refuses_to_run_beside_a_live_kube_proxy(proxy):
    """One that answers on kube-proxy's own port."""
    assert proxy.agent.stop() == 0
    server = ("import http.server\n"
              "class H(http.server.BaseHTTPRequestHandler):\n"
              "    def do_GET(self):\n"
              "        self.send_response(200)\n"
              "        self.end_headers()\n"
              "        self.wfile.write(b'iptables')\n"
              "http.server.HTTPServer(('127.0.0.1', 10249), H).serve_forever()\n")
    proxy.lab.processes.start("kube-proxy", ["/usr/bin/python3", "-c", server],
                              ns=proxy.host.ns)
    try:
        wait_until(lambda: answers(proxy, 10249), 5, "the other to serve")
        done = proxy.host.run(proxy.binary, *proxy.agent.command[proxy.agent.command.index("agent"):],
                              check=False)
        assert done.returncode not in (0, None)
        assert "kube-proxy" in done.stderr and "10249" in done.stderr, done.stderr
    finally:
        proxy.lab.processes.stop("kube-proxy")


def answers(proxy, port):
    try:
        return proxy.fetch("127.0.0.1", port, "/proxyMode").status == 200
    except OSError:
        return False


def test_row_48_a_normal_end_leaves_the_rules(proxy, family):
    svc = proxy.service("a1", node_port=PORT)
    before = proxy.table()
    assert proxy.agent.stop() == 0
    assert proxy.table() == before
    for proto in PROTOCOLS:
        proxy.served("a2", proto, svc.ip(family), 80, "a1")
        proxy.served("client", proto, NODE_A[family], PORT, "a1")
