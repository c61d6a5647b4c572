"""What every lab is made of: a name, namespaces called after it, a directory, processes.

Several instances, of several runs, come and go at the same time in one ROOT.
"""

import contextlib
import os
import shutil

from . import build, netns, procs

ROOT = "/run/portolan-lab"


class Instance:
    def __init__(self, name):
        self.name = name
        self.state = os.path.join(ROOT, name)
        self.processes = procs.Processes(os.path.join(self.state, "processes"))

    def ns(self, name):
        """The namespace of a host, or of pod-NAME."""
        return f"ptl-{self.name}-{name}"

    def make_state(self):
        while True:
            try:
                os.makedirs(self.state)
                return
            except FileNotFoundError:   # another's down() has taken ROOT just now
                pass

    def down(self):
        """Removes everything of this name, also what a run that failed half way left."""
        self.processes.stop_all()
        ours = [n for n in sorted(os.listdir("/run/netns")) if n.startswith(self.ns(""))] \
            if os.path.isdir("/run/netns") else []
        procs.end_pids({pid: procs.start_time(pid) for ns in ours for pid in _pids_in(ns)})
        build.delete_namespaces(ours)
        shutil.rmtree(self.state, ignore_errors=True)
        with contextlib.suppress(OSError):      # there are others
            os.rmdir(ROOT)


def _pids_in(ns):
    return [int(pid) for pid in netns.run(["ip", "netns", "pids", ns], check=False).stdout.split()]
