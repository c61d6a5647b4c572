"""lab/: what its tests rely on: verdicts on time, instances that come and go beside each other."""

import concurrent.futures
import os

import pytest

from lab import fixtures, promptly, seconds_until
from lab.instance import Instance


def test_a_look_that_finds_all_well_accuses_nobody():
    assert seconds_until(lambda: True, "all well", since=0) == 0


def test_the_last_look_that_failed_is_what_counts():
    looks = iter([False, False, True])
    took = seconds_until(lambda: next(looks), "the third look")
    assert 0 < took < 5


def test_what_never_comes_is_named():
    with pytest.raises(TimeoutError, match="waited .* for: it"):
        seconds_until(lambda: False, "it", hang=0.01)


@pytest.mark.parametrize("took, slowness, asked", [
    ([0.1, 0.1], 1, 2), ([9, 0.1, 0.1], 1, 3), ([0.1, 9, 0.1], 1, 3), ([9, 9], 10, 2)])
def test_two_of_three_are_in_time(monkeypatch, took, slowness, asked):
    monkeypatch.setitem(promptly.__globals__, "slowness", lambda: slowness)
    given = []

    def one():
        given.append(took[len(given)])
        return given[-1]
    promptly(1, one)
    assert len(given) == asked


@pytest.mark.parametrize("took, slowness", [([9, 9], 1), ([9, 0.1, 9], 1), ([9, 9], 8)])
def test_two_of_three_are_late(monkeypatch, took, slowness):
    monkeypatch.setitem(promptly.__globals__, "slowness", lambda: slowness)
    given = iter(took)
    with pytest.raises(AssertionError, match=r"not within 1 s: \[9, "):
        promptly(1, lambda: next(given))


def test_instances_come_and_go_side_by_side(monkeypatch, tmp_path):
    """One that is the last takes the folder of all along, another makes its own in it just then."""
    monkeypatch.setattr("lab.instance.ROOT", str(tmp_path / "labs"))

    def come_and_go(number):
        instance = Instance(fixtures.instance_name(f"n{number}"))
        for _ in range(300):
            instance.make_state()
            assert os.path.isdir(instance.state)
            instance.down()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(come_and_go, range(3)))
