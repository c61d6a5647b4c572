"""The project's documents lead somewhere and say what the code says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    broken = [target for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
              if "://" not in target and not (page.parent / target).exists()]
    assert broken == []


def headings(page):
    """The anchors of a page's headings, as they are made of their words."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-")
            for line in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_to_headings(page):
    broken = [f"{target}#{anchor}"
              for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text())
              if "://" not in target
              and anchor not in headings(page.parent / target if target else page)]
    assert broken == []


def test_operations_names_what_we_own():
    """Every number and name of src/model/names.h stands in docs/operations.md."""
    text = (ROOT / "docs/operations.md").read_text()
    header = (ROOT / "src/model/names.h").read_text()
    values = re.findall(r"^#define (\w+) +(?:\((-?\d+)\)|\"([^\"]+)\"|(0x[0-9a-f]+|\d+)u?)", header,
                        flags=re.MULTILINE)
    assert len(values) > 15
    missing = [name for name, *value in values
               if not re.search(rf"(?<![\w.-]){re.escape(''.join(value))}(?!\w)", text)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_tests_and_sources_named_in_a_page_exist(page):
    wrong = []
    for path, test in re.findall(r"`((?:tests|src|lab|tools)/[\w./-]+)(?:::(\w+))?`",
                                 page.read_text()):
        target = ROOT / path
        if not target.exists() or test and f"def {test}(" not in target.read_text():
            wrong.append(f"{path}::{test}" if test else path)
    assert wrong == []


USER_PAGES = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))


def in_sources(pattern):
    """What string literals of the program hold, by the expression's group."""
    found = set()
    for file in (ROOT / "src").rglob("*.c"):
        if file.parent.name != "cli":
            found |= set(re.findall(pattern, file.read_text()))
    return found


def test_every_metric_is_in_the_docs():
    names = in_sources(r'"(?:# TYPE )?((?:portolan|kubeproxy)_[a-z_]+)[" ]')
    assert len(names) > 35 and "portolan_api_requests_total" in names
    assert [name for name in sorted(names) if f"`{name}`" not in USER_PAGES] == []


def test_every_metric_of_the_docs_is_there():
    families = in_sources(r"\b((?:portolan|kubeproxy)_[a-z_]+)")
    named = set(re.findall(r"`((?:portolan|kubeproxy)_[a-z_]+[a-z])`", USER_PAGES))
    assert named - families == set()


def test_every_reason_is_in_the_docs():
    """Of conditions, problems and so of Events: words of more than one part."""
    reasons = in_sources(r'"((?:[A-Z][a-z0-9]+){2,})"')
    assert len(reasons) > 60 and {"NoHolder", "MoreProblems", "PortConflict"} <= reasons
    assert [word for word in sorted(reasons) if not re.search(rf"\b{word}\b", USER_PAGES)] == []
