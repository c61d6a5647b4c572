"""Dials from places of a lab, and asserts who answered and whom it saw."""

import contextlib
import errno
import json
import os

from lab import pods, wait_until
from lab.host import Host
from lab.probe import probe
from lab.witness import refusals, witness


class Dialler:
    """Those who derive from it have `lab`, and `client`: its outside client's address by family."""

    def place(self, source):
        """A pod or a host."""
        return Host(self.lab, f"pod-{source}") if source in self.lab.pods else self.lab.host(source)

    def dial(self, source, proto, address, port, timeout=5.0, source_address=None, **options):
        """From a pod, a host, or from the outside `client`, by the first of its addresses."""
        if source == "client":
            source_address = source_address or self.client[6 if ":" in address else 4]
        return probe(self.place(source).ns, proto, address, port, timeout=timeout,
                     source=source_address, **options)

    def served(self, source, proto, address, port, by, peer=None, **options):
        """Dials and asserts: one of `by` answered, saw one of `peer`, and was the one dialled."""
        found = self.dial(source, proto, address, port, **options)
        assert found.answered, found
        assert found.pod in ([by] if isinstance(by, str) else by), found
        assert peer is None or found.peer in ([peer] if isinstance(peer, str) else peer), found
        assert found.reply_matches, found
        return found

    def refused(self, source, proto, address, port, **options):
        """At once, not after a first packet was sent again; the fastest of a few is judged, this machine
        has other things to do."""
        tries = []
        for _ in range(5):
            tries.append(self.dial(source, proto, address, port, **options))
            # A node's own datagram does not even leave it.
            assert tries[-1].error == "refused" or (
                proto == "udp" and source in self.lab.topology.nodes() and _not_permitted(tries[-1])), tries
            if tries[-1].seconds < 0.25:
                return
        raise AssertionError(f"refused, but late: {tries}")

    def dropped(self, source, proto, address, port, seconds=0.3, **options):
        """Nothing comes back, no reset and no ICMP error."""
        with witness(self.place(source), "input", -400, "refusals", **refusals(port)) as seen:
            found = self.dial(source, proto, address, port, timeout=seconds, **options)
            # On the node itself a dropped datagram is an error of its sender.
            assert found.error == "timeout" or _not_permitted(found), found
            assert not any(seen.counts().values()), (found, seen.counts())

    def pods_of(self, source, proto, address, port, times=20, **options):
        """The pods that answer, each time."""
        found = [self.dial(source, proto, address, port, **options) for _ in range(times)]
        assert all(one.answered for one in found), [one for one in found if not one.answered]
        return [one.pod for one in found]

    def wait_served(self, source, proto, address, port, by=None, timeout=5):
        def dial():
            found = self.dial(source, proto, address, port, timeout=0.2)
            return found if found.answered and by in (None, found.pod) else None
        return wait_until(dial, timeout, f"{by} to answer on {proto} {address}:{port}")

    @contextlib.contextmanager
    def serving(self, name, host, port):
        """Something that serves on a host of its own accord, and answers from where it was asked."""
        label = f"server-{name}"
        bind = [address for address in self.addresses(host) if not address.startswith("fe80")]
        log = pods.start_server(self.lab.processes, label, name, self.lab.ns(host), [str(port)],
                                self.lab.state, bind)
        try:
            pods.wait_server(self.lab.processes, label, log)
            yield
        finally:
            self.lab.processes.stop(label)

    def addresses(self, name):
        """All addresses of a host; a node's towards its pods included."""
        listed = json.loads(self.lab.host(name).out("ip", "-j", "addr"))
        return {entry["local"] for link in listed for entry in link["addr_info"]}


def _not_permitted(found):
    return found.error == str(PermissionError(errno.EPERM, os.strerror(errno.EPERM)))
