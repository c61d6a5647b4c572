"""How soon something happens, judged on a machine that has other things to do.

    def one():
        node.run("nft", "flush", "ruleset")
        return seconds_until(lambda: has_table(node), "the table to be back")
    promptly(1.0, one)
"""

import time

from . import netns


def seconds_until(condition, what, since=None, hang=10):
    """Waits until the condition holds; returns how long it surely did not.

    That is the time from `since`, by default the call, to the beginning of the last look that failed:
    a look that takes long, or that comes late, accuses nobody.
    """
    began = failed = time.monotonic() if since is None else since

    def look():
        nonlocal failed
        now = time.monotonic()
        if condition():
            return True
        failed = now
        return False

    netns.wait_until(look, hang, what)
    return failed - began


def promptly(limit, one):
    """Two of three must be in time: `one()` does something and returns the seconds until it had its
    effect. The limit is that of a machine with time to spare: where the same work takes several times
    as long just now, so may this."""
    took, late = [], 0
    while late < 2 and len(took) - late < 2:
        took.append(one())
        late += took[-1] >= limit and took[-1] >= limit * slowness()
    assert late < 2, f"not within {limit:g} s: {took}"


def slowness():
    """How many times as long as on an idle machine a piece of work takes now."""
    work = 0.03     # seconds
    began, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < work:
        pass
    return max(1.0, (time.monotonic() - began) / work)
