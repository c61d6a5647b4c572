"""tools/layering sees each kind of forbidden include and variable, and lets the rest pass."""

import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "layering"

CLEAN = {
    "base/arena.h": "#include <stddef.h>\n#include <sys/mman.h>\n",
    "base/log.h": "",
    "base/clock.h": "",
    "model/object.h": '#include "base/arena.h"\n',
    "plan/plan.h": '#include "model/object.h"\n',
    "plan/plan.c": '#include "plan/plan.h"\n#include <string.h>\n'
                 'static int add(int a) { int b = a; return b; }\n'
                 'static const char *const names[] = { "a" };\nstatic const struct x { int y; } z;\n',
    "kernel/kernel.h": '#include "model/object.h"\n',
    "kernel/nft_set.h": "",
    "kernel/nft_batch.c": '#include "kernel/nft_set.h"\n#include "kernel/kernel.h"\n',
    "kernel/link.h": "",
    "kernel/rtnl_dump.c": '#include "kernel/link.h"\n',
    "kernel/link.c": '#include "link.h"\n#include <libmnl/libmnl.h>\n',
    "source/dir/watch.h": "#include <uv.h>\n",
    "agent/loop.c": '#include "kernel/link.h"\n#include "source/dir/watch.h"\n',
}


def layering(root, files):
    for name, text in files.items():
        path = root / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return subprocess.run([TOOL, root / "src"], capture_output=True, text=True)


def test_clean_tree_passes(tmp_path):
    run = layering(tmp_path, CLEAN)
    assert (run.returncode, run.stdout) == (0, "")


@pytest.mark.parametrize("name, text, says", [
    ("base/arena.c", '#include "model/object.h"\n', "base/ may not include"),
    ("model/bad.c", '#include "plan/plan.h"\n', "model/ may not include"),
    ("plan/bad.c", '#include "kernel/link.h"\n', "plan/ may not include"),
    ("plan/bad.c", '#include "base/log.h"\n', "plan/ is pure"),
    ("plan/bad.c", '#include "base/clock.h"\n', "plan/ is pure"),
    ("plan/bad.c", "#include <time.h>\n", "plan/ is pure"),
    ("plan/bad.c", "#  include <unistd.h>\n", "plan/ is pure"),
    ("base/bad.c", "#include <uv.h>\n", "C library alone"),
    ("plan/bad.c", "    static struct plan plans[2]\n        [3];\n", "may not keep `struct plan plans`"),
    ("plan/bad.c", "static const char *last;\n", "may not keep `const char *last`"),
    ("diff/bad.c", "static unsigned calls = 0;\n", "diff/ is pure"),
    ("kernel/conntrack.c", '#include "kernel/link.h"\n', "kernel back end conntrack"),
    ("kernel/route.c", '#include "nft_set.h"\n', "kernel back end rtnl"),
    ("source/dir/bad.c", '#include "../../agent/loop.h"\n', "source/ may not include"),
    ("agent/bad.c", '#include "agent/gone.h"\n', "is not under src/"),
    ("misc/bad.c", "", "no place in the table"),
])
def test_violation_is_named(tmp_path, name, text, says):
    run = layering(tmp_path, CLEAN | {"agent/loop.h": "", name: text})
    assert run.returncode == 1
    lines = run.stdout.splitlines()
    assert len(lines) == 1
    assert name in lines[0] and says in lines[0]
