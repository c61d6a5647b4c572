"""A small Kubernetes API server that can be told to fail.

    with Server() as api:
        api.put({"apiVersion": "v1", "kind": "Node", ...})
        api.fault("LIST portmaps", lambda r: r.status(503, retry_after=1))
        ... run the program against api.url ...
        api.get("portmaps", "games", "web")["status"]

It lists in pages, watches (bookmarks, streaming lists, 410 behind what it remembers), and takes merge
patches (with resourceVersion) and server-side apply (lists keyed by name) on the status
subresource, creates and patches Events: what the program uses, and as a real server does it. A
fault is a function of one request; it answers instead of the server, once or `times` times.
"""

import copy
import json
import re
import socket
import ssl
import struct
import threading
import time
import urllib.parse
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GROUP = "kuport.wlz.li/v1alpha1"
KINDS = {  # plural: (apiVersion, kind)
    "nodes": ("v1", "Node"), "namespaces": ("v1", "Namespace"), "services": ("v1", "Service"),
    "endpointslices": ("discovery.k8s.io/v1", "EndpointSlice"),
    "servicecidrs": ("networking.k8s.io/v1", "ServiceCIDR"),
    "portmaps": (GROUP, "PortMap"), "portmapclasses": (GROUP, "PortMapClass"),
    "events": ("events.k8s.io/v1", "Event"),
}
PLURALS = {kind: plural for plural, (_, kind) in KINDS.items()}
CUSTOM = {"portmaps", "portmapclasses"}


def status(code, reason, message, **more):
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "reason": reason, "message": message, **more}


def merge(base, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


class Gone(Exception):
    pass


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.server.api.connections += 1

    # ---- answering ----

    def json(self, code, body, headers=()):
        self.bytes(code, json.dumps(body).encode() + b"\n", headers)

    def bytes(self, code, data, headers=()):
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def status(self, code, reason="InternalError", message="as the test wants it",
               retry_after=None):
        self.json(code, status(code, reason, message),
                  [("Retry-After", str(retry_after))] if retry_after is not None else [])

    def begin(self, headers=()):
        """A chunked answer; then chunk() any number of times, then end()."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def chunk(self, data):
        if isinstance(data, dict):
            data = json.dumps(data).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end(self):
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def reset(self):
        """Ends the connection by RST."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    # ---- being asked ----

    def handle_any(self):
        api = self.server.api
        parts = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        length = int(self.headers.get("Content-Length", 0))
        self.body = json.loads(self.rfile.read(length)) if length else None
        match = re.fullmatch(r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/([^/]+)(?=/.))?/([a-z]+)"
                             r"(?:/([^/]+))?(/status)?", parts.path)
        self.plural, self.ns, self.name = (match[3], match[2] or "", match[4]) if match else ("",) * 3
        self.verb = self.command
        if self.command == "GET":
            self.verb = "WATCH" if self.query.get("watch") else "LIST"
        key = f"{self.verb} {self.plural}"
        api.seen(key, self)
        try:
            for fault in list(api.faults):
                if fault["key"] in (key, self.verb, "*") and fault["times"]:
                    fault["times"] -= 1
                    if fault["act"](self) is not False:
                        return
                    break
            self.serve(api, match)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError, ValueError):
            self.close_connection = True

    do_GET = do_PATCH = do_POST = handle_any

    def serve(self, api, match):
        if api.tokens is not None and \
                self.headers.get("Authorization", "") not in {f"Bearer {t}" for t in api.tokens}:
            return self.json(401, status(401, "Unauthorized", "Unauthorized"))
        if not match or self.plural not in KINDS or \
                (self.plural in CUSTOM and not api.installed) or \
                (self.plural == "servicecidrs" and not api.modern):
            return self.json(404, status(404, "NotFound", "the server could not find the "
                                         "requested resource"))
        if self.verb == "LIST":
            return self.list(api)
        if self.verb == "WATCH":
            return self.watch(api)
        code, answer = api.write(self)
        return self.json(code, answer)

    def list(self, api):
        limit = int(self.query.get("limit", 0))
        offset, version = 0, None
        if token := self.query.get("continue"):
            version, offset = map(int, token.split("/"))
            if version < api.oldest:
                return self.json(410, status(410, "Expired", "The provided continue parameter is "
                                             "too old"))
        with api.changed:
            items = [copy.deepcopy(o) for _, o in sorted(api.objects[self.plural].items())]
            version = version or api.version
        page = items[offset:offset + limit] if limit else items
        meta = {"resourceVersion": str(version)}
        if limit and offset + limit < len(items):
            meta["continue"] = f"{version}/{offset + limit}"
        api_version, kind = KINDS[self.plural]
        body = {"kind": kind + "List", "apiVersion": api_version, "metadata": meta, "items": page}
        if self.plural in CUSTOM:  # as a real one: keys sorted, so that metadata comes last
            body = {"apiVersion": api_version, "items": page, "kind": kind + "List",
                    "metadata": meta}
        else:
            for item in page:
                del item["kind"], item["apiVersion"]
        return self.json(200, body)

    def watch(self, api):
        initial = self.query.get("sendInitialEvents") == "true"
        if initial and not api.streams:
            return self.json(422, status(422, "Invalid", "sendInitialEvents: Forbidden: "
                                         "sendInitialEvents is forbidden for watch unless the "
                                         "WatchList feature gate is enabled"))
        end = time.monotonic() + min(int(self.query["timeoutSeconds"]), api.watch_seconds)
        with api.changed:
            version = api.version if initial else int(self.query["resourceVersion"])
            state = sorted(api.objects[self.plural].items()) if initial else []
        self.begin()
        for _, o in state:
            self.chunk({"type": "ADDED", "object": o})
        if initial:
            self.chunk(api.bookmark(self.plural, version, end=True))
        try:
            while time.monotonic() < end and not api.closing:
                for event in api.events_after(self.plural, version, 0.2):
                    self.chunk({"type": event["type"], "object": event["object"]})
                    version = event["version"]
        except Gone:
            self.chunk({"type": "ERROR", "object": status(410, "Expired", "too old resource "
                                                          f"version: {version}")})
        self.end()


