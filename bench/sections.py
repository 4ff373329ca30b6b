"""Writer of the sections of docs/benchmarks.md that benchmarks generate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tensoropt.runtime.support.flags import Parser

__all__ = ["print_section", "write_section"]

_DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def write_section(name: str, text: str, document: Path = _DOCUMENT) -> None:
    """Put ``text`` between the markers ``<!-- name -->`` and ``<!-- /name -->`` of the document.

    Without these markers, the section is appended. Text outside them does not change.
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    whole = document.read_text(encoding="utf-8") if document.exists() else "# Benchmarks\n\n"
    before, found, rest = whole.partition(begin)
    after = rest.partition(end + "\n")[2] if found else ""
    gap = "" if found or before.endswith("\n\n") else "\n"
    section = f"{begin}\n{text.strip()}\n{end}\n"
    document.write_text(before + gap + section + after, encoding="utf-8")


def print_section(description: str | None, name: str, text: str, table: Callable[[], str]) -> None:
    """Run a command that prints a table and, with --write, writes it below ``text``."""
    parser = Parser(description=description)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    arguments = parser.parse()
    rows = table()
    print(rows)
    if arguments.write:
        write_section(name, text + rows)
