"""Reads, waits for and edits the status files agents leave in a manifest folder."""

import json
import os

from . import netns


class Statuses:
    def __init__(self, directory):
        self.directory = os.path.join(directory, ".status")

    def path(self, plural, name, namespace=None):
        return os.path.join(self.directory, *filter(None, (plural, namespace)), f"{name}.json")

    def read(self, plural, name, namespace=None):
        """The whole object of the file, None when there is none (yet)."""
        try:
            with open(self.path(plural, name, namespace)) as file:
                return json.load(file)
        except FileNotFoundError:
            return None

    def portmap(self, namespace, name):
        return (self.read("portmaps", name, namespace) or {}).get("status", {})

    def portmapclass(self, name):
        return (self.read("portmapclasses", name) or {}).get("status", {})

    @staticmethod
    def condition(status, kind):
        """("True", reason, message) of a condition; Nones when it is not there."""
        for entry in status.get("conditions", []):
            if entry["type"] == kind:
                return entry["status"], entry["reason"], entry.get("message", "")
        return None, None, None

    def wait_condition(self, read, kind, status, reason=None, timeout=10):
        """Waits until the condition is so; returns its message. `read` gives the status."""
        def arrived():
            have, why, message = self.condition(read(), kind)
            return (message or " ") if have == status and reason in (None, why) else None

        wanted = f"{kind}={status}" + (f" ({reason})" if reason else "")
        return netns.wait_until(arrived, timeout, lambda: f"{wanted}; it is: {read()}")

    def wait_portmap(self, namespace, name, kind="Programmed", status="True", reason=None,
                     timeout=10):
        return self.wait_condition(lambda: self.portmap(namespace, name), kind, status, reason,
                                   timeout)

    def wait_class(self, name, kind="Ready", status="True", reason=None, timeout=10):
        return self.wait_condition(lambda: self.portmapclass(name), kind, status, reason, timeout)

    def node_row(self, class_name, node):
        """The node's row of the class status, {} when it has none."""
        rows = self.portmapclass(class_name).get("nodes", [])
        return next((row for row in rows if row["name"] == node), {})

    def links(self, class_name):
        """{"a/b": slot} of the claims recorded."""
        links = self.portmapclass(class_name).get("links", [])
        return {link["key"]: link["slot"] for link in links}
