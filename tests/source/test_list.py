"""Reading a faulty API server once: paging, limits, TLS, credentials. By `portolan get`."""

import gzip
import json
import os
import resource
import subprocess

import pytest
from faulty_server import Server, status
from kube_help import BIN, SANITIZED, Certificates, b64, kubeconfig, portmap, run


@pytest.fixture
def server():
    with Server() as s:
        yield s


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def get(folder, url, *words, cluster=None, user=None, **kwargs):
    config = kubeconfig(folder / "kubeconfig", url, cluster, user)
    return run("get", "portmaps", "-A", "-o", "json", "--kubeconfig", config, *words, **kwargs)


def names(done):
    assert done.returncode == 0, done.stderr
    return sorted(o["metadata"]["name"] for o in json.loads(done.stdout)["items"])


def fails(done, *says):
    assert done.returncode == 1
    assert all(s in done.stderr for s in says), done.stderr


# ---- lists ----


def test_all_pages_are_read_over_one_connection(server, tmp_path):
    for i in range(1203):
        server.put(portmap(f"m{i}", 1000 + i))
    assert len(names(get(tmp_path, server.url))) == 1203
    asked = server.asked("LIST portmaps")
    assert [r["query"].get("continue", "")[-4:] for r in asked] == ["", "/500", "1000"]
    assert all(r["query"]["limit"] == "500" for r in asked)
    assert server.connections == 1


def test_an_expired_continue_token_begins_again(server, tmp_path):
    for i in range(600):
        server.put(portmap(f"m{i}", 1000 + i))

    def expire(r):
        if "continue" not in r.query:
            return False
        server.forget()
        return False
    server.fault("LIST portmaps", expire, times=2)
    done = get(tmp_path, server.url)
    fails(done, "410", "too old")  # a command reads once ...
    server.faults.clear()
    assert len(names(get(tmp_path, server.url))) == 600


def test_only_the_kind_asked_for_is_read(server, tmp_path):
    get(tmp_path, server.url)
    assert {r["key"] for r in server.requests} == {"LIST portmaps"}


def test_one_bad_object_is_told_and_costs_nothing_else(server, tmp_path):
    server.put(portmap("good"))
    server.put(portmap("wrong-type", port="http"))
    server.put(portmap("beyond", port=70000))
    done = get(tmp_path, server.url)
    assert done.returncode == 1  # an object could not be read
    assert [o["metadata"]["name"] for o in json.loads(done.stdout)["items"]] == ["good"]
    assert "games/wrong-type: spec.port is \"http\"" in done.stderr
    assert "games/beyond: spec.port is 70000" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_key_given_twice_costs_that_object_only(server, tmp_path):
    good, twice = portmap("good"), json.dumps(portmap("twice"))
    twice = twice.replace('"port": 3000', '"port": 3000, "port": 3001')
    text = f'{{"items": [{twice}, {json.dumps(good)}], "metadata": {{"resourceVersion": "7"}}}}'
    server.fault("LIST portmaps", lambda r: r.bytes(200, text.encode()))
    done = get(tmp_path, server.url)
    assert "games/twice: spec.port is given twice" in done.stderr
    assert [o["metadata"]["name"] for o in json.loads(done.stdout)["items"]] == ["good"]


def test_a_huge_object_is_passed_over(server, tmp_path):
    huge = portmap("huge")
    huge["zzz"] = "x" * (5 << 20)
    deep = portmap("deep")
    for _ in range(80):
        deep = {**portmap("deep"), "zzz": {"zzz": deep.get("zzz")}}
    body = {"items": [huge, deep, portmap("good")], "metadata": {"resourceVersion": "7"}}
    server.fault("LIST portmaps", lambda r: r.json(200, body))
    done = get(tmp_path, server.url)
    assert "PortMap games/huge is larger than 4 MiB" in done.stderr
    assert "PortMap games/deep" in done.stderr
    assert [o["metadata"]["name"] for o in json.loads(done.stdout)["items"]] == ["good"]


