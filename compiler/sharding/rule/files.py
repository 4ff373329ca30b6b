"""Rules that a person gives for operators, in a file of TOML.

    [[rule]]
    op = "my.ops.RowSum"
    map = "(i, j) -> (i)"
    factors = ["i", "j sum"]
    linear = [[0]]

Sizes are those of the operands and results. Several rules of one operator are for other ranks: the
first that fits counts. An operator that nobody knows is known by its rule alone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from tensoropt.compiler.layout.rule import Dims, Factor, Rule
from tensoropt.compiler.layout.rule_text import NamedRule, RuleText, read_rule
from tensoropt.compiler.layout.sizes import Size, divisor_of, largest
from tensoropt.compiler.sharding.rule.factors import adds_up, linear_in
from tensoropt.compiler.sharding.rule.op_info import OpInfo, Shape, TensorInfo
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.dialects import onnx

__all__ = [
    "ENTRY_POINTS",
    "FileRule",
    "given_result_shapes",
    "given_rule",
    "is_given",
    "load_rules",
]

ENTRY_POINTS = "tensoropt.rules"
"""The group of entry points of packages; each is the path of a file of rules, as a string or Path.
"""

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z]\w*")
_GIVEN: dict[str, list[FileRule]] = {}


@dataclass(frozen=True)
class FileRule:
    """A rule of no sizes yet, for operators ``op`` from version ``since`` of their domain on."""

    op: str
    since: int
    named: NamedRule

    def fits(self, operands: Sequence[int | None]) -> bool:
        """Say whether it is for operands of these ranks; ``None`` is an unknown one."""
        return [len(dims) for dims in self.named.rule.operands] == list(operands)

    def sizes(self, shapes: Sequence[tuple[Dims, Sequence[T]]]) -> list[set[T]]:
        """Return the sizes of the dimensions along each factor."""
        found: list[set[T]] = [set() for _ in self.named.rule.factors]
        for dims, shape in shapes:
            for factor, size in zip(dims, shape, strict=True):
                if factor is not None:
                    found[factor].add(size)
        return found

    def rule(self, info: OpInfo) -> Rule:
        """Return the rule of an op of these shapes."""
        own = self.named.rule
        held = [*zip(own.operands, info.operands, strict=True)]
        held += [*zip(own.results, info.results, strict=True)]
        sizes = self.sizes([(dims, () if x is None else x.sizes) for dims, x in held])
        factors = zip(own.factors, sizes, strict=True)
        return replace(
            own,
            factors=tuple(_sized(factor, found, adds_up(info)) for factor, found in factors),
            linear=linear_in(info, *(group.operands for group in own.linear)),
        )


def _sized(factor: Factor, sizes: set[Size], summable: bool) -> Factor:
    """Return ``factor`` with its size; it is split where that is one, with divisors."""
    split = len(sizes) == 1 and all(divisor_of(size) > 1 for size in sizes)
    split &= factor.reduction != "sum" or summable
    return replace(factor, size=largest(sizes), can_split=factor.can_split and split)


def load_rules(path: Path | None) -> None:
    """Take the rules of a file from now on, in place of those of another; none without one.

    After them come those of packages that are installed, see :data:`ENTRY_POINTS`.
    """
    _GIVEN.clear()
    onnx.declare([])
    own = [] if path is None else list(_read(path))
    for rule in [*own, *_installed()]:
        _GIVEN.setdefault(rule.op, []).append(rule)
    onnx.declare([_schema(own) for own in _GIVEN.values()])


def is_given(name: str) -> bool:
    """Say whether a person gave a rule for the operator ``name``."""
    return name in _GIVEN


def given_rule(info: OpInfo) -> Rule | None:
    """Return the rule that a person gave for an op, ``None`` if there is none that fits."""
    if not info.is_ranked:
        return None
    ranks = [0 if held is None else held.rank for held in info.operands]
    results = [0 if held is None else held.rank for held in info.results]
    for rule in _GIVEN.get(info.name, ()):
        own = [len(dims) for dims in rule.named.rule.results]
        if info.version >= rule.since and rule.fits(ranks) and own == results:
            return rule.rule(info)
    return None


def given_result_shapes(name: str, operands: Sequence[TensorInfo | None]) -> list[Shape] | None:
    """Return the shapes of results that a given rule tells; ``None`` where none fits."""
    ranks = [0 if operand is None else operand.rank for operand in operands]
    for rule in _GIVEN.get(name, ()):
        if rule.fits(ranks):
            pairs = zip(rule.named.rule.operands, operands, strict=True)
            sizes = rule.sizes([(dims, () if x is None else x.shape) for dims, x in pairs])
            return [
                tuple(None if f is None else _one(sizes[f]) for f in dims)
                for dims in rule.named.rule.results
            ]
    return None


def _one(sizes: set[int | None]) -> int | None:
    """Return the size where there is one; where others are 1 they are stretched."""
    known = sizes - {1} or sizes
    return next(iter(known)) if len(known) == 1 else None


def _schema(rules: Sequence[FileRule]) -> onnx.Schema:
    domain, op_type = onnx.split_name(rules[0].op)
    operands = [len(rule.named.rule.operands) for rule in rules]
    results = [len(rule.named.rule.results) for rule in rules]
    return onnx.Schema(
        op_type=op_type,
        domain=domain,
        since_version=min(rule.since for rule in rules),
        min_inputs=min(operands),
        max_inputs=max(operands),
        min_outputs=min(results),
        max_outputs=max(results),
        attributes={},
        required=frozenset(),
        outputs=tuple(f"y{number}" for number in range(max(results))),
        is_open=True,
    )


def _installed() -> Iterator[FileRule]:
    """Yield the rules of the packages that have some."""
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        where = f"entry point '{entry.name}' of {ENTRY_POINTS}"
        try:
            held = entry.load()
        except Exception as error:  # the package's own
            raise UserError(f"{where}: {type(error).__name__}: {error}") from None
        if not isinstance(held, str | Path):
            raise UserError(f"{where}: expected the path of a file, got: {held!r}")
        yield from _read(Path(held))


def _read(path: Path) -> Iterator[FileRule]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: expected TOML, got: {error}") from None
    _check_names(f"{path}:", document, ("rule",))
    entries = document.get("rule", [])
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{path}: expected [[rule]] once or more, got: none")
    for number, entry in enumerate(entries, start=1):
        name = entry.get("op") if isinstance(entry, dict) else None
        where = f"{path}: rule {number}" + (f" ({name})" if isinstance(name, str) else "")
        yield _rule(where, entry)


_KINDS: Mapping[str, tuple[str, Any]] = {
    "op": ("a string", lambda held: isinstance(held, str) and held != ""),
    "map": ("a string", lambda held: isinstance(held, str)),
    "since_version": ("an integer of 1 or more", lambda held: _is_int(held) and held > 0),
    "factors": ("a list of strings", lambda held: _is_list(held, str)),
    "additive": ("a list of integers", lambda held: _is_list(held, int)),
    "linear": (
        "a list of lists of integers",
        lambda held: _is_list(held, list) and all(_is_list(one, int) for one in held),
    ),
    "flops": (
        "a number of 0 or more",
        lambda held: (isinstance(held, float) or _is_int(held)) and 0 <= held < float("inf"),
    ),
}


def _is_int(held: object) -> bool:
    return isinstance(held, int) and not isinstance(held, bool)


def _is_list(held: object, kind: type) -> bool:
    return isinstance(held, list) and all(
        isinstance(one, kind) and not isinstance(one, bool) for one in held
    )


def _check_names(where: str, held: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in held:
        if name not in known:
            raise UserError(
                f"{where} unknown key '{name}', expected one of {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            )


def _rule(where: str, entry: object) -> FileRule:
    if not isinstance(entry, dict):
        raise UserError(f"{where}: expected a table, got: {entry}")
    _check_names(f"{where}:", entry, tuple(_KINDS))
    for name in ("op", "map"):
        if name not in entry:
            raise UserError(f"{where}: has no {name}, expected one")
    for name, value in entry.items():
        expected, is_right = _KINDS[name]
        if not is_right(value):
            raise UserError(f"{where}: has a wrong {name}, expected {expected}, got: {value}")
    factors = entry.get("factors", dict.fromkeys(_NAME.findall(entry["map"])))
    text = RuleText(
        entry["map"],
        tuple(factors),
        tuple(map(tuple, entry.get("linear", ()))),
        tuple(entry.get("additive", ())),
        flops=float(entry.get("flops", RuleText.flops)),
    )
    try:
        named = read_rule(text)
        _check(named)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return FileRule(entry["op"], entry.get("since_version", 1), named)


def _check(named: NamedRule) -> None:
    """Refuse a rule with sizes, and a factor that can be split, is in no result and not reduced:
    nothing would say how to make a result whole."""
    for number, (name, factor) in enumerate(zip(named.names, named.rule.factors, strict=True)):
        if factor.size is not None:
            raise UserError(
                f"fixes the size of {name}, expected that of the operands, got: {factor.size}"
            )
        lost = any(number not in dims for dims in named.rule.results)
        if lost and factor.can_split and factor.reduction is None:
            raise UserError(
                f"splits {name}, which a result has not, expected sum, max, min or whole"
            )
