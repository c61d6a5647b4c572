"""tools/check counts test cases, whatever the program that ran them says."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
import sys
import time

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "check"


@pytest.fixture(scope="module")
def check():
    loader = SourceFileLoader("check", str(TOOL))
    module = module_from_spec(spec_from_loader("check", loader))
    sys.modules["check"] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("result, text, expected", [
    ("OK", "1..2\nok 1 - a\nok 2 - b\n", (2, 0, 0)),
    ("FAIL", "1..2\nok 1 - a\nnot ok 2 - b\n# not ok - group\n", (1, 1, 0)),
    ("OK", "1..2\nok 1 - a\nnot ok 2 # SKIP b\n", (1, 0, 1)),
    ("FAIL", "1..3\nok 1 - a\n", (1, 1, 0)),
    ("TIMEOUT", None, (0, 1, 0)),
    ("OK", "no tap at all\n", (1, 0, 0)),
    ("SKIP", "", (0, 0, 1)),
])
def test_program_cases(check, result, text, expected):
    count = check.program_cases({"result": result, "stdout": text})
    assert (count.passed, count.failed, count.skipped) == expected


def test_junit_cases(check, tmp_path):
    report = tmp_path / "report.xml"
    report.write_text("<testsuites><testsuite><testcase/><testcase><failure/></testcase>"
                      "<testcase><error/></testcase><testcase><skipped/></testcase>"
                      "</testsuite></testsuites>")
    assert str(check.junit_cases(report)) == "1 passed, 2 failed, 1 skipped"


def test_every_need_is_a_stage_before(check):
    seen = set()
    for stage in check.STAGES:
        assert set(stage.needs) <= seen
        seen.add(stage.name)


def gone(pid_file):
    """The kernel ends a killed process soon, not at once."""
    stat = Path("/proc") / pid_file.read_text().strip() / "stat"
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if stat.read_text().split()[2] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
    return False


def test_a_stage_out_of_time_fails_and_leaves_nothing(check, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check, "LOGS", tmp_path)
    monkeypatch.setattr(check, "GRACE", 1)
    script = f"sleep 600 & echo $! >{tmp_path}/child; echo $$ >{tmp_path}/leader; wait"
    stage = check.Stage("slow", "never ends", 1, lambda run: run.ok("sh", "-c", script))
    assert str(check.run_stage(stage, set())) == "0 passed, 1 failed, 0 skipped"
    assert "no end after 1 s" in capsys.readouterr().out
    assert gone(tmp_path / "leader")
    assert gone(tmp_path / "child")


def test_a_failing_stage_shows_its_output(check, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check, "LOGS", tmp_path)
    stage = check.Stage("bad", "fails", 9, lambda run: run.ok("sh", "-c", "echo why; exit 3"))
    assert check.run_stage(stage, set()).failed == 1
    assert "\nwhy\n" in capsys.readouterr().out
