"""Credentials that are replaced, end or are withdrawn while the agent runs, on a real API server."""

import os
from pathlib import Path

import pytest

from apiserver import wait_for
from kube_help import endpoint_slice, portmap, portmap_class
from manifests import NAMESPACE

SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
# A certificate's names for the agents' ServiceAccount: the role is bound to these alone.
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:portolan", "system:serviceaccounts"


@pytest.fixture
def world(cluster):
    cluster.nodes(["edge-a"])
    cluster.put(portmap_class("edge-a"))
    cluster.put(endpoint_slice("edge-a"))
    cluster.put(portmap("first"))
    return cluster


def replace(path, text):
    """In one step, as kubelet does."""
    Path(f"{path}.new").write_text(text)
    os.replace(f"{path}.new", path)


def bound_token(api, name):
    """A token that ends when the Secret of this name does."""
    api.call("POST", SECRETS, {"metadata": {"name": name}})
    return api.kubectl("create", "token", "portolan", "-n", NAMESPACE, "--bound-object-kind",
                       "Secret", "--bound-object-name", name).stdout.strip()


def withdraw(api, name, token):
    """Returns when the server knows that the token of bound_token() has ended."""
    api.call("DELETE", f"{SECRETS}/{name}")
    wait_for(lambda: api.call("GET", "/api/v1/nodes", token=token)[0] == 401,
             "token that is refused", 60)


def refusals(agent):
    """How many requests were answered 401."""
    return agent.metric(r'portolan_api_requests_total\{.*code="401"')


# ---- tokens ----


def test_a_token_that_was_withdrawn_gives_way_to_the_new_one(world):
    path, name = world.folder / "token", f"old-{os.getpid()}"
    old = bound_token(world.api, name)
    path.write_text(old)
    agent = world.agent("edge-a", world.config(tokenFile=str(path)))
    world.programmed("first")
    replace(path, world.token())
    withdraw(world.api, name, old)
    world.put(portmap("web", 4000))
    world.programmed("web", 10)
    assert refusals(agent), "the agent had read the new token before: nothing was tested"
    assert agent.ready()[0] == 200 and "level=error" not in agent.log(), agent.log()


def test_without_a_valid_token_the_kernel_stays_until_there_is_one(world):
    path, name = world.folder / "token", f"only-{os.getpid()}"
    token = bound_token(world.api, name)
    path.write_text(token)
    agent = world.agent("edge-a", world.config(tokenFile=str(path)))
    world.programmed("first")
    withdraw(world.api, name, token)
    world.put(portmap("web", 4000))
    world.until(lambda: refusals(agent) > 3, "refusals")
    assert "401" in agent.log()
    ruleset = agent.namespace.run("nft", "list", "ruleset")
    assert ruleset.count("10.244.0.7 . 8080") == 2  # its watches run on, its writes do not
    assert not world.conditions("web")
    replace(path, world.token())
    world.programmed("web", 40)


# ---- client certificates ----


def client_certificate(world, name, seconds=3600):
    """A kubeconfig user with a certificate and key of this name, made anew."""
    world.api.make_client_certificate(name, *ACCOUNT, seconds=seconds)
    return {"client-certificate": world.api.file(f"{name}.crt"),
            "client-key": world.api.file(f"{name}.key")}


def test_a_client_certificate_that_ended_gives_way_to_the_new_one(world):
    user = client_certificate(world, "agent", seconds=15)
    old = {"client-certificate": world.api.file("kept.crt"), "client-key": world.api.file("kept.key")}
    for key, path in user.items():
        Path(old[key]).write_text(Path(path).read_text())
    agent = world.agent("edge-a", world.config(**user))
    world.programmed("first")
    assert refusals(agent) == 0
    client_certificate(world, "agent")
    kept = world.api.write_kubeconfig("kept", **old)
    wait_for(lambda: "Unauthorized" in world.api.kubectl("get", "nodes", kubeconfig=kept,
                                                         check=False).stderr,
             "old certificate that is refused", 40)
    world.put(portmap("web", 4000))
    world.programmed("web", 10)
    refused = refusals(agent)
    assert refused, "the agent had read the new one before: nothing was tested"
    for i in range(20):  # none of these meets a connection that was made with the old one
        world.put(portmap(f"m{i}", 5000 + i))
    for i in range(20):
        world.programmed(f"m{i}")
    assert refusals(agent) == refused
    assert agent.ready()[0] == 200 and "level=error" not in agent.log(), agent.log()


# ---- the server's CA ----


@pytest.fixture
def other_ca(world):
    """Makes the server come back with a certificate of another CA; the admin trusts both."""
    api = world.api
    both = [Path(api.file(name)) for name in ("ca.crt", "other.crt")]
    first = both[0].read_text()

    def change():
        api.make_ca("other")
        both[0].write_text(first + both[1].read_text())
        api.make_server_certificate(ca="other")
        api.restart()
    yield change
    api.make_server_certificate()
    both[0].write_text(first)
    api.restart()


def test_a_ca_bundle_is_read_again(world, other_ca):
    bundle = world.folder / "ca.crt"
    first = Path(world.api.file("ca.crt")).read_text()
    bundle.write_text(first)
    agent = world.agent("edge-a", world.config(cluster={"certificate-authority": str(bundle)},
                                               token=world.token()))
    world.programmed("first")
    other_ca()
    world.until(lambda: agent.ready()[0] == 503 and "certificate" in agent.ready()[1],
                "agent that does not trust the server")
    replace(bundle, first + Path(world.api.file("other.crt")).read_text())
    world.put(portmap("web", 4000))
    world.programmed("web", 40)
    world.until(lambda: agent.ready()[0] == 200, "agent that is ready")
