"""The manifests as kustomize and helm render them."""

import yaml

from apiserver import ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart"
NAMESPACE = "portolan-system"


def documents(text):
    """(kind, name) -> object."""
    made = [d for d in yaml.safe_load_all(text) if d]
    keyed = {(d["kind"], d["metadata"]["name"]): d for d in made}
    assert len(keyed) == len(made)
    return keyed


def kustomized(api):
    return documents(api.kubectl("kustomize", DEPLOY).stdout)


def charted(api, *options, chart=CHART):
    return documents(api.helm("template", "portolan", chart, "-n", NAMESPACE, *options).stdout)


def classes_file(path, **classes):
    path.write_text(yaml.safe_dump({"classes": classes}))
    return str(path)
