"""The `expected-error {{...}}` comments of a text, and their comparison with diagnostics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.compiler.support.errors import UserError
from tensoropt.passes.diagnostics import Diagnostic, line_of

__all__ = ["Expectation", "mismatches", "parse_expectations"]

_MENTION = re.compile(r"//.*\bexpected-(?:error|warning|note|remark)")
_COMMENT = re.compile(
    r"\bexpected-(error|warning|note|remark)(?:@([+-]\d+|above|below|unknown))?\s*\{\{(.*)\}\}\s*$"
)


@dataclass(frozen=True)
class Expectation:
    """An expected diagnostic.

    ``text`` is part of its message; ``line`` is None for a diagnostic without a place.
    """

    severity: str
    text: str
    line: int | None
    comment_line: int


def parse_expectations(text: str, first_line: int, file: str) -> list[Expectation]:
    """Return the expectations in ``text``, which starts at line ``first_line`` of ``file``."""
    lines = text.splitlines()
    found = []
    for index, line in enumerate(lines):
        if not _MENTION.search(line):
            continue
        match = _COMMENT.search(line)
        if match is None:
            raise UserError(
                f"{file}:{first_line + index}: expected a comment such as "
                f"// expected-error@+1 {{{{text}}}}, got: '{line.strip()}'"
            )
        target = _target(match[2], index, lines, first_line)
        found.append(Expectation(match[1], match[3], target, first_line + index))
    return found


def mismatches(
    expectations: Sequence[Expectation], diagnostics: Sequence[Diagnostic]
) -> list[tuple[int | None, str]]:
    """Return (line, message) of each unexpected or missing diagnostic."""
    open_ = list(expectations)
    wrong: list[tuple[int | None, str]] = []
    for diagnostic in diagnostics:
        match = next((e for e in open_ if _matches(e, diagnostic)), None)
        if match:
            open_.remove(match)
        else:
            text = f"unexpected {diagnostic.severity}: {diagnostic.message}"
            wrong.append((line_of(diagnostic.location), text))
    for e in open_:
        wrong.append((e.comment_line, f'expected {e.severity} "{e.text}" was not produced'))
    return wrong


def _target(place: str | None, index: int, lines: Sequence[str], first_line: int) -> int | None:
    if place == "unknown":
        return None
    if place in ("above", "below"):
        step = 1 if place == "below" else -1
        index += step
        while 0 <= index < len(lines) and _MENTION.search(lines[index]):
            index += step
        return first_line + index
    return first_line + index + int(place or 0)


def _matches(expectation: Expectation, diagnostic: Diagnostic) -> bool:
    return (
        expectation.severity == diagnostic.severity
        and expectation.line == line_of(diagnostic.location)
        and expectation.text in diagnostic.message
    )
