"""Pins: the notation for fixed or forbidden layouts of tensors and strategies of nodes.

``NAME=S(0)@x`` is about tensors, ``node:NAME=heads@x`` about nodes; docs/pins.md has the whole
notation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.mesh import AXIS_NAMES
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.runtime.layout.layout import Placement
from tensoropt.runtime.support.errors import cause_of

if TYPE_CHECKING:
    from tensoropt.compiler.protos.signatures import Signature

__all__ = ["NODE", "Pin", "annotated_pins", "read_pin", "read_pins_file"]

NODE = "node:"

_AXIS = re.compile(r"(.+)@([^@]+)")
_BRACKET = re.compile(r"\s*(\[[^\[\]]*\]|\*)\s*")
_MOST_AXIS = 63

AxisText = tuple[str, int | None]
"""The text for one axis, or for all axes without a number."""


@dataclass(frozen=True)
class Pin:
    """One pin: a pattern of tensors or nodes, and the text for each axis.

    ``layouts`` has exact layouts of the matched tensors instead, operands before results, ``None``
    for any; ``operands`` is the number of operands among them. A pin with a ``signature`` is from
    annotations: the compiler may have changed its node since.
    """

    source: str
    pattern: str
    is_node: bool
    forbids: bool
    says: tuple[AxisText, ...] = ()
    layouts: tuple[tuple[str, ...] | None, ...] = ()
    operands: int = 0
    signature: Signature | None = None

    def matches(self, names: Iterable[str]) -> list[str]:
        """Return the ``names`` that it matches: an equal name, else by pattern."""
        every = list(names)
        if self.pattern in every:
            return [self.pattern]
        return [name for name in every if fnmatchcase(name, self.pattern)]


def read_pin(text: str, *, forbids: bool = False) -> Pin:
    """Return the pin that a person has written, as ``NAME=S(0)@x``; raises UserError."""
    source = f"{'--forbid' if forbids else '--pin'} '{text}'"
    left, equals, right = text.rpartition("=")
    if not equals or not left.removeprefix(NODE).strip() or not right.strip():
        raise UserError(f"{source}: expected TENSOR=PLACEMENT or node:NODE=KIND, got: '{text}'")
    is_node = left.startswith(NODE)
    pin = Pin(source, left.removeprefix(NODE).strip(), is_node, forbids)
    if right.lstrip()[0] in "[*":
        return _with_layouts(pin, right)
    says = tuple(_axis_text(source, one.strip()) for one in right.split(","))
    _check_axes(source, [axis for _, axis in says])
    if not is_node:
        for placement, _ in says:
            _placement(source, placement)
    return replace(pin, says=says)


def _axis_text(source: str, text: str) -> AxisText:
    match = _AXIS.fullmatch(text)
    if match is None:
        return text, None
    name = match[2].strip()
    if len(name) == 1 and name in AXIS_NAMES:
        return match[1].strip(), AXIS_NAMES.index(name)
    number = name.removeprefix("a")
    if number.isdecimal() and int(number) <= _MOST_AXIS:
        return match[1].strip(), int(number)
    listed = ", ".join(AXIS_NAMES)
    raise UserError(
        f"{source}: unknown mesh axis, expected {listed} or a number from 0, got: '{name}'"
    )


def _check_axes(source: str, axes: Sequence[int | None]) -> None:
    if len(axes) > 1 and None in axes:
        raise UserError(f"{source}: expected an axis for each of several, as in S(0)@x,R@y")
    if len(set(axes)) < len(axes):
        raise UserError(f"{source}: says two things of one axis, expected one")


def _placement(source: str, text: str) -> Placement:
    """Parse a placement; an error names the pin."""
    try:
        return Placement.parse(text)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


def _with_layouts(pin: Pin, text: str) -> Pin:
    """Read exact layouts: of a tensor, ``[S(0), R]``; of a node, ``[R] [S(1)] -> *``."""
    operands, arrow, results = text.partition("->")
    if pin.is_node != bool(arrow):
        wanted = "[...] [...] -> [...]" if pin.is_node else "one layout, as [S(0), R]"
        raise UserError(f"{pin.source}: expected {wanted}, got: '{text.strip()}'")
    sides = [_brackets(pin, side) for side in (operands, results if arrow else "")]
    layouts = tuple(layout for side in sides for layout in side)
    sizes = {len(layout) for layout in layouts if layout is not None}
    if len(sizes) != 1 or (not pin.is_node and len(layouts) > 1):
        raise UserError(f"{pin.source}: expected layouts of one mesh, got: '{text.strip()}'")
    return replace(pin, layouts=layouts, operands=len(sides[0]))


def _brackets(pin: Pin, text: str) -> list[tuple[str, ...] | None]:
    found: list[tuple[str, ...] | None] = []
    at = 0
    while at < len(text.rstrip()):
        match = _BRACKET.match(text, at)
        if match is None:
            raise UserError(
                f"{pin.source}: expected layouts as [S(0), R], or *, got: '{text[at:].strip()}'"
            )
        inner = match[1].strip("[]")
        placements = tuple(one.strip() for one in inner.split(","))
        found.append(None if match[1] == "*" else placements)
        for placement in () if match[1] == "*" else placements:
            _placement(pin.source, placement)
        at = match.end()
    return found


def annotated_pins(path: Path) -> tuple[Pin, ...]:
    """Return the pins of the annotations of a model."""
    from tensoropt.compiler.importer.annotations import read_annotations

    return tuple(
        Pin(
            source=f"annotation of node '{node.name}'",
            pattern=node.name,
            is_node=True,
            forbids=False,
            layouts=(*node.operands, *node.results),
            operands=len(node.operands),
            signature=node.signature,
        )
        for node in read_annotations(path).nodes
    )


def read_pins_file(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the pins and the exclusions of a TOML file, in the notation of flags.

    Its tables ``[pin]`` and ``[forbid]`` have the left sides as keys; a value is a text, or a list
    of texts. Raises UserError.
    """
    import tomllib  # a tenth of the time of --version

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--pins {path}: {cause_of(error)}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"--pins {path}: expected TOML, got: {error}") from None
    for name in document:
        if name not in ("pin", "forbid"):
            near = did_you_mean(name, ("pin", "forbid"))
            raise UserError(
                f"--pins {path}: expected tables [pin] and [forbid], got: '{name}'{near}"
            )
    pins, forbidden = (
        tuple(_rows(path, name, document.get(name, {}))) for name in ("pin", "forbid")
    )
    return pins, forbidden


def _rows(path: Path, table: str, rows: object) -> Iterator[str]:
    if not isinstance(rows, dict):
        raise UserError(f"--pins {path}: {table}: expected a table, got: {rows!r}")
    for left, right in rows.items():
        for one in right if isinstance(right, list) else [right]:
            if not isinstance(one, str):
                raise UserError(
                    f"--pins {path}: '{left}': expected a text or a list of texts, got: {one!r}"
                )
            yield f"{left}={one}"
