"""A real API server for tests: etcd and kube-apiserver on loopback ports, RBAC on.

    with ApiServer(folder) as api:
        api.kubectl("get", "nodes")                     # as the admin
        api.call("GET", "/api/v1/nodes", token=token)   # -> (status, object)
        api.stop("kube-apiserver"); api.start("kube-apiserver")

There are no controllers: no pod runs, namespaces stay Terminating, aggregated roles stay as they
are written. Certificates, keys, data and logs are in the folder.
"""

import contextlib
import ctypes
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
START_DEADLINE = 180  # seconds; an idle machine takes ten
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def programs():
    """Paths of etcd, kube-apiserver, kubectl and helm."""
    found = subprocess.run([ROOT / "tools/apiserver", "--list"], stdout=subprocess.PIPE, text=True)
    if found.returncode:
        raise RuntimeError(f"of the API server's programs only these are there: {found.stdout!r}; "
                           "run tools/apiserver")
    return dict(line.split(" ", 1) for line in found.stdout.splitlines())


def hold_port():
    """A socket whose port nobody else gets while it is open: neither by asking for one that is free
    nor for a connection. Who asks for it by number and lets addresses be used again, as Go does, may
    listen on it."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held


def wait_for(condition, what, deadline=START_DEADLINE, interval=0.05):
    """The first true value of condition(), asked for every `interval` seconds."""
    end = time.monotonic() + deadline
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} within {deadline} s")
        time.sleep(interval)
    return value


class ApiServer:
    def __init__(self, folder, *arguments):
        """`arguments`: more flags for kube-apiserver."""
        self.folder = Path(folder)
        self.arguments = arguments
        self.programs = programs()
        self.held = [hold_port() for _ in range(3)]     # also while a server is away
        self.port, self.etcd_port, self.peer_port = (held.getsockname()[1] for held in self.held)
        self.url = f"https://127.0.0.1:{self.port}"
        self.admin_token = secrets.token_hex(16)
        self.processes = {}

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make_certificates()
        (self.folder / "tokens.csv").write_text(f"{self.admin_token},admin,admin,system:masters\n")
        self.kubeconfig = self.write_kubeconfig("admin", token=self.admin_token)
        try:
            self.start("etcd")
            self.start("kube-apiserver")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in reversed(list(self.processes)):
            self.stop(name)
        for held in self.held:
            held.close()

    # ---- certificates ----

    def file(self, name):
        return str(self.folder / name)

    def _openssl(self, *words):
        done = subprocess.run(["openssl", *words], capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            raise RuntimeError(f"openssl {' '.join(words)}: {done.stderr}")

    def make_ca(self, name):
        """NAME.crt and NAME.key."""
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                      "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "2",
                      "-subj", f"/CN=test-{name}")

    def make_certificate(self, name, subject, *extensions, ca="ca", seconds=2 * 86400):
        """NAME.crt and NAME.key, signed by the CA, for so many seconds from now; an old pair of that
        name is replaced."""
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                      "-keyout", f"{name}.key.new", "-subj", subject, "-out", f"{name}.csr")
        (self.folder / f"{name}.cnf").write_text("\n".join([
            "[ca]", "default_ca = it", "[it]", "database = issued", "new_certs_dir = .",
            "rand_serial = yes", "default_md = sha256", "policy = any", "unique_subject = no",
            "x509_extensions = these", "[any]", "organizationName = optional",
            "commonName = supplied", "[these]", *extensions]) + "\n")
        (self.folder / "issued").write_text("")
        end = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + seconds))
        self._openssl("ca", "-batch", "-notext", "-config", f"{name}.cnf", "-cert", f"{ca}.crt",
                      "-keyfile", f"{ca}.key", "-in", f"{name}.csr", "-enddate", end, "-out",
                      f"{name}.crt.new")
        for suffix in ("key", "crt"):
            os.replace(self.folder / f"{name}.{suffix}.new", self.folder / f"{name}.{suffix}")

    def make_server_certificate(self, ca="ca"):
        """The server takes a new pair into use when it starts, or within a minute."""
        self.make_certificate("server", "/CN=kube-apiserver", "extendedKeyUsage=serverAuth",
                              "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc",
                              ca=ca)

    def make_client_certificate(self, name, user, group, seconds=2 * 86400):
        self.make_certificate(name, f"/O={group}/CN={user}", "extendedKeyUsage=clientAuth",
                              seconds=seconds)

    def _make_certificates(self):
        self.make_ca("ca")
        self.make_server_certificate()
        self._openssl("genrsa", "-out", "accounts.key", "2048")
        self._openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")

    # ---- processes ----

    def _command(self, name):
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        if name == "etcd":
            return ["--data-dir", self.file("etcd"), "--listen-client-urls", client,
                    "--advertise-client-urls", client, "--listen-peer-urls", peer,
                    "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                    "--logger", "zap", "--log-level", "warn"]
        return ["--etcd-servers", client, "--bind-address", "127.0.0.1", "--secure-port",
                str(self.port), "--endpoint-reconciler-type", "none",
                "--tls-cert-file", self.file("server.crt"),
                "--tls-private-key-file", self.file("server.key"),
                "--client-ca-file", self.file("ca.crt"),
                "--service-account-key-file", self.file("accounts.pub"),
                "--service-account-signing-key-file", self.file("accounts.key"),
                "--service-account-issuer", "https://kubernetes.default.svc",
                "--service-cluster-ip-range", "10.96.0.0/16,fd00:10:96::/112",
                "--authorization-mode", "Node,RBAC",
                "--token-auth-file", self.file("tokens.csv"), "--allow-privileged=true",
                "--profiling=false", *self.arguments]

    def start(self, name):
        """Returns when it is ready. `name`: etcd or kube-apiserver."""
        def die_with_parent():
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        with open(self.folder / f"{name}.log", "a") as log:
            self.processes[name] = subprocess.Popen(
                [self.programs[name], *self._command(name)], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, preexec_fn=die_with_parent)
        wait_for(lambda: self._is_ready(name), f"{name} that is ready")

    def stop(self, name, how=signal.SIGKILL):
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait()

    def restart(self, name="kube-apiserver"):
        self.stop(name)
        self.start(name)

    def _is_ready(self, name):
        if (status := self.processes[name].poll()) is not None:
            raise RuntimeError(f"{name} ended with status {status}:\n{self.log(name)}")
        try:
            if name == "kube-apiserver":
                return self.call("GET", "/readyz")[0] == 200
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.etcd_port,
                                                               timeout=5)) as connection:
                connection.request("GET", "/health")
                return b'"true"' in connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False

    def log(self, name):
        """The end of it."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]

    # ---- asking it ----

    def call(self, method, path, body=None, token=None, content_type="application/json"):
        """One request, as the admin unless a token is given: (status, decoded JSON or text)."""
        context = ssl.create_default_context(cafile=self.file("ca.crt"))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30,
                                                 context=context)
        with contextlib.closing(connection):
            text = body if body is None or isinstance(body, str) else json.dumps(body)
            connection.request(method, path, text, {
                "Authorization": f"Bearer {token or self.admin_token}",
                "Content-Type": content_type, "Accept": "application/json"})
            answer = connection.getresponse()
            said = answer.read().decode()
        try:
            return answer.status, json.loads(said)
        except ValueError:
            return answer.status, said

    def write_kubeconfig(self, name, **user):
        """The path of a new kubeconfig for a `user` entry such as token=TOKEN."""
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": "test", "cluster": {
                "server": self.url, "certificate-authority": self.file("ca.crt")}}],
            "contexts": [{"name": name, "context": {"cluster": "test", "user": name}}],
            "users": [{"name": name, "user": user}]}))
        return str(path)

    def account_token(self, namespace, name, seconds=3600):
        """A token of an existing ServiceAccount."""
        status, answer = self.call(
            "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
             "spec": {"expirationSeconds": seconds}})
        if status != 201:
            raise RuntimeError(f"no token for {namespace}/{name}: {status} {answer}")
        return answer["status"]["token"]

    def _run(self, program, words, stdin, check, kubeconfig):
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder),
               "KUBECONFIG": kubeconfig or self.kubeconfig}
        done = subprocess.run([self.programs[program], *map(str, words)], input=stdin, text=True,
                              capture_output=True, env=env, timeout=300)
        if check and done.returncode:
            raise RuntimeError(f"{program} {' '.join(map(str, words))}: {done.stderr}")
        return done

    def kubectl(self, *words, stdin=None, check=True, kubeconfig=None):
        """As the admin unless a kubeconfig is given: the finished process, output as text."""
        return self._run("kubectl", words, stdin, check, kubeconfig)

    def helm(self, *words, check=True):
        return self._run("helm", words, None, check, None)
