"""What the service proxy says of itself over HTTP, on IPVS.

Test names begin with the number of the behaviour in the service proxy's specification. That a change
which waits for a minute makes it unhealthy is the nftables mode's test; the same code counts.
"""

import json

import pytest

from proxy_world import FLAGS, LOOPBACK, NODE_A, SECOND
from test_serviceproxy_health import (  # noqa: F401
    _in_url,
    health,
    health_checked,
    metrics,
    test_row_41_health_check_node_port,
    test_row_41_it_listens_on_every_address_and_ends_with_the_service,
    test_row_41_on_the_node_port_addresses_alone_when_they_are_said,
    test_row_42_a_node_that_leaves_is_not_eligible,
    test_row_42_healthz,
    test_row_43_livez,
    total,
    wait_count,
)


def test_row_41_the_port_is_let_in(proxy, family):
    """Where a Service's address is bound, too: a load balancer asks there."""
    svc = health_checked(proxy, "a1")
    wait_count(proxy, family, 1)
    assert "32100" in proxy.kernel().elements("HEALTH-CHECK-NODE-PORT", family)
    assert wait_count(proxy, family, 1, address=svc.external(family))[0] == 200


def test_row_41_on_the_node_addresses_alone_when_they_are_said(proxy, family):
    proxy.restart(*FLAGS, "--node-address", f"{SECOND[4]},{SECOND[6]}")
    health_checked(proxy, "a1")
    assert wait_count(proxy, family, 1, address=SECOND[family])[0] == 200
    with pytest.raises(ConnectionRefusedError):
        health(proxy, family)


def test_row_44_diagnostics_on_loopback(proxy):
    answer = proxy.fetch("127.0.0.1", 10249, "/proxyMode")
    assert (answer.status, answer.text) == (200, "ipvs")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert proxy.fetch("127.0.0.1", 10249, "/healthz").text == "ok"
    config = json.loads(proxy.fetch("127.0.0.1", 10249, "/configz").text)
    config = config["kubeproxy.config.k8s.io"]
    assert (config["mode"], config["nodePortAddresses"]) == ("ipvs", [])
    assert config["ipvs"] == {"scheduler": "rr", "excludeCIDRs": [], "strictARP": False}


def test_row_44_addresses_of_the_servers_can_be_said(proxy, family):
    proxy.restart(*FLAGS, "--healthz-bind-address", f"{_in_url(NODE_A[family])}:20256",
                  "--metrics-bind-address", f"{_in_url(LOOPBACK[family])}:20249")
    assert proxy.fetch(NODE_A[family], 20256, "/healthz", source="client").status == 200
    assert proxy.fetch(LOOPBACK[family], 20249, "/proxyMode").text == "ipvs"


def test_row_44_metrics_move(proxy):
    before = metrics(proxy)
    proxy.service("a1")
    after = metrics(proxy)
    for name in ("kubeproxy_sync_proxy_rules_duration_seconds_count",
                 "kubeproxy_sync_proxy_rules_service_changes_total",
                 "kubeproxy_sync_proxy_rules_endpoint_changes_total"):
        assert total(after, name) > total(before, name), name
