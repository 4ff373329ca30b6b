"""Code that the documentation quotes is the code that there is; every page can be found."""

from __future__ import annotations

import importlib
import re
import sys
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


PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
_ROOMS = "bench|compiler|dialects|docs|docker|elastic|examples|passes|runtime|serving|test|tools"
_PLACE = re.compile(rf"`((?:{_ROOMS})/[\w./-]+)`")
_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")

# Flags of other programs, which the pages tell people to use.
_FOREIGN = {
    "--address", "--exclusive", "--find-links", "--force-reinstall", "--from-literal",
    "--gpus", "--gpus-per-node", "--gtest_filter", "--head", "--help", "--max-restarts",
    "--min-nodes", "--model-repository", "--mpi", "--nnodes", "--no-deps", "--no-python",
    "--nodes", "--ntasks-per-node", "--rdzv-backend", "--rdzv-endpoint", "--rm", "--shm-size",
    "--version",
}  # fmt: skip


def known_flags() -> set[str]:
    """Return the flags of our commands, and of the scripts in bench, docs, test and tools."""
    sys.path.insert(0, str(ROOT / "docs"))
    flag_tables = importlib.import_module("flag_tables")
    text = "".join(flag_tables.command_page().split("## Output")[0])
    known = set(_FLAG.findall(text))
    for folder in ("bench", "docs", "elastic", "examples", "runtime", "serving", "test", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            known.update(re.findall(r'"(--[a-z][\w-]*)"', path.read_text(encoding="utf-8")))
    return known | _FOREIGN


def test_every_flag_in_the_pages_exists() -> None:
    known = known_flags()
    unknown = {
        f"{page.relative_to(ROOT)}: {flag}"
        for page in PAGES
        for flag in _FLAG.findall(_without_links(page.read_text(encoding="utf-8")))
        if flag not in known
    }
    assert unknown == set()


def test_every_file_in_the_pages_exists() -> None:
    missing = {
        f"{page.relative_to(ROOT)}: {place}"
        for page in PAGES
        for place in _PLACE.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / place).exists()
    }
    assert missing == set()


def test_every_target_in_the_pages_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    missing = {
        f"{page.relative_to(ROOT)}: make {target}"
        for page in PAGES
        for target in re.findall(r"`make ([\w-]+)", page.read_text(encoding="utf-8"))
        if target not in targets
    }
    assert missing == set()


def _without_links(text: str) -> str:
    """Return a page without the targets of its links, where two dashes are no flag."""
    return re.sub(r"\]\([^)]*\)|https?://\S+|<!--.*?-->", "", text)


ROOM_PAGES = sorted(ROOT.glob("[a-z]*/README.md"))


def test_every_room_has_a_page() -> None:
    rooms = {"compiler", "dialects", "elastic", "passes", "runtime", "serving", "bench", "test"}
    assert {page.parent.name for page in ROOM_PAGES} == rooms


@pytest.mark.parametrize("page", ROOM_PAGES, ids=lambda page: page.parent.name)
def test_a_room_page_names_files_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for place in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / place).exists(), place
    for place in re.findall(r"`([\w/]+/|[\w/]+\.py)`", text):
        assert (page.parent / place).exists() or (ROOT / place).exists(), place
