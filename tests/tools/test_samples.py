"""The samples are what the goldens of the same name are planned from."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "deploy/samples").glob("*.yaml"))


def classes(path):
    """name -> spec"""
    return {made["metadata"]["name"]: made["spec"] for made in yaml.safe_load_all(path.read_text())
            if made["kind"] == "TrafficClass"}


def test_there_are_samples():
    assert {path.stem for path in SAMPLES} == {"hybrid", "one-table", "two-tables"}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_what_its_golden_is_planned_from(sample):
    assert classes(sample) == classes(ROOT / f"tests/golden/traffic-{sample.stem}/cluster.yaml")
