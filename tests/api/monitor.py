"""What happens to a namespace's nftables ruleset, by the kernel's own word."""

import subprocess
import threading

from apiserver import wait_for


class Monitor:
    """`nft monitor` in a namespace.

        monitor = Monitor(namespace)
        ...
        assert monitor.seen() == []
    """

    def __init__(self, namespace):
        self.namespace, self.marks, self.lines = namespace, 0, []
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", namespace.name, "stdbuf", "-oL", "nft", "monitor"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        wait_for(self._marked, "nft monitor that listens", 20)
        self.seen()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def _marked(self):
        """A table of our own has come and gone: all before it has been read."""
        self.marks += 1
        name = f"mark{self.marks}"
        self.namespace.run("nft", f"add table ip {name}; delete table ip {name}")
        try:
            return wait_for(lambda: f"delete table ip {name}" in self.lines, name, 2)
        except TimeoutError:
            return False

    def seen(self):
        """The lines since the last time, but for those that begin and end a batch."""
        wait_for(self._marked, "mark in nft monitor", 20)
        lines, self.lines = self.lines, []
        return [line for line in lines if "table ip mark" not in line
                and not line.startswith("# new generation")]

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.thread.join()
        self.process.stdout.close()