class Server:
    def __init__(self, tls=None, address="127.0.0.1", listeners=()):
        """`tls`: an ssl.SSLContext; `listeners`: sockets that listen already, all on one port."""
        self.objects = {plural: {} for plural in KINDS}
        self.history = []
        self.version, self.oldest = 100, 0
        self.changed = threading.Condition()
        self.faults, self.requests = [], []
        self.tokens = None       # accepted ones; None: any or none
        self.installed = True    # the CRDs
        self.modern = True       # has what Kubernetes has since 1.33
        self.streams = False     # WatchList
        self.watch_seconds = 1e9
        self.closing = False
        self.connections = 0
        self.tls, self.address, self.listeners = tls, address, listeners
        self.fronts, self.open = [], []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, port=0):
        self.closing = False
        for listener in self.listeners or [None]:
            server = ThreadingHTTPServer((self.address, port), Request, bind_and_activate=False)
            server.daemon_threads, server.block_on_close = True, False
            server.api = self
            if listener:
                server.socket.close()
                server.socket = listener
                server.server_address = listener.getsockname()
            else:
                server.server_bind()
                server.server_activate()
            if self.tls:
                # The handshake belongs to the connection's own thread.
                server.socket = self.tls.wrap_socket(server.socket, server_side=True,
                                                     do_handshake_on_connect=False)
            server.finish_request = self._remember(server.finish_request)
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            self.fronts.append((server, thread))
        self.port = self.fronts[0][0].server_address[1]
        self.url = f"{'https' if self.tls else 'http'}://{self.address}:{self.port}"

    def _remember(self, finish_request):
        def remember(request, client):
            self.open.append(request)
            finish_request(request, client)
        return remember

    def stop(self):
        """Ends every connection too."""
        self.closing = True
        for server, thread in self.fronts:
            server.shutdown()
            thread.join()
            server.server_close()
        for connection in self.open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.fronts, self.open = [], []

    # ---- for tests ----

    def put(self, o):
        plural = PLURALS[o["kind"]]
        meta = o["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        with self.changed:
            old = self.objects[plural].get(key)
            o = copy.deepcopy(o)
            o["metadata"].setdefault("uid", old["metadata"]["uid"] if old else str(uuid.uuid4()))
            o["metadata"].setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            o["metadata"].setdefault("generation", 1)
            if old and "status" in old:
                o.setdefault("status", old["status"])
            self._store(plural, key, o, "MODIFIED" if old else "ADDED")
        return o

    def delete(self, plural, ns, name):
        with self.changed:
            o = self.objects[plural][ns, name]
            self._store(plural, (ns, name), o, "DELETED")
            del self.objects[plural][ns, name]

    def get(self, plural, ns, name):
        with self.changed:
            return copy.deepcopy(self.objects[plural].get((ns, name)))

    def forget(self):
        """Compaction: watches and continue tokens from before are too old."""
        with self.changed:
            self.history = []
            self.version += 1
            self.oldest = self.version
            self.changed.notify_all()

    def fault(self, key, act, times=1):
        """`key`: "VERB plural", "VERB" or "*". `act` may return False: the server answers."""
        self.faults.append({"key": key, "act": act, "times": times})

    def asked(self, key):
        """The requests of a "VERB plural" so far."""
        return [r for r in list(self.requests) if r["key"] == key]

    # ---- inside ----

    def seen(self, key, r):
        self.requests.append({"key": key, "query": r.query, "body": r.body, "time": time.monotonic(),
                              "headers": dict(r.headers), "name": r.name, "path": r.path})

    def _store(self, plural, key, o, how):
        self.version += 1
        o = copy.deepcopy(o)
        o["metadata"]["resourceVersion"] = str(self.version)
        self.objects[plural][key] = o
        self.history.append({"plural": plural, "type": how, "object": o, "version": self.version})
        self.changed.notify_all()
        return o

    def events_after(self, plural, version, wait):
        with self.changed:
            if version < self.oldest:
                raise Gone
            found = [e for e in self.history if e["version"] > version and e["plural"] == plural]
            if not found:
                self.changed.wait(wait)
            return found

    def bookmark(self, plural, version, end=False):
        api_version, kind = KINDS[plural]
        meta = {"resourceVersion": str(version), "creationTimestamp": None}
        if end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        return {"type": "BOOKMARK",
                "object": {"kind": kind, "apiVersion": api_version, "metadata": meta}}

    def write(self, r):
        key = (r.ns, r.name or (r.body or {}).get("metadata", {}).get("name"))
        with self.changed:
            old = self.objects[r.plural].get(key)
            if r.verb == "POST":
                if old:
                    return 409, status(409, "AlreadyExists", f"{key[1]} already exists")
                return 201, self._store(r.plural, key, r.body, "ADDED")
            if not old:
                return 404, status(404, "NotFound", f'{r.plural} "{key[1]}" not found')
            wanted = (r.body.get("metadata") or {}).get("resourceVersion")
            if wanted and wanted != old["metadata"]["resourceVersion"]:
                return 409, status(409, "Conflict", "the object has been modified; please apply "
                                   "your changes to the latest version and try again")
            new = copy.deepcopy(old)
            if r.headers["Content-Type"] == "application/apply-patch+yaml":
                self._apply(new, r.body, r.query["fieldManager"])
            elif r.path.split("?")[0].endswith("/status"):
                new["status"] = merge(old.get("status"), r.body.get("status"))
            else:
                new = merge(old, r.body)
            if new == old:
                return 200, old
            return 200, self._store(r.plural, key, new, "MODIFIED")

    @staticmethod
    def _apply(o, body, manager):
        """Server-side apply of status.nodes, a list whose key is `name`; other fields are not used."""
        assert set(body["status"]) == {"nodes"} and manager
        rows = {row["name"]: row for row in o.setdefault("status", {}).get("nodes", [])}
        rows.update({row["name"]: row for row in body["status"]["nodes"]})
        o["status"]["nodes"] = list(rows.values())
