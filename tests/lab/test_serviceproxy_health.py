"""What the service proxy says of itself over HTTP.

Test names begin with the number of the behaviour in the service proxy's specification.
"""

import contextlib
import datetime
import http.client
import json
import subprocess
import time

import pytest

from lab import wait_until
from proxy_world import FLAGS, LOOPBACK, NODE_A, SECOND

pytestmark = pytest.mark.folder_only("the objects mean the same wherever they come from")

HEALTH_PORT = 32100


def health(proxy, family, path="/", port=HEALTH_PORT, address=None):
    """(status, JSON, headers) as the outside client gets them."""
    answer = proxy.fetch(address or NODE_A[family], port, path, source="client")
    return answer.status, json.loads(answer.text), answer.headers


def wait_count(proxy, family, count, seconds=5, **where):
    """The port's answer once there is one that counts so many."""
    def counts():
        try:
            found = health(proxy, family, **where)
        except (OSError, http.client.HTTPException):    # nobody yet, or somebody else
            return None
        return found if found[1]["localEndpoints"] == count else None
    return wait_until(counts, seconds, f"{count} endpoints to be counted: {where}")


def health_checked(proxy, *pods, port=HEALTH_PORT):
    return proxy.service(*pods, lb=True, externalTrafficPolicy="Local", healthCheckNodePort=port)


def test_row_41_health_check_node_port(proxy, family):
    svc = health_checked(proxy, "a1", "a2", "b1", ("a3", {"conditions": {"ready": False}}))
    for path in ("/", "/healthz", "/any?thing"):
        status, body, headers = wait_count(proxy, family, 2, path=path)
        assert status == 200
        assert body == {"service": {"namespace": "apps", "name": svc.name}, "localEndpoints": 2,
                        "serviceProxyHealthy": True}
        assert headers["x-load-balancing-endpoint-weight"] == "2"
        assert headers["content-type"].startswith("application/json")
        assert headers["x-content-type-options"] == "nosniff"
    proxy.endpoints(svc, "b1")
    status, body, headers = wait_count(proxy, family, 0)
    assert (status, headers["x-load-balancing-endpoint-weight"]) == (503, "0")
    assert body["serviceProxyHealthy"] is True
    terminating = {"conditions": {"ready": False, "serving": True, "terminating": True}}
    proxy.endpoints(svc, ("a1", terminating))       # serves, but asks for nobody new
    assert wait_count(proxy, family, 0)[0] == 503
    proxy.endpoints(svc, "a1")
    assert wait_count(proxy, family, 1)[0] == 200


def test_row_41_it_listens_on_every_address_and_ends_with_the_service(proxy, family):
    svc = health_checked(proxy, "a1")
    for address in (NODE_A, SECOND):
        assert wait_count(proxy, family, 1, address=address[family])[0] == 200
    svc.put(healthCheckNodePort=HEALTH_PORT + 1)
    wait_until(lambda: nobody_listens(proxy, family), 5, "the old port to be closed")
    assert wait_count(proxy, family, 1, port=HEALTH_PORT + 1)[0] == 200
    svc.delete()
    wait_until(lambda: nobody_listens(proxy, family, HEALTH_PORT + 1), 5, "the port to be closed")


def nobody_listens(proxy, family, port=HEALTH_PORT):
    try:
        health(proxy, family, port=port)
    except ConnectionRefusedError:
        return True
    except ConnectionError:     # closed while it was asked
        pass
    return False


def test_row_41_on_the_node_port_addresses_alone_when_they_are_said(proxy, family):
    proxy.restart(*FLAGS, "--nodeport-addresses", "192.0.2.0/24,2001:db8:2::/64")
    health_checked(proxy, "a1")
    assert wait_count(proxy, family, 1, address=SECOND[family])[0] == 200
    with pytest.raises(ConnectionRefusedError):
        health(proxy, family)


def test_row_41_a_port_that_is_taken_is_tried_again(proxy, family):
    port = HEALTH_PORT + family     # a port that the test before has left may be open for a moment
    with proxy.serving("taken", "node-a", port):
        health_checked(proxy, "a1", port=port)
        with pytest.raises(TimeoutError):
            wait_count(proxy, family, 1, seconds=0.3, port=port)
    assert wait_count(proxy, family, 1, seconds=10, port=port)[0] == 200


def own_health(proxy, path="/healthz", address="127.0.0.1"):
    answer = proxy.fetch(address, 10256, path)
    return answer.status, json.loads(answer.text)


def test_row_42_healthz(proxy, family):
    status, body = own_health(proxy, address=NODE_A[family])
    assert status == 200 and body["nodeEligible"] is True, body
    assert set(body) == {"lastUpdated", "currentTime", "nodeEligible"}
    updated, now = (datetime.datetime.fromisoformat(body[key].split(".")[0].rstrip("Z"))
                    for key in ("lastUpdated", "currentTime"))
    assert abs(now - updated) < datetime.timedelta(hours=1)


