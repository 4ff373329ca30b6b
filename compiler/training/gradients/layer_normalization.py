"""Gradients of layer normalisations (Ba et al., arXiv 1607.06450), also of a sum.

In training, LayerNormalization saves its statistics, two numbers per row; the other operators
recompute theirs from X.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensoropt.compiler.sharding.ops.layer_normalization import EPSILON, SKIP_EPSILON
from tensoropt.compiler.sharding.rule.factors import axis_of
from tensoropt.compiler.training.gradients.registry import (
    Backward,
    ForwardOp,
    Gradients,
    decomposition,
    forward_form,
    gradient,
    unbroadcast,
)
from tensoropt.compiler.training.gradients.standardising import (
    Standardised,
    standardise,
)
from tensoropt.dialects.build import (
    element_type,
    float_attr,
    int_attr,
    shape_of,
    sizes_of,
    tensor_type,
)
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

_STATISTICS = ("mean", "inverse")


@forward_form("LayerNormalization")
def layer_form(f: ForwardOp) -> Sequence[ir.Value | None]:
    """The op with its statistics, N x 1 in float32, which is too coarse for float64 operands."""
    x, make = f.operands[0], f.make
    rank = len(shape_of(x))
    first = axis_of(f.info, -1, rank)
    rows = tensor_type([*shape_of(x)[:first], *[1] * (rank - first)], ir.F32Type.get())
    attributes = {
        "axis": int_attr(first),
        "epsilon": float_attr(f.info.attribute("epsilon", EPSILON)),
        "stash_type": int_attr(1),
    }
    found = make.onnx_many("LayerNormalization", f.operands, [x.type, rows, rows], **attributes)
    if not isinstance(element_type(x), ir.F64Type):
        f.saved.update(zip(_STATISTICS, found[1:], strict=True))
    return found[: len(f.op.results)]


@gradient("LayerNormalization")
def layer(b: Backward) -> Gradients:
    """With x' = (X - mean) / deviation and g = dY scale: see :class:`Standardised`."""
    make, x, dims = b.make, b.make.wide(b.operand(0)), _dims(b)
    if b.saved_values:
        mean, inverse = map(b.saved, _STATISTICS)
        value = make.mul(make.sub(x, mean), inverse)
        standardised = Standardised(make, value, inverse, dims, centred=True)
    else:
        standardised = standardise(make, x, dims, _epsilon(b))
    return _scale_gradients(
        b, standardised, (standardised.mean_gradient, standardised.inverse_gradient)
    )


def _dims(b: Backward) -> range:
    rank = len(b.shape(0))
    return range(axis_of(b.info, -1, rank), rank)


def _epsilon(b: Backward) -> float:
    return float(b.info.attribute("epsilon", EPSILON))


@gradient("RMSNormalization", "SimplifiedLayerNormalization")
def root_mean_square(b: Backward) -> Gradients:
    """The same with x' = X / sqrt(mean(X^2)): Zhang and Sennrich (arXiv 1910.07467)."""
    x = b.make.wide(b.operand(0))
    standardised = standardise(b.make, x, _dims(b), _epsilon(b), centred=False)
    return _scale_gradients(b, standardised, (standardised.inverse_gradient,))


def _scale_gradients(
    b: Backward, standardised: Standardised, statistics: Sequence[Callable[[ir.Value], ir.Value]]
) -> Gradients:
    """Return the gradients of X, scale and bias for x' scale + bias.

    ``statistics`` map the gradients of the results after the first to their contributions to X.
    """
    make, found = b.make, _result_gradients(b, standardised)
    for index, own in enumerate(statistics, start=1):
        if (dy := b.gradient(index)) is not None and b.wanted[0]:
            found[0] = own(dy) if found[0] is None else make.add(found[0], own(dy))
    gradients: list[ir.Value | None] = []
    for x, operand in zip(found, b.operands, strict=True):
        if x is not None and shape_of(x) != shape_of(operand):
            x = make.expand(x, sizes_of(operand))  # the gradient of a mean alone: one per row
        gradients.append(None if x is None else make.cast(x, element_type(operand)))
    return gradients


def _result_gradients(b: Backward, standardised: Standardised) -> list[ir.Value | None]:
    """Return the contributions of the first result to the gradients of X, scale and bias."""
    make, found = b.make, list[ir.Value | None]([None] * len(b.operands))
    if b.gradient() is None:
        return found
    dy = make.wide(b.dy)
    product = make.mul(dy, standardised.value) if any(b.wanted[:2]) else None
    if product is not None and b.wanted[0]:
        scale = make.wide(b.operand(1))
        found[0] = standardised.gradient(make.mul(dy, scale), make.mul(product, scale))
    for index, term in ((1, product), (2, dy)):
        if term is not None and index < len(found) and b.wanted[index]:
            found[index] = unbroadcast(make, term, b.shape(index))
    return found


@decomposition("com.microsoft.SkipLayerNormalization")
def skip(f: ForwardOp) -> Sequence[ir.Value | None]:
    """The normalised sum of operands 0, 1 and 4, and the sum itself as result 3."""
    return _normalise_sum(f, "LayerNormalization", (0, 1, 4), (2, 3))


@decomposition("com.microsoft.SkipSimplifiedLayerNormalization")
def skip_simplified(f: ForwardOp) -> Sequence[ir.Value | None]:
    """The normalised sum of operands 0, 1 and 3, and the sum itself as result 3."""
    return _normalise_sum(f, "SimplifiedLayerNormalization", (0, 1, 3), (2,))


def _normalise_sum(
    f: ForwardOp, op_type: str, terms: Sequence[int], parameters: Sequence[int]
) -> Sequence[ir.Value | None]:
    f.check_unused((1, 2))  # statistics, which no runtime on a CPU returns
    make, total = f.make, f.operands[0]
    for index in filter(f.has, terms[1:]):
        total = make.add(total, f.operands[index])
    present = [f.operands[index] for index in parameters if f.has(index)]
    epsilon = float_attr(f.info.attribute("epsilon", SKIP_EPSILON))
    y = make.onnx(op_type, [total, *present], total.type, axis=int_attr(-1), epsilon=epsilon)
    return [y, None, None, total][: len(f.op.results)]