@pytest.mark.parametrize("body, says", [
    (b'{"items": [{"metadata": {"name": "a"', "not JSON"),
    (b"<html>busy</html>", "not JSON"),
    (b'{"kind": "PortMapList", "items": []}', "no resourceVersion"),
    (b"", "not JSON"),
])
def test_an_answer_that_is_no_list_is_refused(server, tmp_path, body, says):
    server.fault("LIST portmaps", lambda r: r.bytes(200, body))
    fails(get(tmp_path, server.url), says)


def test_null_items_are_an_empty_list(server, tmp_path):
    server.fault("LIST portmaps", lambda r: r.json(
        200, {"metadata": {"resourceVersion": "7"}, "items": None}))
    assert names(get(tmp_path, server.url)) == []


def test_a_connection_reset_in_a_chunk_is_an_error(server, tmp_path):
    def act(r):
        r.begin()
        r.wfile.write(b'1000\r\n{"items": [')
        r.wfile.flush()
        r.reset()
    server.fault("LIST portmaps", act)
    done = get(tmp_path, server.url)
    fails(done)
    assert len(done.stderr.splitlines()) == 1 and server.url in done.stderr


def test_slow_bytes_arrive(server, tmp_path):
    server.put(portmap("web"))
    whole = json.dumps({"items": [portmap("web")], "metadata": {"resourceVersion": "7"}}).encode()

    def act(r):
        r.begin()
        for i in range(len(whole)):
            r.chunk(whole[i:i + 1])
        r.end()
    server.fault("LIST portmaps", act)
    assert names(get(tmp_path, server.url)) == ["web"]


def test_gzip_is_accepted(server, tmp_path):
    whole = json.dumps({"items": [portmap("web")], "metadata": {"resourceVersion": "7"}}).encode()
    server.fault("LIST portmaps", lambda r: r.bytes(200, gzip.compress(whole),
                                                    [("Content-Encoding", "gzip")]))
    assert names(get(tmp_path, server.url)) == ["web"]
    assert "gzip" in server.asked("LIST portmaps")[0]["headers"]["Accept-Encoding"]


