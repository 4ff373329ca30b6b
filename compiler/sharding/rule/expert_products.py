"""Products of experts with the rows of their tokens, and the gradients of these products.

Rows are in the order of the experts, so that the rows of each expert are consecutive. Their numbers
depend on the router, so each expert has a product of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.expert_activations import activate
from tensoropt.compiler.sharding.rule.routing import (
    EXPERTS,
    FEATURES,
    Routes,
    add_up,
    find_ones,
    flat,
    take_or_zero,
)
from tensoropt.dialects.build import element_type, int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import is_no_value

__all__ = ["MixtureGradients", "differentiate"]

_UP, _UP_BIAS, _DOWN, _DOWN_BIAS = 2, 3, 4, 5


@dataclass(frozen=True)
class MixtureGradients:
    """The gradients of the tokens, of the weight of each of their choices, and of all layers.

    The first two have one row per token. ``layers`` are the gradients of weights and biases, in
    the order of the operands, ``None`` for an omitted bias.
    """

    tokens: ir.Value
    choices: ir.Value
    layers: list[ir.Value | None]


class _Rows:
    """The tokens of each of the rank's experts, in the order of the experts.

    The first row of each expert has the weight 0, so that no expert is without rows: kernels may
    need one.
    """

    def __init__(self, make: Arithmetic, routes: Routes) -> None:
        import numpy as np

        local, integer = make.local, ir.IntegerType.get_signless(64)
        self.make, self.routes, self.experts = make, routes, local.part(EXPERTS)
        parts = np.arange(local.pieces(EXPERTS)) * self.experts
        first = local.axis_constant(parts, local.axes(EXPERTS))
        own = make.unsqueeze(make.sub(flat(make, routes.experts, [None]), first), [0])
        numbers = make.constant(np.arange(self.experts)[:, None])
        marks = make.compare("Equal", own, numbers)
        extra = make.constant(np.eye(self.experts, dtype=bool))
        mask = make.concat([extra, marks], 1)
        self.counts = make.reduce("ReduceSum", make.cast(mask, integer), [1], keepdims=False)
        """The number of rows of each expert."""
        self.choices = find_ones(make, mask, 1)
        """The choice of each row; the choices of tokens follow one choice for each expert."""

    def tokens(self) -> ir.Value:
        """Return the token of each row, the first one for rows of no token."""
        make, selected = self.make, shape_of(self.routes.experts)[1] or 1
        choices = make.sub(self.choices, make.scalar(self.experts, self.choices))
        choices = make.binary("Max", choices, make.scalar(0, choices))
        return make.div(choices, make.scalar(selected, choices))

    def weights(self) -> ir.Value:
        """Return the weight of each row, in one column."""
        import numpy as np

        make = self.make
        every = flat(make, self.routes.weights, [None])
        extra = make.constant(make.like(np.zeros(self.experts), every))
        return make.unsqueeze(make.take(make.concat([extra, every], 0), self.choices, 0), [1])

    def places(self) -> ir.Value:
        """Return the row of each choice of each token, the number of rows for other ranks'."""
        make, like = self.make, self.choices
        scalar = tensor_type([], element_type(like))
        count = make.onnx("ReduceSum", [self.counts], scalar, keepdims=int_attr(0))
        bounds = [make.scalar(0, like), count, make.scalar(1, like)]
        every = flat(make, self.routes.experts, [None])
        shape = make.onnx("Shape", [every], tensor_type([1], element_type(like)))
        length = make.add(shape, make.scalar(self.experts, shape))
        none = make.onnx("Expand", [count, length], like.type)
        numbers = make.onnx("Range", bounds, like.type)
        found = make.onnx("ScatterElements", [none, like, numbers], like.type, axis=int_attr(0))
        ends = [make.ints([n]) for n in (self.experts, 2**62)]
        own = make.onnx("Slice", [found, *ends], every.type)
        return flat(make, own, shape_of(self.routes.experts))

    def parts(self, rows: ir.Value) -> list[ir.Value]:
        """Return the rows of each expert."""
        kinds = [tensor_type([None, *shape_of(rows)[1:]], element_type(rows))] * self.experts
        return self.make.onnx_many("Split", [rows, self.counts], kinds, axis=int_attr(0))

    def joined(self, parts: Sequence[ir.Value]) -> ir.Value:
        """Return the rows of all experts."""
        return self.make.concat(parts, 0)


