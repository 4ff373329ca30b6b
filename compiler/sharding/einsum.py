"""Einsum: every letter of the equation is a loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tensoropt.compiler.sharding.loops import Loop, adds_up, linear_in, rule_of
from tensoropt.compiler.sharding.op_info import OpInfo
from tensoropt.compiler.sharding.registry import sharding_rule
from tensoropt.compiler.sharding.rule import Rule

__all__ = ["einsum", "parse_equation"]

_ELLIPSIS = "..."


def parse_equation(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Return the label of each dimension of each operand and of the result.

    A dimension that `...` stands for is labelled by its distance from the last of them. Without
    `->` the result has those first, then the letters that appear once, in alphabetical order.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    operands = [_labels(term, rank) for term, rank in zip(terms, ranks, strict=True)]
    hidden = max((_hidden(labels) for labels in operands), key=len)
    if arrow:
        before, dots, after = right.partition(_ELLIPSIS)
        return operands, [*before, *(hidden if dots else ()), *after]
    counts = Counter(left.replace(_ELLIPSIS, "").replace(",", ""))
    return operands, [*hidden, *sorted(letter for letter, n in counts.items() if n == 1)]


def _labels(term: str, rank: int) -> list[str]:
    before, dots, after = term.partition(_ELLIPSIS)
    count = rank - len(before) - len(after) if dots else 0
    return [*before, *(f"{_ELLIPSIS}{i}" for i in reversed(range(count))), *after]


def _hidden(labels: Sequence[str]) -> list[str]:
    return [label for label in labels if label.startswith(_ELLIPSIS)]


@sharding_rule("Einsum")
def einsum(info: OpInfo) -> Rule | None:
    """Return a loop per letter, a sum where the result lacks it; diagonals are not offered."""
    ranks = [held.rank for held in info.operands if held is not None]
    operands, result = parse_equation(str(info.attribute("equation")), ranks)
    if any(len(set(labels)) < len(labels) for labels in operands):
        return None
    labels = dict.fromkeys(label for held in (result, *operands) for label in held)
    loops = [_loop(info, label, operands, result) for label in labels]
    linear = linear_in(info, *((index,) for index in range(len(operands))))
    return rule_of(info, loops, linear=linear, flops_per_point=float(len(operands)))


def _loop(
    info: OpInfo, label: str, operands: Sequence[Sequence[str]], result: Sequence[str]
) -> Loop:
    """Return the loop of ``label``; a dimension of size 1 that is stretched is not on it."""
    places = {i: labels.index(label) for i, labels in enumerate(operands) if label in labels}
    sizes = {index: info.shape(index)[dim] for index, dim in places.items()}
    if label in result:
        stretched = {i: dim for i, dim in places.items() if sizes[i] != 1}
        return Loop(stretched, {0: result.index(label)})
    can_split = adds_up(info) and 1 not in sizes.values()
    return Loop(places, reduction="sum", can_split=can_split)
