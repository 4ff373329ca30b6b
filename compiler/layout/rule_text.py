"""The text form of rules in the IR, in files and in messages.

The map gives the factor of each dimension of each operand and result, ``_`` for none:
``(i, k), (k, j) -> (i, j)``. The factors follow: ``i=4``, ``k=? whole``, ``k=1024 sum``,
``h=14 least=3``, ``v=50257 padded``, and ``b=? mean=36 end=64 step=8`` for an open dimension.
``n=2304 of 3`` has blocks; ``(j, n of 3) -> (j, n)`` has them in one tensor only. ``n=768 in 12``
has units; in ``(j, h in 12) -> (j, h, _)`` each point of ``h`` is a unit of one dimension.
``n=2304 of 3 in 12`` has twelve in each block, ``n=640 of 8+1+1 in 8+1+1`` different numbers. In
``(j, h g)`` the factor ``g`` is minor to ``h`` in one dimension, and in ``(j, h g of 3)`` it may be
split in blocks, one for each point of ``h``: of ``g=8 crossing`` always, else only if the points
of ``h`` do not divide.

An inner step is written ``all_reduce over k of (i, j), 4 bytes``, followed by ``of 8 at most`` if
it has at most 8 points of the last factor, by ``3 times`` if it runs several times, and by ``if
padded`` or ``if unsplit`` if it only runs for parts with padding or if nothing splits the factors.
``all_to_all_rows over joint i, j of (i), 4 bytes per 2 choices`` runs over axes that split both
factors, and sends a point to the ranks of two points of ``j``; ``over lone i`` are the axes that
split only ``i``. A local step that runs in all
strategies is written ``copy of (i, j), 4 bytes``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from tensoropt.compiler.layout.rule import (
    LOCAL_KINDS,
    AxisRole,
    Dims,
    Factor,
    InnerStep,
    Joint,
    Linear,
    Minor,
    Rule,
    Sections,
    UnitsOfDims,
)
from tensoropt.compiler.layout.sizes import Open, Size, read_open
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.runtime.layout.layout import (
    Blocks,
    Reduction,
    Units,
    blocks_text,
    read_blocks,
    read_units,
    units_text,
)
from tensoropt.runtime.support.collectives import COLLECTIVES

__all__ = ["NamedRule", "RuleText", "factor_name", "name_factors", "read_rule"]

_NAME = r"[A-Za-z]\w*"
_BLOCKS = r"[1-9]\d{0,8}(?:\+[1-9]\d{0,8})+|[1-9]\d{0,2}"
_UNITS = r"[1-9]\d{0,8}(?:\+[1-9]\d{0,8})*"
_DIM = re.compile(rf"(\w+)(?: (?!of |in )({_NAME}))?(?: of ({_BLOCKS}))?(?: in ({_UNITS}))?")
_GROUP = re.compile(r"\(\s*([^()]*?)\s*\)")
_SIDE = re.compile(r"\s*(?:\([^()]*\)\s*(?:,\s*\([^()]*\)\s*)*)?")
_FACTOR = re.compile(
    rf"({_NAME})(?:=(\d{{1,18}}|\?))?(?: (mean=\d+ end=\d+ step=\d+))?(?: of ({_BLOCKS}))?"
    rf"(?: in ({_UNITS}))?"
    r"(?: (whole))?(?: (sum|max|min))?(?: least=(\d{1,18}))?"
    r"(?: (padded))?(?: (crossing))?"
)
_INNER = re.compile(
    r"(\w+)(?: over (joint |lone )?([\w, ]+))? of \(([\w, ]*)\), (\d{1,18}) bytes"
    r"(?: per (\d{1,9}) choices)?(?: of (\d{1,18}) at most)?(?: (\d{1,9}) times)?"
    r"( if padded| if unsplit)?"
)
_KINDS = (*COLLECTIVES, "exchange", "ring", *LOCAL_KINDS)
_NOTHING = "-"
_LETTERS = "ijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class RuleText:
    """The text form of a rule, with the fields of the attribute and of the file."""

    map: str
    factors: tuple[str, ...]
    linear: tuple[tuple[int, ...], ...] = ()
    additive: tuple[int, ...] = ()
    inner: tuple[str, ...] = ()
    flops: float = 1.0
    joint: tuple[tuple[int, ...], ...] = ()
    reduced: tuple[int, ...] = ()
    growing: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class NamedRule:
    """A rule with names for its factors."""

    rule: Rule
    names: tuple[str, ...]

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The index of each factor by name."""
        return {name: number for number, name in enumerate(self.names)}

    def role_text(self, role: AxisRole) -> str:
        """Return the text of a role: a factor, ``linear(0, 2)``, ``joint(i, j)``, or ``-``."""
        if role is None:
            return _NOTHING
        if isinstance(role, Linear):
            return f"linear({', '.join(map(str, role.operands))})"
        if isinstance(role, Joint):
            return f"joint({', '.join(self.names[factor] for factor in role.factors)})"
        return self.names[role]

    @property
    def text(self) -> RuleText:
        """The text form of the rule."""
        rule = self.rule
        return RuleText(
            f"{self._side(rule.operands, 0)} -> "
            f"{self._side(rule.results, len(rule.operands))}".lstrip(),
            tuple(map(_factor_text, self.names, rule.factors)),
            tuple(group.operands for group in rule.linear),
            tuple(sorted(rule.additive)),
            tuple(map(self._inner_text, rule.inner)),
            rule.flops_per_point,
            tuple(group.factors for group in rule.joint),
            tuple(sorted(rule.reduced)),
            rule.growing,
        )

    def _side(self, tensors: Sequence[Dims], first: int) -> str:
        texts = (
            ", ".join(self._dim(f, (tensor, dim)) for dim, f in enumerate(dims))
            for tensor, dims in enumerate(tensors, first)
        )
        return ", ".join(f"({text})" for text in texts)

    def _dim(self, factor: int | None, place: tuple[int, int]) -> str:
        words = ["_" if factor is None else self.names[factor]]
        words += [self.names[own] for *where, own in self.rule.minors if (*where,) == place]
        blocks = (own for *where, own in self.rule.sections if (*where,) == place)
        words += [f"of {blocks_text(own)}" for own in blocks]
        units = (own for *where, own in self.rule.counted if (*where,) == place)
        words += [f"in {units_text(own)}" for own in units]
        return " ".join(words)

    def _inner_text(self, step: InnerStep) -> str:
        over, dims = (", ".join(self.names[f] for f in own) for own in (step.factors, step.dims))
        which = "joint " if step.joint else "lone " if step.lone else ""
        where = f" over {which}{over}" if over else ""
        condition = f" per {step.choices} choices" if step.choices else ""
        condition += f" of {step.most} at most" if step.most else ""
        condition += f" {step.times} times" if step.times != 1 else ""
        condition += " if padded" if step.padded else " if unsplit" if step.unsplit else ""
        return f"{step.kind}{where} of ({dims}), {step.item_bytes} bytes{condition}"


