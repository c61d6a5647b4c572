"""An agent with the service proxy, in a network namespace of its own, as it is seen over HTTP."""

import datetime
import json
import re

import pytest

from host import BIN, NODE, TAINTED, endpoints, needs_root, service, within

pytestmark = needs_root


@pytest.fixture
def proxy(host):
    return host.start("--features", "serviceproxy").ready()


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_row_42_healthz(proxy, address):
    status, headers, body = proxy.get(f"http://{address}:10256/healthz")
    answer = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert answer.keys() == {"lastUpdated", "currentTime", "nodeEligible"}
    assert answer["nodeEligible"] is True
    assert answer["lastUpdated"] == answer["currentTime"]
    assert proxy.get(f"http://{address}:10256/other")[0] == 404


@pytest.mark.parametrize("gone", [
    [TAINTED],
    [NODE | {"metadata": {"name": "edge-a", "deletionTimestamp": "2026-01-02T03:04:05Z"}}],
    [NODE | {"metadata": {"name": "edge-b"}}],
], ids=["tainted", "going", "gone"])
def test_rows_42_and_43_a_node_that_goes(proxy, gone):
    proxy.put("node", *gone)
    status, _, body = within(5, lambda: (a := proxy.get("http://127.0.0.1:10256/healthz"))[0] == 503
                             and a, "still healthy")
    assert json.loads(body)["nodeEligible"] is False
    assert proxy.get("http://127.0.0.1:10256/livez")[0] == 200
    proxy.put("node", NODE)
    within(5, lambda: proxy.get("http://127.0.0.1:10256/healthz")[0] == 200, "not healthy again")


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_row_43_livez(proxy, address):
    status, headers, body = proxy.get(f"http://{address}:10256/livez")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body).keys() == {"lastUpdated", "currentTime"}


@pytest.mark.parametrize("address", ["127.0.0.1:10249", "[::1]:10249"])
def test_row_44_what_kube_proxy_answers(host, address):
    host.start("--features", "serviceproxy", "--metrics-bind-address", address,
               "--cluster-cidr", "10.244.0.0/16").ready()
    status, headers, body = host.get(f"http://{address}/proxyMode")
    assert (status, body) == (200, "nftables")
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert host.get(f"http://{address}/healthz")[2] == "ok"
    config = json.loads(host.get(f"http://{address}/configz")[2])["kubeproxy.config.k8s.io"]
    assert (config["mode"], config["clusterCIDR"]) == ("nftables", "10.244.0.0/16")
    assert host.get(f"http://{address}/metrics")[0] == 200
    assert host.get(f"http://{address}/debug")[0] == 404


def test_metrics_are_text_a_prometheus_reads(proxy):
    text = proxy.get("http://127.0.0.1:10249/metrics")[2]
    name = help_of = kind = None
    seen, samples = set(), set()
    for line in text.splitlines():
        if match := re.fullmatch(r"# HELP (\S+) (\S.*)", line):
            help_of = match[1]
            assert help_of not in seen
            seen.add(help_of)
        elif match := re.fullmatch(r"# TYPE (\S+) (counter|gauge|histogram)", line):
            name, kind = match.groups()
            assert name == help_of
            if kind == "histogram":
                last = -1
        else:
            match = re.fullmatch(r'([a-z_]+)((?:\{[a-z_]+="[^"\\]*"\})?) (\d+(?:\.\d+)?)', line)
            assert match, line
            ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert match[1] in [name + end for end in ends], line
            assert (match[1], match[2]) not in samples
            samples.add((match[1], match[2]))
            if match[1].endswith("_bucket"):
                assert float(match[3]) >= last
                last = float(match[3])
    assert {"kubeproxy_sync_proxy_rules_duration_seconds", "portolan_passes_total",
            "kubeproxy_network_programming_duration_seconds",
            "kubeproxy_sync_proxy_rules_endpoint_changes_total"} <= seen


def test_health_is_counted(proxy):
    for _ in range(3):
        proxy.get("http://127.0.0.1:10256/healthz")
    text = proxy.get("http://127.0.0.1:10249/metrics")[2]
    assert 'kubeproxy_proxy_healthz_total{code="200"} 3\n' in text
    assert text.split("kubeproxy_sync_proxy_rules_duration_seconds_count ")[1][0] != "0"


def test_without_the_feature_nothing_of_it_listens(host):
    host.start().ready()
    assert "kubeproxy_" not in host.get("http://127.0.0.1:10266/metrics")[2]
    assert host.run("ss", "-Htln").stdout.split()[3:4] == ["127.0.0.1:10266"]
    assert len(host.run("ss", "-Htln").stdout.splitlines()) == 1


