"""The chart says what deploy/ says, takes its values, and never takes a CRD or a PortMap away."""

import itertools
import shutil

import pytest
import yaml

from manifests import CHART, DEPLOY, charted, classes_file, documents, kustomized
from objects import portmap, portmapclass

GROUP = "/apis/kuport.wlz.li/v1alpha1"
DIGEST = "sha256:" + "0123456789abcdef" * 4
OTHER_DIGEST = "sha256:" + "fedcba9876543210" * 4


def agent(made):
    return made["DaemonSet", "portolan"]["spec"]["template"]["spec"]["containers"][0]


def test_chart_and_kustomization_are_equal(api):
    """But for the namespace, which helm takes from its command line."""
    wanted = kustomized(api)
    del wanted["Namespace", "portolan-system"]
    assert charted(api) == wanted


def test_digest_wins_over_tag(api):
    made = charted(api, "--set-string", "image.repository=example.org/net/portolan,image.tag=9")
    assert agent(made)["image"] == "example.org/net/portolan:9"
    made = charted(api, "--set-string", f"image.tag=9,image.digest={DIGEST}")
    assert agent(made)["image"] == f"portolan@{DIGEST}"


def test_roles_can_be_left_out(api):
    left_out = charted(api).keys() - charted(api, "--set", "rbac.aggregate=false").keys()
    assert left_out == {("ClusterRole", "kuport-portmap-view"),
                        ("ClusterRole", "kuport-portmap-edit")}


def test_classes_become_objects(api, tmp_path):
    public, lan = portmapclass("public")["spec"], portmapclass("lan", servingMode="Multi")["spec"]
    made = charted(api, "-f", classes_file(tmp_path / "v.yaml", public=public, lan=lan))
    assert made["PortMapClass", "public"]["spec"] == public
    assert made["PortMapClass", "lan"]["spec"] == lan


def test_values_reach_the_pod(api):
    made = charted(api, "--set", "logLevel=debug,cniVxlanPort=8473,metricsAddress=0.0.0.0:9100",
                   "--set", "tolerations=null,nodeSelector.edge=yes,resources.limits.memory=1Gi")
    spec = made["DaemonSet", "portolan"]["spec"]["template"]["spec"]
    assert agent(made)["args"] == ["agent", "--source=kube:", "--features=portmap",
                                   "--log-level=debug", "--cni-vxlan-port=8473",
                                   "--metrics-address=0.0.0.0:9100"]
    for probe in ("livenessProbe", "readinessProbe"):
        asked = agent(made)[probe]["httpGet"]
        assert (asked["host"], asked["port"]) == ("0.0.0.0", 9100)
    assert agent(made)["resources"]["limits"] == {"memory": "1Gi"}
    assert "tolerations" not in spec
    assert spec["nodeSelector"]["edge"] == "yes"


def test_the_service_proxy_gets_its_values(api):
    made = charted(api, "--set", r"features=portmap\,serviceproxy",
                   "--set", r"serviceProxy.clusterCIDR=10.244.0.0/16\,fd00:10::/56",
                   "--set", "serviceProxy.masqueradeAll=true,apiServer.host=192.0.2.1")
    assert agent(made)["args"][2:] == [
        "--features=portmap,serviceproxy", "--log-level=info", "--cni-vxlan-port=8472",
        "--metrics-address=127.0.0.1:10266", "--healthz-bind-address=0.0.0.0:10256",
        "--metrics-bind-address=127.0.0.1:10249", "--detect-local-mode=ClusterCIDR",
        "--cluster-cidr=10.244.0.0/16,fd00:10::/56", "--masquerade-all"]
    env = {entry["name"]: entry.get("value") for entry in agent(made)["env"]}
    assert env == {"NODE_NAME": None, "KUBERNETES_SERVICE_HOST": "192.0.2.1",
                   "KUBERNETES_SERVICE_PORT": "6443"}


IPVS = ("--set", r"features=portmap\,serviceproxy,serviceProxy.proxyMode=ipvs")


def with_components(api, tree, *names, features="portmap"):
    """deploy/ copied to `tree` and built with these components."""
    shutil.copytree(DEPLOY, tree)
    daemonset = tree / "daemonset.yaml"
    daemonset.write_text(daemonset.read_text().replace("features=portmap", f"features={features}"))
    with open(tree / "kustomization.yaml", "a") as file:
        file.write(f"components: [{', '.join(names)}]\n")
    made = documents(api.kubectl("kustomize", tree).stdout)
    del made["Namespace", "portolan-system"]
    return made