def name_factors(rule: Rule) -> NamedRule:
    """Return ``rule`` with its factors named i, j, k, ..., z, i1, j1, ..."""
    return NamedRule(rule, tuple(map(factor_name, range(len(rule.factors)))))


def factor_name(number: int) -> str:
    """Return the default name of factor ``number``."""
    turn, letter = divmod(number, len(_LETTERS))
    return f"{_LETTERS[letter]}{turn or ''}"


def _factor_text(name: str, factor: Factor) -> str:
    words = [f"{name}={factor.size if isinstance(factor.size, int) else '?'}"]
    words += [str(factor.size)] if isinstance(factor.size, Open) else []
    words += [f"of {blocks_text(factor.blocks)}"] if factor.blocks else []
    words += [f"in {units_text(factor.units)}"] if factor.units else []
    words += [] if factor.can_split else ["whole"]
    words += [factor.reduction] if factor.reduction else []
    words += [f"least={factor.least}"] if factor.least != 1 else []
    words += ["padded"] if factor.padded else []
    words += ["crossing"] if factor.crossing else []
    return " ".join(words)


def read_rule(text: RuleText) -> NamedRule:
    """Return the rule written as ``text``.

    Raises UserError with a message that continues the name of the rule ("has a wrong factor, ...").
    """
    factors = _factors(text.factors)
    names = {name: number for number, name in enumerate(factors)}
    operands, results, sections, minors, counted = _map(text.map, names)
    for number in (*text.additive, *itertools.chain(*text.linear)):
        if not 0 <= number < len(operands):
            raise UserError(
                f"names an unknown operand, expected below {len(operands)}, got: {number}"
            )
    for number in itertools.chain(*text.joint, *text.growing):
        if not 0 <= number < len(factors):
            raise UserError(
                f"names an unknown factor, expected below {len(factors)}, got: {number}"
            )
    for number in text.reduced:
        if not 0 <= number < len(results):
            raise UserError(
                f"reduces an unknown result, expected below {len(results)}, got: {number}"
            )
    rule = Rule(
        factors=tuple(factors.values()),
        operands=operands,
        results=results,
        additive=frozenset(text.additive),
        linear=tuple(Linear(group) for group in text.linear),
        joint=tuple(Joint(group) for group in text.joint),
        reduced=frozenset(text.reduced),
        growing=text.growing,
        flops_per_point=text.flops,
        inner=tuple(_inner(step, names) for step in text.inner),
        sections=sections,
        minors=minors,
        counted=counted,
    )
    return NamedRule(rule, tuple(factors))