def test_none_listens_nowhere(host):
    host.start("--features", "serviceproxy", "--healthz-bind-address", "none",
               "--metrics-bind-address", "none").ready()
    assert len(host.run("ss", "-Htln").stdout.splitlines()) == 1


def test_an_address_that_is_taken_is_named(host):
    with host.server("", 10249):
        done = host.run(*host.arguments("--features", "serviceproxy"), check=False)
    assert done.returncode == 1
    assert "portolan: --metrics-bind-address 127.0.0.1:10249: Address already in use" in done.stderr


def test_dry_run_prints_and_applies_nothing(host):
    done = host.run(*host.arguments("--features", "serviceproxy", "--dry-run"))
    assert done.stdout.startswith("+ table inet portolan\n")
    assert host.run("nft", "list", "ruleset").stdout == ""


def listening(host, port):
    """The addresses something listens on."""
    lines = host.run("ss", "-Htln", "sport", "=", f":{port}").stdout.splitlines()
    return {line.split()[3].removesuffix(f":{port}") for line in lines}


def test_row_41_health_check_node_port(proxy):
    proxy.put("web", service("web", 32000), endpoints("web", "edge-a", "edge-b", "edge-a"))
    for address in ("127.0.0.1", "[::1]"):
        url = f"http://{address}:32000/any/path"
        status, headers, body = within(
            5, lambda: (a := proxy.get(url))[0] and a, "nobody listens")    # noqa: B023
        assert status == 200
        assert headers["x-load-balancing-endpoint-weight"] == "2"
        assert headers["content-type"] == "application/json"
        assert json.loads(body) == {"service": {"namespace": "games", "name": "web"},
                                    "localEndpoints": 2, "serviceProxyHealthy": True}
    proxy.put("web", service("web", 32000), endpoints("web", "edge-b"))
    status, headers, body = within(5, lambda: (a := proxy.get("http://127.0.0.1:32000/"))[0] == 503
                                   and a, "still 200")
    assert headers["x-load-balancing-endpoint-weight"] == "0"
    assert json.loads(body)["localEndpoints"] == 0
    proxy.put("web", service("web", 32001), endpoints("web", "edge-b"))
    within(5, lambda: (listening(proxy, 32000), listening(proxy, 32001)) == (set(), {"*"}),
           "the port did not move")
    proxy.put("web")
    within(5, lambda: not listening(proxy, 32001), "the port stayed open")


@pytest.mark.parametrize("chosen, where", [
    ("primary", {"192.0.2.10", "[2001:db8::10]"}),
    ("192.0.2.0/24,2001:db8::/64", {"192.0.2.10", "192.0.2.11", "[2001:db8::10]"}),
    ("198.51.100.0/24", set()),
    ("127.0.0.0/8", set()),
])
def test_row_41_on_chosen_addresses(host, chosen, where):
    host.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "peer0")
    for address in ("192.0.2.10/24", "192.0.2.11/24", "2001:db8::10/64"):
        host.run("ip", "addr", "add", address, "dev", "eth0", "nodad")
    host.run("ip", "link", "set", "eth0", "up")
    host.run("ip", "link", "set", "peer0", "up")
    host.put("web", service("web", 32000), endpoints("web", "edge-a"))
    host.start("--features", "serviceproxy", "--nodeport-addresses", chosen)
    within(5, lambda: "event=applied" in host.log.read_text(), "no pass")
    within(5, lambda: listening(host, 32000) == where, "other addresses")


def test_row_41_a_port_that_is_taken_is_named_and_tried_again(proxy):
    with proxy.server("", 32000):
        proxy.put("web", service("web", 32000), endpoints("web", "edge-a"))
        why = "health check of service games/web: [::]:32000: Address already in use"
        within(5, lambda: why in proxy.log.read_text(), "not said")
        status, _, body = proxy.get("http://127.0.0.1:10266/readyz")
        assert status == 503 and why in body
    within(10, lambda: listening(proxy, 32000) == {"*"}, "not tried again")
    within(5, lambda: re.search(f"event=cleared was=.*{re.escape(why)}", proxy.log.read_text()),
           "not said to be over")
    proxy.ready()


def test_row_41_many_ports_need_no_higher_limit_of_files(host):
    host.put("web", *(service(f"web{i}", 32000 + i, clusterIP=f"10.96.1.{i}",
                              clusterIPs=[f"10.96.1.{i}"],
                              ports=[{"protocol": "TCP", "port": 80, "nodePort": 30000 + i}])
                      for i in range(1, 101)))
    host.start("--features", "serviceproxy", limit=100)
    within(10, lambda: "event=applied" in host.log.read_text(), "no pass")
    lines = host.run("ss", "-Htln").stdout.splitlines()
    assert len([line for line in lines if re.search(r":32\d\d\d ", line)]) == 100


