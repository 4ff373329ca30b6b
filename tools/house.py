"""Count properties of the code that reviews ask for: `python tools/house.py [FOLDER]`, a checkout.

Per package: uses of `Any` per 1,000 lines, comments per 100 lines, functions and their lengths, the
shares of private functions and of those used once, and of public functions with a docstring. In
total: lit files, CHECK lines, CHECKs that name a fixed SSA value, uses of the name `held`, and
attributes of topt in literals.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOMS = ("compiler", "dialects", "elastic", "passes", "runtime")
CHECK = re.compile(r"(?://|#|;)\s*CHECK[A-Z0-9-]*(?:\{[A-Z]+\})?:(.*)")
FIXED_NAME = re.compile(r"%[A-Za-z0-9_]+")
PATTERN = re.compile(r"\{\{.*?\}\}|\[\[.*?\]\]")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """A Python file: its path below the checkout, text and tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package that it counts for: `compiler/search`, `dialects`."""
        parts = self.path.parent.parts
        return "/".join(parts[:2]) if parts[0] in ("compiler", "elastic", "runtime") else parts[0]

    @property
    def lines(self) -> int:
        """All lines, including blank lines and comments."""
        return len(self.text.splitlines())

    def functions(self) -> Iterator[Function]:
        """Yield functions and methods, including inner functions."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))


def sources(root: Path) -> list[Source]:
    """Return all Python files of the rooms below ``root``."""
    paths = sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))
    texts = [(path.relative_to(root), path.read_text(encoding="utf-8")) for path in paths]
    return [Source(path, text, ast.parse(text)) for path, text in texts if text]


def annotations(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the annotations of parameters, results and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, Function) and node.returns is not None:
            yield node.returns


def count_any(source: Source) -> int:
    """Return the number of uses of `Any` in annotations."""
    nodes = (node for part in annotations(source.tree) for node in ast.walk(part))
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)


def count_comments(source: Source) -> int:
    """Return the number of lines with a comment that is not for a tool."""
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    found = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return sum(not re.match(r"#\s*(type:|noqa|!)", text) for text in found)


def names_used(files: list[Source]) -> Counter[str]:
    """Return the number of reads of each name, as a name or after a dot."""
    used: Counter[str] = Counter()
    for node in (node for source in files for node in ast.walk(source.tree)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            used[node.id] += 1
        elif isinstance(node, ast.Attribute):
            used[node.attr] += 1
    return used


def percent(part: int, whole: int) -> str:
    """Return a share in whole percent."""
    return f"{100 * part / whole:.0f}%" if whole else "-"


def package_row(files: list[Source]) -> list[str]:
    """Return the counts of the files of one package."""
    lines = sum(source.lines for source in files)
    functions = [(source, one) for source in files for one in source.functions()]
    lengths = sorted((one.end_lineno or 0) - one.lineno + 1 for _, one in functions) or [0]
    private = [(s, f) for s, f in functions if re.match(r"_(?!_)", f.name)]
    used = {source.path: names_used([source]) for source in files}
    once = sum(used[source.path][one.name] == 1 for source, one in private)
    public = [one for _, one in functions if not one.name.startswith("_")]
    described = sum(ast.get_docstring(one) is not None for one in public)
    return [
        str(lines),
        f"{1000 * sum(map(count_any, files)) / lines:.1f}",
        f"{100 * sum(map(count_comments, files)) / lines:.1f}",
        str(len(functions)),
        f"{statistics.median(lengths):.0f}/{lengths[len(lengths) * 9 // 10]}/{lengths[-1]}",
        percent(len(private), len(functions)),
        percent(once, len(private)),
        percent(described, len(public)),
    ]


def packages(files: list[Source]) -> Iterator[list[str]]:
    """Yield the row of each package and the row of all packages."""
    for package in sorted({source.package for source in files}):
        yield [package, *package_row([s for s in files if s.package == package])]
    yield ["all", *package_row(files)]


def lit_counts(root: Path) -> dict[str, int]:
    """Return the counts of the lit tests."""
    suffixes = (".mlir", ".test", ".onnxtxt", ".txt")
    files = [p for p in (root / "test").rglob("*") if p.suffix in suffixes and p.is_file()]
    texts = [text for p in files if "RUN:" in (text := p.read_text(encoding="utf-8"))]
    checks = [match[1] for text in texts for match in CHECK.finditer(text)]
    fixed = sum(FIXED_NAME.search(PATTERN.sub("", check)) is not None for check in checks)
    return {
        "lit files": len(texts),
        "CHECK lines": len(checks),
        "CHECK lines with a fixed SSA name": fixed,
    }


def word_counts(files: list[Source]) -> dict[str, int]:
    """Return the uses of the name `held`, and of `topt.` in literals outside the dialect."""
    nodes = [(s, node) for s in files for node in ast.walk(s.tree)]
    held = sum(
        isinstance(n, ast.Name | ast.arg)
        and "held" in (getattr(n, "id", ""), getattr(n, "arg", ""))
        for _, n in nodes
    )
    literals = sum(
        isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value.startswith("topt.")
        for s, n in nodes
        if s.path.parts[:2] != ("dialects", "topt")
    )
    return {"uses of the name held": held, "literals topt.* outside dialects/topt": literals}


HEADER = ["package", "lines", "Any/1000", "comments/100", "functions", "length 50/90/max"]
HEADER += ["private", "private used once", "public with docstring"]


def main() -> None:
    """Print the counts as Markdown tables."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    files = sources(root)
    for row in (HEADER, ["---"] * len(HEADER), *packages(files)):
        print("| " + " | ".join(row) + " |")
    print()
    for name, count in (lit_counts(root) | word_counts(files)).items():
        print(f"- {name}: {count}")


if __name__ == "__main__":
    main()