@pytest.mark.parametrize("how", ["tainted", "deleted", "gone"])
def test_row_42_a_node_that_leaves_is_not_eligible(proxy, how):
    """No new traffic may be sent to it; it serves what comes, and says in /livez that it lives."""
    svc = proxy.service("a1")
    try:
        if how == "tainted":
            proxy.node("node-a", taints=[{"key": "ToBeDeletedByClusterAutoscaler", "value": "1",
                                          "effect": "NoSchedule"}])
        elif how == "deleted":
            proxy.delete_later("Node", "node-a")
        else:
            proxy.objects.delete("Node", "node-a")
        wait_until(lambda: own_health(proxy)[0] == 503, 5, lambda: f"503: {own_health(proxy)}")
        assert own_health(proxy)[1]["nodeEligible"] is False
        assert own_health(proxy, "/livez")[0] == 200
        proxy.served("a2", "tcp", svc.ip(), 80, "a1")
    finally:
        proxy.node("node-a")
    wait_until(lambda: own_health(proxy)[0] == 200, 5, "the node to be eligible again")


@contextlib.contextmanager
def kernel_refuses(proxy):
    """Another process owns a table of our name: whatever we send is refused."""
    child = subprocess.Popen(["ip", "netns", "exec", proxy.host.ns, "nft", "-i"],
                             stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                             stderr=subprocess.STDOUT, text=True)
    try:
        child.stdin.write("delete table inet portolan; "
                          "add table inet portolan { flags owner; }\n")
        child.stdin.flush()
        wait_until(lambda: "owner" in proxy.host.run(
            "nft", "list", "table", "inet", "portolan", check=False).stdout, 5,
            "another to own the table")
        yield
    finally:
        child.stdin.close()
        child.wait(5)


def test_row_42_and_row_43_unhealthy_while_a_change_waits(proxy):
    """For longer than twice 30 s, which is kube-proxy's patience."""
    svc = proxy.service("a1")
    assert {own_health(proxy, path)[0] for path in ("/healthz", "/livez")} == {200}
    with kernel_refuses(proxy):
        began = time.monotonic()
        svc.put(externalIPs=[svc.external()])
        wait_until(lambda: own_health(proxy)[0] == 503, 75, lambda: f"503: {own_health(proxy)}",
                   interval=0.2)
        assert time.monotonic() - began > 55
        status, body = own_health(proxy, "/livez")
        assert status == 503 and body["lastUpdated"] < body["currentTime"], body
        assert own_health(proxy)[1]["nodeEligible"] is True
    for path in ("/healthz", "/livez"):
        wait_until(lambda: own_health(proxy, path)[0] == 200, 35,
                   lambda: f"200: {own_health(proxy, path)}")
    proxy.served("client", "tcp", svc.external(), 80, "a1")


def test_row_43_livez(proxy):
    status, body = own_health(proxy, "/livez")
    assert status == 200
    assert set(body) == {"lastUpdated", "currentTime"}


def test_row_44_diagnostics_on_loopback(proxy):
    def get(path):
        answer = proxy.fetch("127.0.0.1", 10249, path)
        assert answer.status == 200, (path, answer)
        return answer

    mode = get("/proxyMode")
    assert mode.text == "nftables"
    assert mode.headers["content-type"] == "text/plain; charset=utf-8"
    assert mode.headers["x-content-type-options"] == "nosniff"
    assert get("/healthz").text == "ok"
    assert json.loads(get("/configz").text)["kubeproxy.config.k8s.io"]["mode"] == "nftables"
    with pytest.raises(ConnectionRefusedError):
        proxy.fetch(NODE_A[4], 10249, "/proxyMode", source="client")


def metrics(proxy):
    """{name with labels: value}"""
    text = proxy.fetch("127.0.0.1", 10249, "/metrics").text
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in text.splitlines() if line and not line.startswith("#")}


def total(values, name):
    return sum(value for key, value in values.items() if key.split("{")[0] == name)


def test_row_44_metrics_move(proxy):
    before = metrics(proxy)
    proxy.service("a1")
    own_health(proxy)
    after = metrics(proxy)
    for name in ("kubeproxy_sync_proxy_rules_duration_seconds_count",
                 "kubeproxy_sync_proxy_rules_service_changes_total",
                 "kubeproxy_sync_proxy_rules_endpoint_changes_total",
                 "kubeproxy_proxy_healthz_total"):
        assert total(after, name) > total(before, name), name
    assert total(after, "kubeproxy_sync_proxy_rules_last_timestamp_seconds") > 1.7e9
    name = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"
    assert total(after, name) == total(before, name)


def test_row_44_addresses_of_the_servers_can_be_said(proxy, family):
    proxy.restart(*FLAGS, "--healthz-bind-address", f"{_in_url(NODE_A[family])}:20256",
                  "--metrics-bind-address", f"{_in_url(LOOPBACK[family])}:20249")
    assert proxy.fetch(NODE_A[family], 20256, "/healthz", source="client").status == 200
    assert proxy.fetch(LOOPBACK[family], 20249, "/proxyMode").text == "nftables"
    for port in (10256, 10249):
        with pytest.raises(ConnectionRefusedError):
            proxy.fetch("127.0.0.1", port, "/healthz")


def _in_url(address):
    return f"[{address}]" if ":" in address else address