def sample(host, name):
    text = host.get("http://127.0.0.1:10249/metrics")[2]
    return float(re.search(rf"^{re.escape(name)} (.*)$", text, re.M)[1])


def test_programming_is_measured_from_what_caused_it(proxy):
    name = "kubeproxy_network_programming_duration_seconds_count"
    key = "endpoints.kubernetes.io/last-change-trigger-time"
    proxy.put("web", service("web", 32000), endpoints("web", "edge-a"))
    within(5, lambda: listening(proxy, 32000), "no pass")
    assert sample(proxy, name) == 0         # no cause is named
    old = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    proxy.put("web", service("web", 32000),
              endpoints("web", "edge-a", "edge-a", annotations={key: old.isoformat()}))
    within(5, lambda: proxy.get("http://127.0.0.1:32000/")[1].get(
        "x-load-balancing-endpoint-weight") == "2", "no pass")
    assert sample(proxy, name) == 0         # before we ran
    now = datetime.datetime.now(datetime.timezone.utc)
    proxy.put("web", service("web", 32000),
              endpoints("web", "edge-a", annotations={key: now.isoformat()}))
    within(5, lambda: sample(proxy, name) == 1, "not measured")
    assert sample(proxy, "kubeproxy_sync_proxy_rules_endpoint_changes_total") >= 3
    assert sample(proxy, "kubeproxy_sync_proxy_rules_endpoint_changes_pending") == 0


def test_config_sync_period_plans_everything_anew(host):
    host.start("--features", "serviceproxy", "--config-sync-period", "1s").ready()
    name = "kubeproxy_sync_full_proxy_rules_duration_seconds_count"
    before = sample(host, name)
    within(5, lambda: sample(host, name) >= before + 2, "nothing was planned")


def test_plan_diff_and_dry_run_take_the_options(host):
    host.put("web", service("web", 32000), endpoints("web", "edge-a", "edge-b"))
    options = ["--node", "edge-a", "--source", f"dir:{host.folder}", "--features", "serviceproxy",
               "--masquerade-all", "--masquerade-bit", "15", "--detect-local-mode", "ClusterCIDR",
               "--cluster-cidr", "10.244.0.0/16"]
    plan = host.run(BIN, "plan", *options).stdout
    assert "meta mark & 0x00008000 == 0x00008000" in plan
    assert "health-check 32000 games/web 1 local\n" in plan
    whole = json.loads(host.run(BIN, "plan", *options, "-o", "json").stdout)
    assert "0x00008000" in whole["ruleset"]
    diff = host.run(BIN, "diff", *options).stdout
    for element in ("service4 { 10.96.0.10 . tcp . 80 : goto pick4-2-always }",
                    "service4 { 192.0.2.10 . tcp . 30080 : goto pick4-1-all2 }",
                    "podrange4 { 10.244.0.0-10.244.255.255 }"):
        assert element in plan and f"+ element inet portolan {element}\n" in diff
    assert host.run(BIN, "agent", *options, "--dry-run").stdout == diff
    assert host.run("nft", "list", "ruleset").stdout == ""
    other = host.run(BIN, "plan", "--node", "edge-a", "--source", f"dir:{host.folder}").stdout
    assert "service4" not in other and "health-check" not in other


@pytest.mark.parametrize("address, cidr", [("192.0.2.10", "192.0.2.0/24"),
                                           ("2001:db8::10", "2001:db8::/64")])
@pytest.mark.parametrize("cause", ["cluster IP", "ServiceCIDR"])
def test_no_object_shuts_the_nodes_own_ports(host, address, cidr, cause):
    """Whoever mistypes a range must still reach the node to mend it."""
    host.run("ip", "address", "add", address, "dev", "lo")
    host.put("mistake", {
        "ServiceCIDR": {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
                        "metadata": {"name": "wide"}, "spec": {"cidrs": [cidr]}},
        "cluster IP": service("own", 32000, clusterIP=address, clusterIPs=[address]),
    }[cause])
    host.start("--features", "serviceproxy").ready()
    table = host.run("nft", "list", "table", "inet", "portolan").stdout
    assert address.removesuffix("10") in table
    at = f"[{address}]" if ":" in address else address
    assert host.get(f"http://{at}:10256/livez")[0] == 200
