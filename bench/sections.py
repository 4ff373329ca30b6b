"""Writer of the sections of docs/benchmarks.md that benchmarks generate."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tensoropt.runtime.support.flags import Parser

__all__ = ["markdown_table", "print_comparison", "print_lines", "print_section", "write_section"]

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


def markdown_table(head: Sequence[str], rule: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; ``rule`` is the line below ``head``, with the alignments."""
    lines = (f"| {' | '.join(cells)} |" for cells in rows)
    return "\n".join([f"| {' | '.join(head)} |", rule, *lines])


def print_lines(name: str, text: str, lines: Iterable[str], *, writes: bool) -> None:
    """Print each line of a table when it is made; if it ``writes``, put all below ``text``."""
    made = []
    for line in lines:
        print(line, flush=True)
        made.append(line)
    if writes:
        write_section(name, f"{text}\n" + "\n".join(made))


def print_section(description: str | None, name: str, text: str, table: Callable[[], str]) -> None:
    """Run a command that prints a table and, with --write, writes it below ``text``."""
    _print_section(Parser(description=description), name, text, lambda _: table())


def print_comparison(
    description: str | None, measured: str, name: str, text: str, table: Callable[[Path], str]
) -> None:
    """Run a command as `print_section`, with a file as argument, which is ``measured``."""
    parser = Parser(description=description)
    parser.add_argument("measured", type=Path, help=measured)
    _print_section(parser, name, text, lambda given: table(given.measured))


def _print_section(parser: Parser, name: str, text: str, table: Callable[[Namespace], str]) -> None:
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    given = parser.parse()
    rows = table(given)
    print(rows)
    if given.write:
        write_section(name, f"{text}\n{rows}")
