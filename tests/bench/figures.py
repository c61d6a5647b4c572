"""What the benches share: the agent under test, and the table of figures."""

import os
import platform
import re
import statistics
import subprocess
import time
from pathlib import Path

import machine

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD_DIR", ROOT / "build"))
PORTOLAN = Path(os.environ.get("PORTOLAN_BIN", BUILD / "portolan"))


def tool(name):
    return BUILD / "tests/bench" / f"bench-{name}"


class Agent:
    def __init__(self, namespace, node, source, scratch, *arguments):
        self.log_path = scratch / "agent.log"
        self.log = open(self.log_path, "w")
        self.read = 0
        self.started = time.monotonic_ns() / 1e3
        self.process = namespace.start(
            PORTOLAN, "agent", "--node", node, "--source", source, "--state-dir",
            scratch / "state", *arguments, stdout=self.log, stderr=self.log)
        self.pid = self.process.pid

    def passes(self):
        """Of each pass since the last call that sent anything: its figures by the log's names, as
        numbers, and `pass_us`, plan, diff and kernel together."""
        text = self.log_path.read_text(errors="replace")
        new, self.read = text[self.read:], len(text)
        found = []
        for line in re.findall(r"event=applied (.*)", new):
            one = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)}
            found.append(one | {"pass_us": one["plan_us"] + one["apply_us"]})
        return found

    def tail(self):
        return self.log_path.read_text()[-2000:]

    def stop(self):
        machine.stop(self.process)
        self.log.close()
        if self.process.returncode:
            raise RuntimeError(f"the agent ended with {self.process.returncode}:\n{self.tail()}")


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def medians(rows):
    """Of dictionaries with the same keys."""
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def describe():
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    version = subprocess.run([PORTOLAN, "version"], capture_output=True, text=True).stdout.strip()
    return (f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} CPUs, "
            f"Linux {platform.release()}, {version}, load {os.getloadavg()[0]:.1f}")


def table(figures, columns, results, judged):
    """`figures`: (key, what it is, unit, format, target or None); `results` by column and key. The
    column `judged` has to meet the targets: at most that much, at least for a target that is a
    tuple. -> (text, number of targets missed)"""
    rows = [["", *columns, "", "target", "holds"]]
    missed = 0
    for key, what, unit, form, target in figures:
        values = [results[c].get(key) for c in columns]
        row = [what, *["" if v is None else format(v, form) for v in values], unit, "", ""]
        value = results[judged].get(key) if judged in results else None
        if target is not None and value is not None:
            least, bound = isinstance(target, tuple), target[0] if isinstance(target, tuple) else target
            rounded = float(format(value, form))
            holds = rounded >= bound if least else rounded <= bound
            missed += not holds
            row[-2:] = [f"{'>=' if least else '<='} {bound}" if bound else "0",
                        "yes" if holds else "NO"]
        rows.append(row)
    width = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(width[c]) if 0 < c <= len(columns) else cell.ljust(width[c])
                 for c, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines), missed
