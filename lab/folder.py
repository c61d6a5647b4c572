"""A manifest folder as the agents' source."""

import contextlib
import json
import os

from .manifests import EPOCH, Manifests, write_atomically
from .statuses import Statuses


class Folder:
    """Needs nothing but a directory, and serves one test; whoever made it takes it away."""

    def __init__(self, directory, epoch=EPOCH):
        self.directory = directory
        self.objects = Manifests(directory, epoch)
        self.status = FolderStatuses(directory)
        self.arguments = ["--source", f"dir:{directory}"]

    def clear(self):
        pass


class FolderStatuses(Statuses):
    """The files agents leave in the folder."""

    def __init__(self, directory):
        self.source = directory
        self.directory = os.path.join(directory, ".status")

    def path(self, plural, name, namespace=None):
        return os.path.join(self.directory, *filter(None, (plural, namespace)), f"{name}.json")

    def read(self, plural, name, namespace=None):
        try:
            with open(self.path(plural, name, namespace)) as file:
                return json.load(file)
        except FileNotFoundError:
            return None

    def edit(self, plural, name, change, namespace=None):
        """No agent may run meanwhile: nothing is locked."""
        document = self.read(plural, name, namespace)
        change(document["status"])
        version = int(document["metadata"]["resourceVersion"])
        document["metadata"]["resourceVersion"] = str(version + 1)
        write_atomically(self.path(plural, name, namespace), json.dumps(document))

    def versions(self):
        """Of the manifests as well."""
        found = {}
        for folder, _, names in os.walk(self.source):
            for path in (os.path.join(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):    # an agent's, renamed meanwhile
                    found[path] = os.stat(path).st_mtime_ns
        return found
