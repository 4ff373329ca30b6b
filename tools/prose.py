"""Prose checks for docstrings, comments and Markdown: `python tools/prose.py [FILE ...]`.

Each rule is a turn of phrase that technical English avoids, with a remedy. Inline code, code
blocks, tables and tests are not checked. Folders that still have findings have a ceiling in
pyproject.toml (`[tool.tensoropt.prose]`), which may only fall: a folder above its ceiling is an
error, and a folder below it must lower the ceiling. Exits with 1 after an error. Linear in text.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("bench", "compiler", "dialects", "elastic", "passes", "runtime", "serving", "tools")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs")


@dataclass(frozen=True)
class Rule:
    """A turn of phrase, and the remedy that a finding prints."""

    pattern: re.Pattern[str]
    remedy: str


def _rule(pattern: str, remedy: str) -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), remedy)


_CLAUSE = r"(?:^|[.;:,(] ?|\b(?:of|and|or|is|are|than|for|to|by|in|from|with|on|says?|knows?) )"
RULES = (
    _rule(_CLAUSE + r"(?:what|who|whoever|whatever)\b(?! (?:if|about)\b)", "name the noun"),
    _rule(r"\b(?:whom|whose)\b", "whose is for people: 'the operator's', 'with', 'that has'"),
    _rule(r"\bof (?:which|whom)\b", "start a new sentence"),
    _rule(r"\b(?:lies|lie|lying)\b", "is stored, is placed, is laid out"),
    _rule(r"\b(?:beside|anew|alike|meanwhile|likewise)\b", "next to, again, the same, during, too"),
    _rule(r"\bbehind\b", "after, under"),
    _rule(r"\b(?:is|are|was|were|be) there\b(?!fore)", "exists"),
    _rule(r"\bas (?:it|they) (?:is|are|lies|lie|comes|come|stands|stand)\b", "unchanged"),
    _rule(r"\bbut for\b", "except"),
    _rule(r"\bone after (?:the other|another)\b", "in sequence"),
    _rule(r"\bnot any more\b", "no longer"),
)
_OPENING = re.compile(r"(?:What|Whether|Who|Whom|Whose|How|Where|That|Which)\b")
_OPENING_REMEDY = "a docstring begins with a verb (function) or a noun (module, class)"

# Prepositions, adverbs and participles that are no name for a function.
_NO_VERB = re.compile(
    "above|after|alike|alone|anew|apart|aside|asked|at|before|begun|behind|below|beneath|beside|"
    "between|beyond|by|for|found|from|given|gone|held|in|inside|kept|known|left|listed|lost|"
    "made|meanwhile|named|of|on|outside|said|seen|sent|shown|taken|together|told|with|within|"
    "without|written"
)


@dataclass(frozen=True)
class Finding:
    """A place, the words found there, and the remedy."""

    path: Path
    line: int
    words: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.path.relative_to(ROOT)}:{self.line}"
        return f"{place}: prose: {self.words!r}: {self.remedy}"


def findings(path: Path) -> Iterator[Finding]:
    """Yield the findings of one Python, C++ or Markdown file.

    Phrases are searched per paragraph, so that a line break does not hide them.
    """
    source = path.read_text(encoding="utf-8")
    texts = _MAKERS[path.suffix](source)
    for line, text, is_docstring in texts:
        if is_docstring and (match := _OPENING.match(text)):
            yield Finding(path, line, match.group(), _OPENING_REMEDY)
        plain = re.sub(r"``?[^`]*``?", lambda code: "`" * len(code.group()), text)
        for rule in RULES:
            for match in rule.pattern.finditer(plain.replace("\n", " ")):
                offset = plain.count("\n", 0, match.start())
                yield Finding(path, line + offset, match.group().strip(" .,;:("), rule.remedy)
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                is_property = any("property" in ast.unparse(d) for d in node.decorator_list)
                if _NO_VERB.fullmatch(node.name.strip("_")) and not is_property:
                    yield Finding(path, node.lineno, node.name, "a function is a verb")


Texts = Iterator[tuple[int, str, bool]]


def _python(source: str) -> Texts:
    """Yield the first line, the text and whether it is a docstring, of docstrings and comments."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for child in node.body:
            value = child.value if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value, child is node.body[0]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from _joined((t.start[0], t.string[1:]) for t in tokens if t.type == tokenize.COMMENT)


def _cpp(source: str) -> Texts:
    """Yield the ``//`` comments of a C++ file."""
    lines = enumerate(source.splitlines(), 1)
    yield from _joined(
        (number, match.group(1))
        for number, line in lines
        if (match := re.search(r"(?:^|\s)///?<?(?:\s(.*))?$", line)) and match.group(1)
    )


def _joined(comments: Iterator[tuple[int, str]]) -> Texts:
    """Join comments on adjacent lines to one text."""
    first, texts = 0, list[str]()
    for line, text in comments:
        if texts and line != first + len(texts):
            yield first, "\n".join(texts), False
            texts = []
        if not texts:
            first = line
        texts.append(text.strip())
    if texts:
        yield first, "\n".join(texts), False


def _markdown(source: str) -> Texts:
    """Yield the paragraphs of a page, without code and tables."""
    fenced, first, texts = False, 0, list[str]()
    for number, line in enumerate([*source.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        fenced ^= is_fence
        is_text = not (is_fence or fenced or line.startswith(("    ", "|", "<!--")))
        if line.strip() and is_text:
            first = number if not texts else first
            texts.append(line.strip())
        elif texts:
            yield first, "\n".join(texts), False
            texts = []


_MAKERS = {".py": _python, ".cpp": _cpp, ".hpp": _cpp, ".md": _markdown}


def sources() -> list[Path]:
    """Return every file that is checked."""
    found = [path for room in ROOMS for path in (ROOT / room).rglob("*")]
    found += [path for page in PAGES for path in (ROOT / page, *(ROOT / page).rglob("*.md"))]
    return sorted(path for path in found if path.suffix in _MAKERS and path.is_file())


def room_of(path: Path, rooms: Sequence[str]) -> str:
    """Return the longest of ``rooms`` that contains ``path``, or the first part of its path."""
    place = path.relative_to(ROOT).as_posix()
    inside = [room for room in rooms if place == room or place.startswith(f"{room}/")]
    return max(inside, key=len, default=place.split("/")[0])


def main() -> int:
    """Check the given files, or all with the ceilings of their folders."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print every finding, not only errors")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="without ceilings")
    arguments = parser.parse_args()
    paths = [path.resolve() for path in arguments.files] or sources()
    found = [finding for path in paths for finding in findings(path)]
    if arguments.files or arguments.list:
        print(*found, sep="\n")
    if arguments.files:
        return bool(found)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ceilings: dict[str, int] = settings["tool"]["tensoropt"]["prose"]
    counts = Counter(room_of(finding.path, list(ceilings)) for finding in found)
    failed = False
    for room in sorted({*counts, *ceilings}):
        ceiling = ceilings.get(room, 0)
        if counts[room] > ceiling:
            failed = True
            own = [finding for finding in found if room_of(finding.path, list(ceilings)) == room]
            print(*own[-20:], sep="\n")
            print(f"{room}: error: expected at most {ceiling} findings, got: {counts[room]}")
        elif counts[room] < ceiling:
            failed = True
            print(
                f"{room}: error: {counts[room]} findings, lower its ceiling of {ceiling} in "
                "pyproject.toml ([tool.tensoropt.prose])"
            )
    return failed


if __name__ == "__main__":
    sys.exit(main())
