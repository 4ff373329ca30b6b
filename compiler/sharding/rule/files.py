"""User-defined sharding rules, read from a TOML file.

    [[rule]]
    op = "my.ops.RowSum"
    map = "(i, j) -> (i)"
    factors = ["i", "j sum"]
    linear = [[0]]

Sizes come from the operands and results. An operator can have several rules for operands of
different ranks; the first rule that fits applies. A rule also declares an operator that has no
schema.
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
from tensoropt.compiler.support.entries import replace_entries
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.dialects import onnx

__all__ = [
    "ENTRY_POINTS",
    "FileRule",
    "has_user_rule",
    "load_rules",
    "user_result_shapes",
    "user_rule",
]

ENTRY_POINTS = "tensoropt.rules"
"""Entry point group for packages with rules. Each entry point is a path, a string or Path."""

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z]\w*")
_USER_RULES: dict[str, list[FileRule]] = {}


@dataclass(frozen=True)
class FileRule:
    """A rule without sizes, for operator ``op`` from version ``since`` of its domain."""

    op: str
    since: int
    named: NamedRule

    def fits(self, operands: Sequence[int | None]) -> bool:
        """Return whether the rule is for operands of these ranks; ``None`` is an unknown rank."""
        return [len(dims) for dims in self.named.rule.operands] == list(operands)

    def sizes(self, shapes: Sequence[tuple[Dims, Sequence[T]]]) -> list[set[T]]:
        """Return the distinct sizes of the dimensions along each factor."""
        found: list[set[T]] = [set() for _ in self.named.rule.factors]
        for dims, shape in shapes:
            for factor, size in zip(dims, shape, strict=True):
                if factor is not None:
                    found[factor].add(size)
        return found

    def rule(self, info: OpInfo) -> Rule:
        """Return the rule with the sizes of ``info``."""
        rule = self.named.rule
        tensors = [*zip(rule.operands, info.operands, strict=True)]
        tensors += [*zip(rule.results, info.results, strict=True)]
        sizes = self.sizes([(dims, () if x is None else x.sizes) for dims, x in tensors])
        factors = zip(rule.factors, sizes, strict=True)
        return replace(
            rule,
            factors=tuple(_set_size(factor, found, adds_up(info)) for factor, found in factors),
            linear=linear_in(info, *(group.operands for group in rule.linear)),
        )


def _set_size(factor: Factor, sizes: set[Size], summable: bool) -> Factor:
    """Return ``factor`` with its size; it can be split if the size is unique and has divisors."""
    split = len(sizes) == 1 and all(divisor_of(size) > 1 for size in sizes)
    split &= factor.reduction != "sum" or summable
    return replace(factor, size=largest(sizes), can_split=factor.can_split and split)


def load_rules(path: Path | None, *, keeps: bool = False) -> None:
    """Load the rules of a file; ``None`` loads no file.

    Rules of installed packages follow them, see :data:`ENTRY_POINTS`. Rules that were loaded before
    stay with ``keeps``, for operators without a new rule; otherwise they are dropped.
    """
    read = [] if path is None else list(_read(path))
    rules: dict[str, list[FileRule]] = {}
    for rule in [*read, *_installed_rules()]:
        rules.setdefault(rule.op, []).append(rule)
    if keeps:
        rules = {**_USER_RULES, **rules}
    replace_entries(_USER_RULES, rules)
    onnx.declare([_schema(own) for own in rules.values()])


def has_user_rule(name: str) -> bool:
    """Return whether a user rule exists for the operator ``name``."""
    return name in _USER_RULES


def user_rule(info: OpInfo) -> Rule | None:
    """Return the first user rule that fits an op, or ``None``."""
    if not info.is_ranked:
        return None
    ranks = [0 if operand is None else operand.rank for operand in info.operands]
    results = [0 if result is None else result.rank for result in info.results]
    for rule in _USER_RULES.get(info.name, ()):
        own = [len(dims) for dims in rule.named.rule.results]
        if info.version >= rule.since and rule.fits(ranks) and own == results:
            return rule.rule(info)
    return None


def user_result_shapes(name: str, operands: Sequence[TensorInfo | None]) -> list[Shape] | None:
    """Return the result shapes that a user rule implies, or ``None`` if no rule fits."""
    ranks = [0 if operand is None else operand.rank for operand in operands]
    for rule in _USER_RULES.get(name, ()):
        if rule.fits(ranks):
            pairs = zip(rule.named.rule.operands, operands, strict=True)
            sizes = rule.sizes([(dims, () if x is None else x.shape) for dims, x in pairs])
            return [
                tuple(None if f is None else _common_size(sizes[f]) for f in dims)
                for dims in rule.named.rule.results
            ]
    return None


def _common_size(sizes: set[int | None]) -> int | None:
    """Return the common size, ignoring sizes of 1 that are stretched; ``None`` if sizes differ."""
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


def _installed_rules() -> Iterator[FileRule]:
    """Yield the rules of installed packages."""
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        where = f"entry point '{entry.name}' of {ENTRY_POINTS}"
        try:
            path = entry.load()
        except Exception as error:  # any error of the package
            raise UserError(f"{where}: {type(error).__name__}: {error}") from None
        if not isinstance(path, str | Path):
            raise UserError(f"{where}: expected the path of a file, got: {path!r}")
        yield from _read(Path(path))


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
    "op": ("a string", lambda value: isinstance(value, str) and value != ""),
    "map": ("a string", lambda value: isinstance(value, str)),
    "since_version": ("an integer of 1 or more", lambda value: _is_int(value) and value > 0),
    "factors": ("a list of strings", lambda value: _is_list(value, str)),
    "additive": ("a list of integers", lambda value: _is_list(value, int)),
    "linear": (
        "a list of lists of integers",
        lambda value: _is_list(value, list) and all(_is_list(group, int) for group in value),
    ),
    "flops": (
        "a number of 0 or more",
        lambda value: (isinstance(value, float) or _is_int(value)) and 0 <= value < float("inf"),
    ),
}


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, kind) and not isinstance(item, bool) for item in value
    )


def _check_names(where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in table:
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
    """Raise UserError for a factor with a fixed size, or one that leaves a result incomplete.

    A result is incomplete if it lacks a factor that can be split and has no reduction.
    """
    for number, (name, factor) in enumerate(zip(named.names, named.rule.factors, strict=True)):
        if factor.size is not None:
            raise UserError(
                f"fixes the size of {name}, expected a size from the operands, got: {factor.size}"
            )
        lost = any(number not in dims for dims in named.rule.results)
        if lost and factor.can_split and factor.reduction is None:
            raise UserError(f"splits {name}, which a result lacks, expected sum, max, min or whole")
