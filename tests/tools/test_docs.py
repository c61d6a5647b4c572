"""Links between the project's documents lead somewhere."""

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
