"""Comparing diagnostics with `expected-...` comments."""

from __future__ import annotations

import pytest

from tensoropt.compiler.cli.expected import Expectation, mismatches, parse_expectations
from tensoropt.compiler.support.errors import UserError
from tensoropt.passes.diagnostics import Diagnostic


class Line:
    """Stands for an MLIR location in a file."""

    filename, start_col = "-", 1

    def __init__(self, line: int) -> None:
        self.start_line = line


@pytest.mark.parametrize(
    ("comment", "line"),
    [
        ("// expected-error {{x}}", 10),
        ("op // expected-error {{x}}", 10),
        ("// expected-error@+2 {{x}}", 12),
        ("// expected-error@-1 {{x}}", 9),
        ("// expected-error@below {{x}}", 11),
        ("// expected-error@above {{x}}", 9),
        ("// expected-error@unknown {{x}}", None),
    ],
)
def test_where_a_comment_points(comment: str, line: int | None) -> None:
    (found,) = parse_expectations(f"\n{comment}\nop\n", 9, "a.mlir")
    assert found == Expectation("error", "x", line, 10)


def test_below_skips_other_comments() -> None:
    text = "// expected-error@below {{a}}\n// expected-note@below {{b}}\nop\n"
    assert [(e.severity, e.line) for e in parse_expectations(text, 1, "a")] == [
        ("error", 3),
        ("note", 3),
    ]


@pytest.mark.parametrize(
    "comment",
    ["// expected-error {x}", "// expected-error@ {{x}}", "// expected-error-re {{x}}",
     "// expected-warning: x", "// expected-error {{x}} and more"],
)  # fmt: skip
def test_a_misspelt_comment_is_refused(comment: str) -> None:
    with pytest.raises(UserError, match=r"a\.mlir:3: expected a comment such as"):
        parse_expectations(f"\n\n{comment}", 1, "a.mlir")


def test_each_comment_is_answered_once() -> None:
    expected = [Expectation("error", "bad", 3, 2)]
    came = [Diagnostic("error", "very bad", Line(3)), Diagnostic("error", "bad", Line(3))]
    assert mismatches(expected, came[:1]) == []
    assert mismatches(expected, came) == [(3, "unexpected error: bad")]


@pytest.mark.parametrize(
    "came",
    [
        Diagnostic("error", "good", Line(3)),
        Diagnostic("warning", "bad", Line(3)),
        Diagnostic("error", "bad", Line(4)),
        Diagnostic("error", "bad"),
    ],
)
def test_text_severity_and_line_must_agree(came: Diagnostic) -> None:
    wrong = mismatches([Expectation("error", "bad", 3, 2)], [came])
    assert len(wrong) == 2
    assert wrong[1] == (2, 'expected error "bad" was not produced')