def differentiate(make: Arithmetic, x: ir.Value, dy: ir.Value, routes: Routes) -> MixtureGradients:
    """Return the gradients of the rank's experts at the tokens ``x`` with results' gradient ``dy``.

    The features between the layers are computed again. The gradient of a choice's weight is the
    product of ``dy`` and the result of the expert; with the gradient of the features before they
    are weighted, it needs no product of its own.
    """
    local = make.local
    rows = _Rows(make, routes)
    tokens, weights = rows.tokens(), rows.weights()
    ups, downs = (_matrices(make, local.operands[index]) for index in (_UP, _DOWN))
    xs, changes = rows.parts(make.take(x, tokens, 0)), make.take(dy, tokens, 0)
    given = rows.parts(changes)
    biases = _biases(make, _UP_BIAS)
    wide = [_product(make, a, w, b, right=True) for a, w, b in zip(xs, ups, biases, strict=True)]
    activated = activate(make, rows.joined(wide), local.info)
    features = activated.value
    slopes = rows.joined([_product(make, a, w) for a, w in zip(given, downs, strict=True)])
    choices = make.reduce("ReduceSum", make.mul(slopes, features), [1])
    inner = activated.gradient(make.mul(slopes, weights))
    weighted, inners = rows.parts(make.mul(changes, weights)), rows.parts(inner)
    up_bias = down_bias = None
    if _has(local.operands[_UP_BIAS]):
        up_bias = _sums(make, inners)
    if _has(local.operands[_DOWN_BIAS]):
        terms = zip(given, _biases(make, _DOWN_BIAS), strict=True)
        added = rows.joined([_product(make, a, b, right=True) for a, b in terms if b is not None])
        choices = make.add(choices, _once(make, added))
        down_bias = _once(make, _sums(make, weighted))
    up = _stacked(make, _pairs(make, inners, xs))
    down = _stacked(make, _pairs(make, weighted, rows.parts(features)))
    dx = rows.joined([_product(make, a, w) for a, w in zip(inners, ups, strict=True)])
    places = rows.places()
    layers = [up, up_bias, down, down_bias]
    chosen = flat(make, take_or_zero(make, choices, places), shape_of(places))
    return MixtureGradients(add_up(make, dx, places), chosen, layers)


def _has(value: ir.Value) -> bool:
    return not is_no_value(value)


def _matrices(make: Arithmetic, weights: ir.Value) -> list[ir.Value]:
    """Return the matrix of each expert."""
    experts, rows, columns = (size or 0 for size in shape_of(weights))
    kinds = [tensor_type([rows, columns], element_type(weights))] * experts
    tall = make.reshape(weights, [experts * rows, columns])
    return make.onnx_many("Split", [tall], kinds, axis=int_attr(0), num_outputs=int_attr(experts))


def _biases(make: Arithmetic, index: int) -> list[ir.Value] | list[None]:
    """Return the bias of each expert as one row, ``None`` for each if there is none."""
    bias, experts = make.local.operands[index], make.local.part(EXPERTS)
    if not _has(bias):
        return [None] * experts
    kinds = [tensor_type([1, shape_of(bias)[1]], element_type(bias))] * experts
    return make.onnx_many("Split", [bias], kinds, axis=int_attr(0), num_outputs=int_attr(experts))


def _product(
    make: Arithmetic,
    a: ir.Value,
    b: ir.Value,
    bias: ir.Value | None = None,
    *,
    left: bool = False,
    right: bool = False,
) -> ir.Value:
    """Return the product of two matrices, transposed ``left`` or ``right``, plus ``bias``."""
    shape = [shape_of(a)[1 if left else 0], shape_of(b)[0 if right else 1]]
    operands = [a, b] if bias is None else [a, b, bias]
    transposed = {"transA": int_attr(int(left)), "transB": int_attr(int(right))}
    return make.onnx("Gemm", operands, tensor_type(shape, element_type(a)), **transposed)


def _pairs(
    make: Arithmetic, left: Sequence[ir.Value], right: Sequence[ir.Value]
) -> Iterator[ir.Value]:
    """Yield the gradient of each expert's weight, a sum over its rows."""
    for a, b in zip(left, right, strict=True):
        yield _product(make, a, b, left=True)


def _stacked(make: Arithmetic, matrices: Iterator[ir.Value]) -> ir.Value:
    """Return the matrices of all experts as one tensor."""
    every = list(matrices)
    return make.reshape(make.concat(every, 0), [len(every), *(n or 0 for n in shape_of(every[0]))])


def _sums(make: Arithmetic, parts: Sequence[ir.Value]) -> ir.Value:
    """Return the sum of the rows of each expert."""
    return make.concat([make.reduce("ReduceSum", part, [0]) for part in parts], 0)


def _once(make: Arithmetic, x: ir.Value) -> ir.Value:
    """Return ``x`` on the first of the ranks that split features, and zeros on the others."""
    import numpy as np

    local, pieces = make.local, make.local.pieces(FEATURES)
    if pieces == 1:
        return x
    return make.mul(x, local.axis_constant(make.like(np.arange(pieces) == 0, x),
                                           local.axes(FEATURES)))  # fmt: skip
