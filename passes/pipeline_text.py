"""Parser of pass pipelines in mlir-opt's syntax: ``a,b{option=value},func.func(cse)``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tensoropt.compiler.support.errors import UserError

__all__ = ["Element", "parse_elements", "parse_options"]

_NAME = re.compile(r"[\w.-]+")
_OPTION = re.compile(r"""([\w-]+)(?:=('[^']*'|"[^"]*"|\{[^}]*\}|[^\s{}'"]+))?(?:\s+|$)""")


@dataclass(frozen=True)
class Element:
    """One entry of a pipeline: a pass with its options, or an anchor op around ``inner``."""

    name: str
    options: str = ""
    inner: tuple[Element, ...] | None = None

    def __str__(self) -> str:
        nested = "" if self.inner is None else f"({','.join(map(str, self.inner))})"
        return f"{self.name}{nested}" + (f"{{{self.options}}}" if self.options else "")

    def walk(self) -> Iterator[Element]:
        """Yield this element and all nested elements."""
        yield self
        for child in self.inner or ():
            yield from child.walk()


def parse_elements(text: str) -> list[Element]:
    """Return the entries of a pipeline, without an enclosing ``builtin.module(...)``."""
    parser = _Parser(text)
    elements = list(parser.elements())
    if parser.position < len(text):
        raise parser.error("',' or the end")
    if len(elements) == 1 and elements[0].name == "builtin.module":
        elements = list(elements[0].inner or ())
    return elements


def parse_options(name: str, text: str) -> dict[str, str]:
    """Return the ``key=value`` pairs, separated by blanks; a key alone means ``true``."""
    options: dict[str, str] = {}
    position, text = 0, text.strip()
    while position < len(text):
        match = _OPTION.match(text, position)
        if match is None:
            raise UserError(f"pass '{name}': expected options as key=value, got: '{text}'")
        options[match[1]] = match[2].strip("'\"") if match[2] else "true"
        position = match.end()
    return options


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def elements(self) -> Iterator[Element]:
        if not self.text[self.position :].strip():
            return
        yield self.element()
        while self.take(","):
            yield self.element()

    def element(self) -> Element:
        self.blanks()
        match = _NAME.match(self.text, self.position)
        if match is None:
            raise self.error("the name of a pass")
        self.position = match.end()
        inner = tuple(self.nested()) if self.take("(") else None
        options = self.braces() if self.take("{") else ""
        return Element(match[0], options, inner)

    def nested(self) -> list[Element]:
        found = [] if self.peek() == ")" else list(self.elements())
        if not self.take(")"):
            raise self.error("')'")
        return found

    def braces(self) -> str:
        start, depth = self.position, 1
        for index in range(start, len(self.text)):
            depth += {"{": 1, "}": -1}.get(self.text[index], 0)
            if depth == 0:
                self.position = index + 1
                self.blanks()
                return self.text[start:index]
        self.position = len(self.text)
        raise self.error("'}'")

    def take(self, sign: str) -> bool:
        if self.peek() != sign:
            return False
        self.position += 1
        self.blanks()
        return True

    def peek(self) -> str:
        self.blanks()
        return self.text[self.position : self.position + 1]

    def blanks(self) -> None:
        while self.text[self.position : self.position + 1].isspace():
            self.position += 1

    def error(self, expected: str) -> UserError:
        rest = self.text[self.position :] or "the end"
        return UserError(
            f"--pass-pipeline: at character {self.position + 1} expected {expected}, got: '{rest}'"
        )
