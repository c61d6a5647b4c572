"""Writes API objects as YAML files, one object a file, each change atomic."""

import datetime
import os
import uuid

import yaml

from .objects import GROUP, Objects

EPOCH = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)


def write_atomically(path, text):
    """A reader sees the old file or the new one, never a part."""
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.tmp")
    with open(temporary, "w") as file:
        file.write(text)
    os.rename(temporary, path)


class Manifests(Objects):
    """A manifest folder. Objects are created one second apart, in the order of their writing; without
    an epoch, at the time of it."""

    def __init__(self, directory, epoch=EPOCH):
        self.directory = directory
        self.epoch = epoch
        os.makedirs(directory, exist_ok=True)
        self._known = {}
        self._count = 0

    def path(self, kind, name, namespace=None):
        return os.path.join(self.directory, ".".join(filter(None, (kind.lower(), namespace, name)))
                            + ".yaml")

    def put(self, api, kind, name, body, namespace=None, labels=None, annotations=None):
        """Writes an object; the same name again is an update with a higher generation."""
        document = self._document(api, kind, name, body, namespace, labels)
        if annotations:
            document["metadata"]["annotations"] = annotations
        write_atomically(self.path(kind, name, namespace),
                         yaml.safe_dump(document, sort_keys=False))

    def put_together(self, documents):
        """A List in a file of its own: one rename makes all of them."""
        items = [self._document(GROUP, kind, name, body, namespace)
                 for kind, name, body, namespace in documents]
        write_atomically(os.path.join(self.directory, f"list-{self._count}.yaml"),
                         yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))

    def put_again(self, kind, name, namespace=None, labels=None):
        """Writes the file as it is once more, in place."""
        path = self.path(kind, name, namespace)
        with open(path) as file:
            text = file.read()
        if labels:
            document = yaml.safe_load(text)
            document["metadata"]["labels"] = labels
            text = yaml.safe_dump(document, sort_keys=False)
        with open(path, "w") as file:
            file.write(text)

    def _document(self, api, kind, name, body, namespace=None, labels=None):
        key = (kind, namespace, name)
        if key not in self._known:
            self._count += 1
            moment = (self.epoch + datetime.timedelta(seconds=self._count) if self.epoch
                      else datetime.datetime.now(datetime.timezone.utc))
            self._known[key] = {"creationTimestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
                                "uid": str(uuid.UUID(int=self._count)), "generation": 0}
        meta = self._known[key]
        meta["generation"] += 1
        metadata = {"name": name, **({"namespace": namespace} if namespace else {}),
                    **({"labels": labels} if labels else {}), **meta}
        return {"apiVersion": api, "kind": kind, "metadata": metadata, **body}

    def delete(self, kind, name, namespace=None):
        os.unlink(self.path(kind, name, namespace))
        self._known.pop((kind, namespace, name), None)

    def younger(self):
        """Each object is a second younger than the one before anyway."""