def _factors(texts: Sequence[str]) -> dict[str, Factor]:
    """Return the factors by name, in order; a factor without a size is symbolic."""
    found: dict[str, Factor] = {}
    for text in texts:
        match = _FACTOR.fullmatch(text)
        if match is None:
            raise UserError(
                "has a wrong factor, expected <name>=<size> [of <blocks>] [in <units>] [whole] "
                f"[sum|max|min] [least=<n>] [padded] [crossing], got: '{text}'"
            )
        if match[1] in found:
            raise UserError(f"has a factor twice, expected each once, got: '{match[1]}'")
        blocks = read_blocks(match[4] or "1")
        units = _units(match[5], blocks)
        reduction = cast("Reduction | None", match[7])
        least, padded, crossing = int(match[8] or 1), bool(match[9]), bool(match[10])
        found[match[1]] = Factor(
            _size(match), not match[6], reduction, least, padded, blocks, units, crossing
        )
    return found


def _units(text: str | None, blocks: Blocks) -> Units:
    try:
        return read_units(text, blocks) if text else ()
    except UserError as error:
        raise UserError(f"has wrong units, {error}") from None


def _size(match: re.Match[str]) -> Size:
    if match[2] in (None, "?"):
        return read_open(match[3] or "")
    return int(match[2])


def _map(
    text: str, names: Mapping[str, int]
) -> tuple[tuple[Dims, ...], tuple[Dims, ...], Sections, tuple[Minor, ...], UnitsOfDims]:
    """Return the factor of each dimension of operands and results, and their other marks.

    These are blocks, minor factors and units.
    """
    sides = text.split("->")
    if len(sides) != 2 or not all(_SIDE.fullmatch(side) for side in sides):
        raise UserError(f"has a wrong map, expected (i, k), (k, j) -> (i, j), got: '{text}'")
    operands, results = (tuple(_tensors(side, names)) for side in sides)
    words = [_words(group) for side in sides for group in _GROUP.findall(side)]
    found = [
        (tensor, dim, match)
        for tensor, own in enumerate(words)
        for dim, word in enumerate(own)
        if (match := _DIM.fullmatch(word)) is not None
    ]
    blocks = ((tensor, dim, read_blocks(m[3])) for tensor, dim, m in found if m[3])
    minors = tuple((tensor, dim, _number(m[2], names)) for tensor, dim, m in found if m[2])
    units = tuple(
        (tensor, dim, _units(m[4], read_blocks(m[3] or "1") if "+" in m[4] or not m[2] else ()))
        for tensor, dim, m in found
        if m[4]
    )
    return operands, results, tuple(own for own in blocks if own[2]), minors, units


def _tensors(side: str, names: Mapping[str, int]) -> Iterator[Dims]:
    for group in _GROUP.findall(side):
        words = (_DIM.sub(r"\1", word) for word in _words(group))
        dims = tuple(None if name == "_" else _number(name, names) for name in words)
        split = [dim for dim in dims if dim is not None]
        if len(set(split)) != len(split):
            raise UserError(f"has a factor twice in one tensor, expected once, got: '({group})'")
        yield dims


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")] if text.strip() else []


def _number(name: str, names: Mapping[str, int]) -> int:
    if name not in names:
        known = ", ".join(names) or "none"
        raise UserError(
            f"names an unknown factor, expected one of {known}, got: '{name}'"
            f"{did_you_mean(name, names)}"
        )
    return names[name]


def _inner(text: str, names: Mapping[str, int]) -> InnerStep:
    match = _INNER.fullmatch(text)
    if match is None or match[1] not in _KINDS or not (match[3] or match[1] in LOCAL_KINDS):
        raise UserError(
            "has a wrong step inside, expected <collective> over [joint|lone] <factors> of "
            "(<factors>), <n> bytes [per <n> choices] [of <n> at most] [<n> times] [if padded] "
            f"[if unsplit], with one of {', '.join(_KINDS)}, got: '{text}'"
        )
    over, dims = (tuple(_number(name, names) for name in _words(match[n] or "")) for n in (3, 4))
    choices, most, times = (int(match[n] or default) for n, default in ((6, 0), (7, 0), (8, 1)))
    when = match[9] or ""
    return InnerStep(
        over,
        dims,
        int(match[5]),
        match[1],
        padded="padded" in when,
        unsplit="unsplit" in when,
        joint=match[2] == "joint ",
        lone=match[2] == "lone ",
        choices=choices,
        most=most,
        times=times,
    )
