"""Reads, waits for and edits the statuses agents write."""

from . import netns


class Statuses:
    """Those who derive from it know where they are, `folder.py` for a manifest folder, `kube.py` for
    an API server:

    read(plural, name, namespace)          the whole object, None when there is none (yet)
    edit(plural, name, change, namespace)  another writer's work: `change` edits the status
    versions()                             {object: what changes whenever it is written}
    """

    interval = 0.005    # seconds between two looks

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
        return netns.wait_until(arrived, timeout, lambda: f"{wanted}; it is: {read()}",
                                self.interval)

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
