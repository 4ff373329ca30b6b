"""Code that the documentation quotes is the code that there is; every page can be found."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_FILE = r"\(`([\w/]+\.py)`\)"
_QUOTED = re.compile(rf"{_FILE}(?:(?!{_FILE}).)*?```python\n(@.*?)```", re.DOTALL)


def quotations() -> list[tuple[str, str]]:
    """Return the file that is named before each quoted function, and the quotation."""
    page = ROOT / "docs" / "adding-an-operator.md"
    found = _QUOTED.finditer(page.read_text(encoding="utf-8"))
    return [(match[1], match[3]) for match in found]


def test_there_are_quotations() -> None:
    assert len(quotations()) == 2


@pytest.mark.parametrize(("path", "code"), quotations(), ids=lambda text: text[:30])
def test_a_quoted_function_is_that_of_the_file(path: str, code: str) -> None:
    assert code in (ROOT / path).read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation() -> None:
    """Decisions are not: their own page lists them."""
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    listed = re.findall(r"[\w-]+\.md", str(project["nav"]))
    pages = [page.name for page in (ROOT / "docs").glob("*.md")]
    assert sorted(name for name in listed if name != "index.md") == sorted({*pages} - {"index.md"})