def test_ipvs_is_equal_in_chart_and_kustomization(api, tmp_path):
    assert charted(api, *IPVS) == with_components(api, tmp_path / "deploy", "ipvs")


COMPONENTS = {"bird": "trafficclass", "ipvs": "serviceproxy"}  # and the feature of each


def test_every_component_is_tried_with_the_others():
    assert set(COMPONENTS) == {file.parent.name for file in DEPLOY.glob("*/kustomization.yaml")
                               if "kind: Component" in file.read_text()}


@pytest.mark.parametrize("names", [order for n in range(len(COMPONENTS) + 1)
                                   for order in itertools.permutations(COMPONENTS, n)],
                         ids=lambda names: "+".join(names) or "none")
def test_components_go_together(crds, namespace, tmp_path, names):
    """Each brings its feature and what it says alone; the API server takes it."""
    made = with_components(crds, tmp_path / "deploy", *names, features="portmap,loadbalancer")
    args = set(agent(made)["args"])
    assert f"--features={','.join(['portmap', 'loadbalancer', *map(COMPONENTS.get, names)])}" in args
    for name in names:
        alone = agent(with_components(crds, tmp_path / name, name))["args"]
        assert {a for a in alone if not a.startswith("--features")} <= args
    for document in made.values():
        if "namespace" in document["metadata"]:
            document["metadata"]["namespace"] = namespace
    crds.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-",
                 stdin=yaml.safe_dump_all(made.values()))


def test_ipvs_gets_its_values(api):
    def args(*words):
        return agent(charted(api, *IPVS, *words))["args"][9:]
    assert args() == ["--proxy-mode=ipvs", "--scheduling-method=rr", "--weight=1",
                      "--iptables-mode=auto"]
    values = r"nodeAddresses=192.0.2.10\,2001:db8::10 strictARP=true excludeCIDRs=198.51.100.0/24 " \
        "schedulingMethod=seq weight=10 iptablesMode=legacy"
    assert args(*(word for value in values.split()
                  for word in ("--set", f"serviceProxy.ipvs.{value}"))) == [
        "--proxy-mode=ipvs", "--scheduling-method=seq", "--weight=10", "--iptables-mode=legacy",
        "--node-address=192.0.2.10,2001:db8::10", "--strict-arp",
        "--ipvs-exclude-cidrs=198.51.100.0/24"]
    assert charted(api, "--set", "serviceProxy.proxyMode=ipvs") == charted(api)


def test_traffic_classes_get_a_place_to_meet_bird(api):
    def spec(*words):
        made = charted(api, "--set", r"features=portmap\,trafficclass", *words)
        return made["DaemonSet", "portolan"]["spec"]["template"]["spec"]
    alone = spec()
    assert "--bird-away-seconds=10" in alone["containers"][0]["args"]
    assert [c["name"] for c in alone["containers"]] == ["agent"]
    assert {"name": "bird", "mountPath": "/run/bird"} in alone["containers"][0]["volumeMounts"]
    beside = spec("--set", "trafficClass.birdImage=example.org/bird:2,trafficClass.birdAwaySeconds=5")
    agent_, bird = beside["containers"]
    assert "--bird-away-seconds=5" in agent_["args"]
    assert bird["image"] == "example.org/bird:2"
    assert "exec bird -f -R -c /run/bird/bird.conf -s /run/bird/bird.ctl" in bird["command"][2]
    assert {v["name"] for v in beside["volumes"]} == {"state", "sysctls", "bird"}
    assert bird["volumeMounts"] == [{"name": "bird", "mountPath": "/run/bird"}]


HELD = ("--set", r"features=portmap\,loadbalancer", "--set", "loadBalancer.overlay=vxlan")


def test_what_the_load_balancer_needs_comes_with_it(api):
    """The same as deploy/loadbalancer.yaml; and without the feature nothing of it."""
    added = charted(api, *HELD)
    apart = charted(api).keys()
    assert {k: v for k, v in added.items() if k not in apart} == documents(
        (DEPLOY / "loadbalancer.yaml").read_text())


