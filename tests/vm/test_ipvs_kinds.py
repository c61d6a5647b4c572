"""What makes a Service ours or not, and what an end leaves, on IPVS.

Test names begin with the number of the behaviour in the service proxy's specification.
"""

from ipvs_world import without_barrier
from test_serviceproxy_kinds import (  # noqa: F401
    exposed,
    test_row_45_service_proxy_name,
    test_row_46_external_name_and_back,
    test_row_46_headless_by_label,
    test_row_48_a_normal_end_leaves_the_rules,
)


def test_row_46_headless_has_nothing(proxy):
    svc = proxy.service("a1", clusterIP="None", clusterIPs=["None"])
    assert without_barrier(proxy.kernel().servers) == {}
    assert not [line for line in proxy.agent.log().splitlines() if svc.name in line]


def test_row_48_what_is_ours_is_no_leftover_of_kube_proxy(proxy, exposed):
    """Under the same names; so `cleanup --kube-proxy` has nothing to take beside an agent, and a
    start nothing to warn of."""
    proxy.agent.clear_log()
    proxy.restart(*proxy.flags)
    assert "leftovers" not in proxy.agent.log()
    before = proxy.table()
    proxy.host.run(proxy.binary, "cleanup", "--kube-proxy", "--state-dir", proxy.agent.state_dir,
                   check=False)
    assert proxy.table() == before
    proxy.served("client", "tcp", exposed.external(), 80, "a1")
