"""Routes of tokens to experts, and rows of the experts that a rank has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.dialects.build import Build, element_type, int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = [
    "EXPERTS",
    "FEATURES",
    "TOKENS",
    "Routes",
    "add_up",
    "find_odds",
    "find_ones",
    "find_routes",
    "flat",
    "number_ones",
    "select_part",
    "take_or_zero",
]

TOKENS, EXPERTS, FEATURES = 0, 1, 2
"""Indices of the factors over tokens, over experts and over features between the layers."""


@dataclass(frozen=True)
class Routes:
    """The selected experts of each token, and their weights."""

    experts: ir.Value
    weights: ir.Value


def find_odds(make: Arithmetic) -> ir.Value:
    """Return the weights of all experts for each token, before any normalisation."""
    local, logits = make.local, make.local.operands[1]
    if local.info.operand(14) is not None:
        return local.operands[14]
    return local.onnx("Softmax", [logits], logits.type, axis=int_attr(1))


def find_routes(make: Arithmetic, odds: ir.Value) -> Routes:
    """Return the selected experts of each token, and their weights among the ``odds``."""
    local = make.local
    numbers = _top_experts(make, local.operands[1])
    kind = tensor_type(shape_of(numbers), element_type(odds))
    taken = local.onnx("GatherElements", [odds, numbers], kind, axis=int_attr(1))
    if local.info.attribute("normalize_routing_weights", 0):
        taken = make.binary("Div", taken, make.reduce("ReduceSum", taken, [1]))
    return Routes(numbers, taken)


def _top_experts(make: Arithmetic, logits: ir.Value) -> ir.Value:
    """Return the indices of the experts with the largest logits of each token.

    Among equal logits the runtime selects the last, TopK the first, so the columns are reversed.
    """
    local, last, rows = make.local, (shape_of(logits)[1] or 1) - 1, {"axis": int_attr(1)}
    backwards = make.take(logits, make.ints(range(last, -1, -1)), 1)
    k = make.ints([int(local.info.attribute("k", 1))])
    shape = [shape_of(logits)[0], int(local.info.attribute("k", 1))]
    numbers = tensor_type(shape, ir.IntegerType.get_signless(64))
    found = ir.Operation.create(
        "onnx.TopK",
        results=[tensor_type(shape, element_type(logits)), numbers],
        operands=[backwards, k],
        attributes=rows,
        loc=local.op.location,
    )
    return make.sub(make.scalar(last, found.results[1]), found.results[1])


def flat(make: Build, x: ir.Value, shape: Sequence[int | None]) -> ir.Value:
    """Return ``x`` with ``shape``, in which one size may be unknown."""
    if shape_of(x) == list(shape):
        return x
    sizes = make.ints([-1 if size is None else size for size in shape])
    return make.onnx("Reshape", [x, sizes], tensor_type(list(shape), element_type(x)))


def take_or_zero(make: Arithmetic, rows: ir.Value, places: ir.Value) -> ir.Value:
    """Return the rows at all ``places``, zeros at the place after the last row."""
    import numpy as np

    nothing = make.constant(make.like(np.zeros((1, shape_of(rows)[1] or 0)), rows))
    return make.take(make.concat([rows, nothing], 0), flat(make, places, [None]), 0)


def add_up(
    make: Arithmetic, rows: ir.Value, places: ir.Value, weights: ir.Value | None = None
) -> ir.Value:
    """Return the sum of the rows at the ``places`` of each token, by ``weights`` if given.

    ``rows`` are of an unknown number, which is the place of a row of zeros.
    """
    import numpy as np

    tokens, count = shape_of(places)
    if weights is None:
        weights = make.constant(make.like(np.ones((1, 1, count or 1)), rows))
    every = flat(make, take_or_zero(make, rows, places), [tokens, count, shape_of(rows)[1] or 0])
    return make.squeeze(make.matmul(weights, every), [1])


def select_part(make: Arithmetic, numbers: ir.Value, parts: ir.Value) -> ir.Value:
    """Return 1 for each of the experts ``numbers`` that is in the part there, and 0 for others."""
    own = make.div(numbers, make.scalar(make.local.part(EXPERTS), numbers))
    return make.cast(make.compare("Equal", own, parts), element_type(numbers))


def find_ones(make: Arithmetic, mask: ir.Value, dim: int = 0) -> ir.Value:
    """Return the indices along ``dim`` of the elements of ``mask`` that are not 0, in order."""
    integer, rank = ir.IntegerType.get_signless(64), len(shape_of(mask))
    found = make.onnx("NonZero", [mask], tensor_type([rank, None], integer))
    return flat(make, make.take(found, make.ints([dim]), 0) if rank > 1 else found, [None])


def number_ones(make: Arithmetic, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the place of each 1 of ``mask`` among the 1s, and their number.

    The place of a 0 is that number, or 1 if there is no 1.
    """
    import numpy as np

    axis, one = make.constant(np.array(0)), make.ints([1])
    last = make.sub(make.onnx("CumSum", [mask, axis], mask.type), one)
    rows = make.binary("Max", make.reduce("ReduceSum", mask, [0]), one)
    return make.where(make.cast(mask, ir.IntegerType.get_signless(1)), last, rows), rows