def test_the_load_balancer_gets_its_values(api):
    def args(*words):
        return agent(charted(api, *HELD, *words))["args"][6:]
    assert args() == ["--overlay=vxlan", "--overlay-subnet=169.254.96.0/19"]
    assert args("--set", "loadBalancer.overlay=weave",
                "--set", r"loadBalancer.addressExclude=docker*\,br-*") == [
        "--overlay=weave", "--address-exclude=docker*,br-*"]
    done = api.helm("template", "portolan", CHART, "--set", "features=loadbalancer", check=False)
    assert done.returncode != 0 and "loadBalancer.overlay is needed" in done.stderr


def test_bird_beside_the_agent_is_equal_in_chart_and_kustomization(api, tmp_path):
    made = with_components(api, tmp_path / "deploy", "bird")
    bird = made["DaemonSet", "portolan"]["spec"]["template"]["spec"]["containers"][1]
    assert charted(api, "--set", r"features=portmap\,trafficclass", "--set",
                   f"trafficClass.birdImage={bird['image']}") == made


def test_the_notes_name_objects_of_the_features_alone(api):
    def notes(features):
        done = api.helm("install", "portolan", CHART, "--dry-run=client", "--set",
                        f"features={features},loadBalancer.overlay=vxlan")
        return done.stdout.split("NOTES:")[1]
    assert "portmaps" in notes("portmap") and "trafficclasses" not in notes("portmap")
    other = notes(r"loadbalancer\,trafficclass")
    assert "portmap" not in other and "get services" in other and "get trafficclasses" in other


@pytest.mark.parametrize("option", ["image.digset=x", "image.digest=sha256:12", "logLevel=loud",
                                    "classess.a.b=c", "cniVxlanPort=0", "features=proxy",
                                    "serviceProxy.proxyMode=iptables",
                                    "serviceProxy.ipvs.weight=0", "loadBalancer.overlay=a/b", "loadBalancer.overlaySubnet=x"])
def test_wrong_values_are_refused(api, option):
    done = api.helm("template", "portolan", CHART, "--set", option, check=False)
    assert done.returncode != 0
    assert option.split("=")[0].split(".")[-1] in done.stderr or "classess" in done.stderr


def pinned(path, digest):
    """The chart as a release has it."""
    shutil.copytree(CHART, path)
    values = path / "values.yaml"
    values.write_text(values.read_text().replace('digest: ""', f'digest: "{digest}"'))
    return path


def test_an_upgrade_takes_the_new_image_and_keeps_what_was_set(crds, namespace, tmp_path):
    old, new = pinned(tmp_path / "old", DIGEST), pinned(tmp_path / "new", OTHER_DIGEST)
    crds.helm("install", "portolan", old, "-n", namespace, "--set", "image.repository=far/portolan")
    crds.helm("upgrade", "portolan", new, "-n", namespace, "--reset-then-reuse-values")
    daemonset = crds.call("GET", f"/apis/apps/v1/namespaces/{namespace}/daemonsets/portolan")[1]
    crds.helm("uninstall", "portolan", "-n", namespace)
    assert agent({("DaemonSet", "portolan"): daemonset})["image"] == f"far/portolan@{OTHER_DIGEST}"


def test_install_upgrade_uninstall(crds, namespace, tmp_path):
    """What helm made comes and goes; CRDs and PortMaps are none of its business."""
    def helm(verb, *options):
        return crds.helm(verb, "portolan", *options, "-n", namespace)

    def exists(path):
        return crds.call("GET", path)[0] == 200

    daemonset = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/portolan"
    mapping = f"{GROUP}/namespaces/{namespace}/portmaps/x"
    crd_paths = [f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}.kuport.wlz.li"
                 for kind in ("portmaps", "portmapclasses")]
    public = portmapclass("public")["spec"]
    both = classes_file(tmp_path / "both.yaml", public=public, lan=public)
    one = classes_file(tmp_path / "one.yaml", public=public)

    helm("install", CHART, "-f", both)
    assert exists(daemonset) and exists(f"{GROUP}/portmapclasses/lan")
    assert crds.call("POST", mapping[:-2], portmap("x"))[0] == 201

    helm("upgrade", CHART, "-f", one, "--set", f"image.digest={DIGEST}")
    assert agent({("DaemonSet", "portolan"): crds.call("GET", daemonset)[1]})["image"].endswith(
        DIGEST)
    assert exists(f"{GROUP}/portmapclasses/public") and not exists(f"{GROUP}/portmapclasses/lan")
    assert exists(mapping) and all(map(exists, crd_paths))

    helm("uninstall")
    assert not exists(daemonset) and not exists(f"{GROUP}/portmapclasses/public")
    assert exists(mapping) and all(map(exists, crd_paths))