@pytest.mark.parametrize("start, filling, says", [
    (b'{"items": [{"a": "', b"x", "a value larger than 8 MiB"),
    (b'{"items": [', b" ", "a value larger than 8 MiB"),
    (b'{"zzz": [0', b",0", "larger than 4 MiB or 400000 values"),
    (b'{"items": [{"metadata": {"name": "a"}, "zzz": [0', b",0", "the answer is too large"),
])
def test_a_gzip_bomb_ends_at_a_limit(server, tmp_path, start, filling, says):
    bomb = gzip.compress(start + filling * ((260 << 20) // len(filling)), compresslevel=1)
    server.fault("LIST portmaps", lambda r: r.bytes(200, bomb, [("Content-Encoding", "gzip")]))
    config = kubeconfig(tmp_path / "kubeconfig", server.url)
    # The bomb is 260 MiB or more.
    limit = None if SANITIZED else lambda: resource.setrlimit(resource.RLIMIT_AS, (200 << 20,) * 2)
    fails(run("get", "portmaps", "-A", "--kubeconfig", config, preexec_fn=limit), says)


def test_endless_headers_end_at_the_limit(server, tmp_path):
    server.fault("LIST portmaps", lambda r: r.json(
        200, {}, [(f"X-{i}", "y" * 1000) for i in range(90)]))
    fails(get(tmp_path, server.url), "headers are too long")


def test_a_redirect_is_not_followed(server, tmp_path):
    with Server() as other:
        def act(r):
            r.send_response(302)
            r.send_header("Location", other.url + "/elsewhere")
            r.send_header("Content-Length", "0")
            r.end_headers()
        server.fault("LIST portmaps", act)
        fails(get(tmp_path, server.url, user={"token": "secret"}), "302", "not followed")
        assert other.requests == []


def test_the_servers_words_are_passed_on(server, tmp_path):
    server.fault("LIST portmaps", lambda r: r.json(
        403, status(403, "Forbidden", 'portmaps is forbidden: User "x" cannot list')))
    fails(get(tmp_path, server.url), "403", 'User "x" cannot list')


def test_a_busy_server_is_asked_again_when_it_says(server, tmp_path):
    server.put(portmap("web"))
    server.fault("LIST portmaps", lambda r: r.status(429, "TooManyRequests", retry_after=2))
    server.fault("LIST portmaps", lambda r: r.status(503, "ServiceUnavailable"))
    assert names(get(tmp_path, server.url)) == ["web"]
    first, second, third = [r["time"] for r in server.asked("LIST portmaps")]
    assert 2.0 <= second - first < 4 and 0.2 < third - second < 3


def test_a_server_that_is_away_fails_with_one_line(tmp_path):
    with Server() as gone:
        pass
    done = get(tmp_path, gone.url)
    fails(done, gone.url)
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_crd_is_named(server, tmp_path):
    server.installed = False
    fails(get(tmp_path, server.url), "CustomResourceDefinition", "portmaps")


# ---- TLS ----


def test_tls_by_file_and_by_data(certificates, tmp_path):
    with Server(tls=certificates.server()) as s:
        s.put(portmap("web"))
        for cluster in ({"certificate-authority": certificates.ca},
                        {"certificate-authority-data": b64(certificates.ca)},
                        {"insecure-skip-tls-verify": True}):
            assert names(get(tmp_path, s.url, cluster=cluster)) == ["web"]


def test_relative_files_start_at_the_kubeconfig(certificates, tmp_path):
    (tmp_path / "my-ca.crt").write_bytes(open(certificates.ca, "rb").read())
    with Server(tls=certificates.server()) as s:
        assert names(get(tmp_path, s.url, cluster={"certificate-authority": "my-ca.crt"})) == []


@pytest.mark.parametrize("content", ["one\ntwo", "one\r\nX-Admin: yes", "one two", "o\0ne"])
def test_a_file_that_holds_more_than_a_token_is_refused(server, tmp_path, content):
    (tmp_path / "token").write_text(content)
    done = get(tmp_path, server.url, user={"tokenFile": "token"})
    fails(done, str(tmp_path / "token"), "give one token and nothing else")
    assert server.requests == []


def test_a_tokens_file_may_end_with_a_line(server, tmp_path):
    (tmp_path / "token").write_text("secret\r\n\n")
    assert names(get(tmp_path, server.url, user={"tokenFile": "token"})) == []
    assert server.requests[0]["headers"]["Authorization"] == "Bearer secret"


def test_an_unknown_ca_is_refused(certificates, tmp_path):
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other")
    with Server(tls=certificates.server()) as s:
        fails(get(tmp_path, s.url, cluster={"certificate-authority": other.ca}), "certificate")
        done = get(tmp_path, s.url)
        fails(done, "certificate")
        assert not any(line != line.rstrip() for line in done.stderr.splitlines())
        assert s.requests == []


def test_the_systems_cas_are_not_trusted_beside_the_one_given(certificates, tmp_path):
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other")
    for data in ({"certificate-authority": other.ca},
                 {"certificate-authority-data": b64(other.ca)}):
        with Server(tls=certificates.server()) as s:
            trusted = os.environ | {"SSL_CERT_FILE": certificates.ca}
            fails(get(tmp_path, s.url, cluster=data, env=trusted), "certificate")


def test_a_certificate_of_another_name_is_refused(certificates, tmp_path):
    with Server(tls=certificates.server("DNS:kubernetes")) as s:
        ca = {"certificate-authority": certificates.ca}
        fails(get(tmp_path, s.url, cluster=ca), "127.0.0.1")
        assert s.requests == []
        assert names(get(tmp_path, s.url, cluster=ca | {"tls-server-name": "kubernetes"})) == []
        assert s.requests[0]["headers"]["Host"] == f"127.0.0.1:{s.port}"


def test_client_certificates_by_file_and_by_data(certificates, tmp_path):
    cert, key = certificates.make("someone", "extendedKeyUsage=clientAuth")
    with Server(tls=certificates.server(client_required=True)) as s:
        ca = {"certificate-authority": certificates.ca}
        for user in ({"client-certificate": cert, "client-key": key},
                     {"client-certificate-data": b64(cert), "client-key-data": b64(key)}):
            assert names(get(tmp_path, s.url, cluster=ca, user=user)) == []
        fails(get(tmp_path, s.url, cluster=ca))


# ---- who we are ----


def test_tokens(server, tmp_path):
    server.tokens = ["right"]
    (tmp_path / "token").write_text("right\n")
    assert names(get(tmp_path, server.url, user={"token": "right"})) == []
    assert names(get(tmp_path, server.url, user={"tokenFile": "token", "token": "old"})) == []
    fails(get(tmp_path, server.url, user={"token": "wrong"}), "401")


@pytest.mark.parametrize("user, says", [
    ({"exec": {"command": "aws"}}, "user.exec"),
    ({"auth-provider": {"name": "gcp"}}, "user.auth-provider"),
    ({"username": "me", "password": "x"}, "user.username"),
    ({"as": "admin"}, "user.as"),
    ({"client-certificate": "/x"}, "go together"),
])
def test_what_is_not_supported_is_named(server, tmp_path, user, says):
    done = get(tmp_path, server.url, user=user)
    fails(done, says, "kubeconfig:1:")
    assert server.requests == []


def test_contexts(server, tmp_path):
    fails(get(tmp_path, server.url, "--context", "two"), 'no entry of contexts is called "two"')
    assert names(get(tmp_path, server.url, "--context", "one")) == []


def test_through_a_proxy(server, tmp_path):
    """The proxy sees the whole URL of a plain request; the server's host need not resolve."""
    config_url = "http://kubernetes.invalid:6443"
    done = get(tmp_path, config_url, cluster={"proxy-url": server.url})
    assert names(done) == []
    assert server.requests[0]["headers"]["Host"] == "kubernetes.invalid:6443"


def test_a_path_before_the_api(server, tmp_path):
    get(tmp_path, server.url + "/k8s/clusters/one/")
    assert server.requests[0]["path"].startswith("/k8s/clusters/one/apis/kuport.wlz.li/v1alpha1/")


ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"


def in_pod(folder, words, env):
    """Runs with a service account in place, in a mount namespace."""
    script = (f'mount -t tmpfs none /run && mkdir -p {ACCOUNT} && cp {folder}/token {folder}/ca.crt '
              f'{ACCOUNT} && exec "$@"')
    return subprocess.run(["unshare", "-m", "sh", "-ec", script, "sh", BIN, *words],
                          capture_output=True, text=True, timeout=60, env=os.environ | env)


def test_the_pods_service_account(certificates, tmp_path):
    (tmp_path / "token").write_text("right")
    (tmp_path / "ca.crt").write_bytes(open(certificates.ca, "rb").read())
    with Server(tls=certificates.server()) as s:
        s.tokens = ["right"]
        env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(s.port)}
        for source in ([], ["--source", "kube:"]):
            done = in_pod(tmp_path, ["get", "portmaps", "-A", "-o", "json", *source], env)
            assert names(done) == []


def test_outside_a_pod_a_kubeconfig_is_asked_for():
    env = {k: v for k, v in os.environ.items() if not k.startswith("KUBERNETES_")}
    done = run("get", "portmaps", "--source", "kube:", env=env)
    fails(done, "--kubeconfig")
