"""lab/nft_events: every change of a ruleset is heard of, and nothing else."""

import os

import pytest

from lab import netns
from lab.nft_events import Elements, NftEvents

ELEMENT = "{ 10.0.0.0-10.0.255.255 . 10.0.3.2-10.0.3.5 }"
OTHER = "{ 10.0.0.0-10.0.255.255 . 10.0.4.2-10.0.4.5 }"


@pytest.fixture
def ns():
    name = f"{os.environ.get('LAB_NAME', 't')}{os.getpid()}nft"
    netns.run(["ip", "netns", "add", name])
    yield name
    netns.run(["ip", "netns", "del", name])


def nft(ns, text):
    netns.run_in(ns, ["nft", "-f", "-"], stdin=text)


def test_elements_that_come_and_go(ns):
    """One after the other, and no other set's or key's."""
    nft(ns, "add table inet t; add set inet t s { type ipv4_addr . ipv4_addr; flags interval; }; "
            "add set inet t other { type ipv4_addr . ipv4_addr; flags interval; }")
    events = Elements({"here": ns}, "s", bytes([10, 0, 3, 2]))
    for verb in ("add", "delete") * 10:
        nft(ns, f"{verb} element inet t s {ELEMENT}; {verb} element inet t other {ELEMENT}")
    nft(ns, f"add element inet t s {OTHER}")
    assert [change[1:] for change in events.stop(20)] == [("here", True), ("here", False)] * 10


def test_what_came_just_before_the_end(ns):
    events = NftEvents({"here": ns})
    nft(ns, "add table inet t")
    assert events.stop()


def test_nothing(ns):
    nft(ns, "add table inet t")
    events = NftEvents({"here": ns})
    netns.run_in(ns, ["nft", "list", "ruleset"])
    assert events.stop() == []
