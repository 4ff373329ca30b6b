"""A test of the lit tests: filecheck passes over a directive that it cannot read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.rglob("*.mlir"))

COMMENT = re.compile(r"//\s*(\S.*)")
DIRECTIVE = re.compile(r"CHECK(-(NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT-\d+))?:")
# `CHECK` in capitals however it goes on, or any spelling near it that ends in a colon.
ALMOST = re.compile(
    r"CHECK\b|CHECK_|(?i:ch?e?[kce]{2,3}s?[-_ ]?(next|same|not|dag|label|empty)?\s*:)"
)


def problems(text: str) -> list[str]:
    """Return what is wrong with the directives of a lit test."""
    lines = text.splitlines()
    first = lines[0] if lines else ""
    wrong = [] if first.startswith("// RUN: ") else ["line 1: expected the RUN line"]
    for number, line in enumerate(lines[1:], 2):
        if "RUN:" in line:
            wrong.append(f"line {number}: a second RUN line")
        if is_misspelt(line):
            wrong.append(f"line {number}: not a directive that filecheck reads: {line.strip()}")
    if ("filecheck" in first) != bool(re.search(r"// CHECK[^:]*:", text)):
        wrong.append("filecheck and CHECK lines: one without the other")
    return wrong


def is_misspelt(line: str) -> bool:
    """Say whether a comment starts like a directive without being one."""
    comment = COMMENT.search(line)
    if comment is None or DIRECTIVE.match(comment[1]):
        return False
    return bool(ALMOST.match(comment[1]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_directives(path: Path) -> None:
    assert problems(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    ["// CHECK : x", "// CHECK_NEXT: x", "// CHECK-NXT: x", "// CHECK-NEXT : x", "// CHECK NEXT: x",
     "// check: x", "// Check-Next: x", "// CHECK x", "// CHEKC: x", "// CHECK-COUNT: x",
     "  // CHECK- NEXT: x"],
)  # fmt: skip
def test_misspelt_directives_are_found(line: str) -> None:
    text = f"// RUN: tensoropt-opt %s | filecheck %s\n// CHECK: y\n{line}\n"
    assert len(problems(text)) == 1


@pytest.mark.parametrize(
    "text",
    ["", "// CHECK: x\n", "\n// RUN: a\n", "// RUN: a | filecheck %s\n", "// RUN: a\n// CHECK: x\n",
     "// RUN: a\n// RUN: b\n"],
)  # fmt: skip
def test_wrong_shapes_are_found(text: str) -> None:
    assert problems(text)


@pytest.mark.parametrize("name", ["CHECK", "CHECK-NEXT", "CHECK-NOT", "CHECK-COUNT-2"])
def test_right_directives_pass(name: str) -> None:
    text = f"// RUN: tensoropt-opt %s | filecheck %s\n// A check: it passes.\n// {name}: x\n"
    assert problems(text) == []
