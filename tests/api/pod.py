#!/usr/bin/python3
"""Runs a program as a container runtime would run deploy/daemonset.yaml, but in a network of its
own, which has one interface, eth0 with 192.0.2.10.

  pod.py ROOT TARGET=SOURCE... -- COMMAND...
  pod.py --bird ROOT TARGET=SOURCE... -- COMMAND...    as the one deploy/bird adds, in this network
  pod.py --ipvs ROOT TARGET=SOURCE... -- COMMAND...    with what deploy/ipvs adds, in this network

ROOT is the unpacked image; each SOURCE is mounted at TARGET in it.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DAEMONSET = DEPLOY / "daemonset.yaml"
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
CAPABILITIES = {"NET_BIND_SERVICE": 10, "NET_ADMIN": 12, "NET_RAW": 13}  # linux/capability.h
libc = ctypes.CDLL(None, use_errno=True)


def spec():
    """The pod's."""
    return yaml.safe_load(DAEMONSET.read_text())["spec"]["template"]["spec"]


def bird():
    """The container deploy/bird adds."""
    patch = yaml.safe_load((DEPLOY / "bird/daemonset.yaml").read_text())
    return next(op["value"] for op in patch if op["path"].endswith("/containers/-"))


def ipvs():
    """The container with the capabilities deploy/ipvs adds."""
    patch = yaml.safe_load((DEPLOY / "ipvs/daemonset.yaml").read_text())
    container = spec()["containers"][0]
    container["securityContext"]["capabilities"]["add"] += [
        op["value"] for op in patch if op["path"].endswith("/capabilities/add/-")]
    return container


def check(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(source, target, flags, kind=None):
    check(libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, None))


def make_network():
    check(libc.unshare(CLONE_NEWNET))
    for words in ("link set lo up", "link add eth0 type veth peer name peer", "link set peer up",
                  "link set eth0 up", "addr add 192.0.2.10/24 dev eth0"):
        subprocess.run(["ip", *words.split()], check=True)


def enter(root, volumes, security):
    check(libc.unshare(CLONE_NEWNS))
    mount("none", "/", MS_REC | MS_PRIVATE)
    mount(root, root, MS_BIND)
    mount("proc", f"{root}/proc", 0, "proc")
    for target, source in volumes:
        mount(source, root + target, MS_BIND)
    mount(f"{root}/proc/sys", f"{root}/proc/sys", MS_BIND)
    mount("none", f"{root}/proc/sys", MS_BIND | MS_REMOUNT | MS_RDONLY)
    if security["readOnlyRootFilesystem"]:
        mount("none", root, MS_BIND | MS_REMOUNT | MS_RDONLY)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    os.chroot(root)
    os.chdir("/")
    assert security["capabilities"]["drop"] == ["ALL"] and security["runAsUser"] == 0
    kept = {CAPABILITIES[name] for name in security["capabilities"]["add"]}
    for capability in set(range(last + 1)) - kept:
        check(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0))
    if not security["allowPrivilegeEscalation"]:
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def main():
    split = sys.argv.index("--")
    words, command = sys.argv[1:split], sys.argv[split + 1:]
    beside = {"--bird": bird, "--ipvs": ipvs}.get(words[0])
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if not beside:
        make_network()
    container = beside() if beside else spec()["containers"][0]
    words = words[1:] if beside else words
    enter(words[0], [word.split("=", 1) for word in words[1:]],
          container["securityContext"])
    os.execve(command[0], command, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


if __name__ == "__main__":
    main()
