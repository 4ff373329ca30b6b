"""Gradients of image normalisations, and of vectors divided by their norm.

In training, BatchNormalization uses the statistics of the batch and updates the running statistics.
As ONNX defines it, the variance is the population's (PyTorch: a sample's).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensoropt.compiler.sharding.ops.layer_normalization import EPSILON
from tensoropt.compiler.sharding.rule.factors import axis_of
from tensoropt.compiler.training.gradients.registry import (
    Backward,
    ForwardOp,
    Gradients,
    forward_form,
    gradient,
    unbroadcast,
)
from tensoropt.compiler.training.gradients.sliding import pad, take_strided
from tensoropt.compiler.training.gradients.standardising import (
    Standardised,
    inverse_deviation,
    mean,
    mean_square,
    standardise,
)
from tensoropt.dialects import onnx
from tensoropt.dialects.build import Build, element_type, float_attr, shape_of, sizes_of
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

_MOMENTUM = 0.9
_VARIANCE_EPSILON = 1e-9
_EUCLIDEAN = 2


@forward_form("BatchNormalization")
def batch_form(f: ForwardOp) -> Sequence[ir.Value | None]:
    """Normalise by the statistics of the batch, which are saved: C numbers each.

    The op itself does the last step, on X minus its mean; its training mode is not available on
    every device, and writes into its operands. If the batch is split, each statistic is reduced
    where it is read.
    """
    make, x = f.make, f.make.wide(f.operands[0])
    dims = [dim for dim in range(len(shape_of(x))) if dim != 1]
    centre = mean(make, x, dims)
    centred = make.sub(x, centre)
    variance = make.squeeze(mean_square(make, centred, dims), dims)
    inverse = inverse_deviation(make, variance, float(f.info.attribute("epsilon", EPSILON)))
    f.saved["mean"], f.saved["inverse"] = centre, inverse
    running = [_update_running(f, 3, make.squeeze(centre, dims)), _update_running(f, 4, variance)]
    return [_scale(f, centred, inverse), *running][: len(f.op.results)]


def _scale(f: ForwardOp, centred: ir.Value, inverse: ir.Value) -> ir.Value:
    """Return ``centred`` times ``inverse`` and scale, plus bias, per channel."""
    make, own = f.make, [f.make.wide(x) for x in f.operands[1:3]]
    sizes = shape_of(inverse)
    mean_, deviation = (make.constant(make.like([n] * (sizes[0] or 0), inverse)) for n in (0, 1))
    parameters = [make.mul(own[0], inverse), own[1], mean_, deviation]
    zero = float_attr(0.0)
    y = make.onnx("BatchNormalization", [centred, *parameters], centred.type, epsilon=zero)
    return make.cast(y, element_type(f.operands[0]))


def _update_running(f: ForwardOp, index: int, batch: ir.Value) -> ir.Value:
    """Return the new running statistics, and update the buffer if the old ones are one."""
    make, old = f.make, f.operands[index]
    batch = make.cast(batch, element_type(old))
    momentum = float(f.info.attribute("momentum", _MOMENTUM))
    new = make.add(make.scaled(old, momentum), make.scaled(batch, 1.0 - momentum))
    buffer = _uncast(old)
    if isinstance(buffer.owner, ir.Block):
        f.training.update(buffer, make.cast(new, element_type(buffer)))
    return new


def _uncast(value: ir.Value) -> ir.Value:
    """Return the value that a narrow copy was cast from."""
    op = onnx.made_by(value, "Cast")
    return value if op is None else _uncast(op.operands[0])


@gradient("BatchNormalization")
def batch(b: Backward) -> Gradients:
    """The gradients of the normalised result and of the running statistics."""
    make = b.make
    centred = make.sub(make.wide(b.operand(0)), b.saved("mean"))
    found: list[ir.Value | None] = [None] * 3
    if b.gradient() is not None:
        found = _normalised_gradients(b, centred)
    momentum = float(b.info.attribute("momentum", _MOMENTUM))
    for index in (1, 2):
        dy = b.gradient(index)
        if dy is not None and b.wanted[0]:
            part = _statistic_gradient(b, index, make.scaled(dy, 1.0 - momentum), centred)
            found[0] = part if found[0] is None else make.add(found[0], part)
        found.append(None if dy is None else make.scaled(dy, momentum))
    return _select_wanted(b, found)


def _normalised_gradients(b: Backward, centred: ir.Value) -> list[ir.Value | None]:
    """With x' = (X - mean) / deviation and g = dY scale: see :class:`Standardised`.

    Scale is per channel, so it is factored out of the means, which are then dScale and dBias.
    """
    make, dy, dims, count = b.make, b.make.wide(b.dy), _batch_dims(b), _batch_count(b)
    inverse = _per_channel(b, b.saved("inverse"))
    total = make.reduce("ReduceSum", dy, dims)
    product = make.mul(make.reduce("ReduceSum", make.mul(dy, centred), dims), inverse)
    found: list[ir.Value | None] = [None, make.squeeze(product, dims), make.squeeze(total, dims)]
    if b.wanted[0]:
        scale = _per_channel(b, make.wide(b.operand(1)))
        slope = make.scaled(make.mul(product, inverse), 1.0 / count)
        less = make.add(make.mul(centred, slope), make.scaled(total, 1.0 / count))
        found[0] = make.mul(make.sub(dy, less), make.mul(scale, inverse))
    return found


def _statistic_gradient(b: Backward, index: int, dy: ir.Value, centred: ir.Value) -> ir.Value:
    """Return the contribution of the mean (result 1) or variance (2) of n numbers to dX.

    It is dy / n, or 2 dy (X - mean) / n.
    """
    make = b.make
    share = make.scaled(make.cast(dy, element_type(centred)), index / _batch_count(b))
    share = _per_channel(b, share)
    return make.expand(share, b.shape(0)) if index == 1 else make.mul(centred, share)


def _batch_dims(b: Backward) -> list[int]:
    return [dim for dim in range(len(b.shape(0))) if dim != 1]


def _batch_count(b: Backward) -> int:
    """Return the number of elements that a statistic averages."""
    return math.prod(b.shape(0)[dim] for dim in _batch_dims(b))


def _per_channel(b: Backward, x: ir.Value) -> ir.Value:
    return b.make.unsqueeze(x, _batch_dims(b))


def _select_wanted(b: Backward, found: Gradients) -> Gradients:
    """Return the wanted gradients in ``found``, in the types of the operands."""
    rows = zip(found, b.wanted, b.operands, strict=False)
    cast = [
        b.make.cast(x, element_type(own)) if want and x is not None else None
        for x, want, own in rows
    ]
    return b.first(*cast)


@gradient("InstanceNormalization")
def instance(b: Backward) -> Gradients:
    """The gradient of GroupNormalization with one channel per group."""
    return _group_gradients(b, b.shape(0)[1])


@gradient("GroupNormalization")
def group(b: Backward) -> Gradients:
    """With x' = (X - mean) / deviation and g = dY scale: see :class:`Standardised`."""
    return _group_gradients(b, int(b.info.attribute("num_groups")))


def _group_gradients(b: Backward, groups: int) -> Gradients:
    """Return the gradients of X, scale and bias (per channel or per group)."""
    make, sizes = b.make, b.shape(0)
    each = sizes[1] // groups
    whole = [sizes[0], groups, each, math.prod(sizes[2:])]
    per_group = [1, groups, b.shape(1)[0] // groups, 1]
    x, dy = (make.reshape(make.wide(value), whole) for value in (b.operand(0), b.dy))
    normal = standardise(make, x, [2, 3], float(b.info.attribute("epsilon", EPSILON)))
    product = make.mul(dy, normal.value)
    scale = make.reshape(make.wide(b.operand(1)), per_group)
    dx = normal.gradient(make.mul(dy, scale), make.mul(product, scale)) if b.wanted[0] else None
    found = [None if dx is None else make.reshape(dx, sizes)]
    found += [
        make.reshape(unbroadcast(make, term, per_group), b.shape(1)) if b.wanted[index] else None
        for index, term in ((1, product), (2, dy))
    ]
    return _select_wanted(b, found)


@gradient("MeanVarianceNormalization")
def mean_variance(b: Backward) -> Gradients:
    """The gradient of X standardised over `axes`, with an epsilon added to the deviation."""
    make, rank = b.make, len(b.shape(0))
    dims = sorted({axis % rank for axis in b.info.attribute("axes", (0, 2, 3))})
    x, dy = make.wide(b.operand(0)), make.wide(b.dy)
    centred = make.sub(x, mean(make, x, dims))
    deviation = make.shifted(
        make.unary("Sqrt", mean_square(make, centred, dims)), _VARIANCE_EPSILON
    )
    inverse = make.unary("Reciprocal", deviation)
    standardised = Standardised(make, make.mul(centred, inverse), inverse, dims, centred=True)
    return _select_wanted(b, [standardised.gradient(dy, make.mul(dy, standardised.value))])


@gradient("LpNormalization")
def lp(b: Backward) -> Gradients:
    """dX = (dY - n sum(dY Y)) / norm, with n the gradient of the norm: Y, or sign(X) for p = 1.

    Zero where the norm is zero.
    """
    make, order = b.make, int(b.info.attribute("p", _EUCLIDEAN))
    axis = axis_of(b.info, -1, len(b.shape(0)))
    x, y = b.operand(0), b.result()
    norm = make.reduce("ReduceL2" if order == _EUCLIDEAN else "ReduceL1", x, [axis])
    slope = y if order == _EUCLIDEAN else make.unary("Sign", x)
    along = make.reduce("ReduceSum", make.mul(b.dy, y), [axis])
    zero = make.scalar(0.0, x)
    found = make.div(make.sub(b.dy, make.mul(slope, along)), norm)
    return [make.where(make.compare("Equal", norm, zero), zero, found)]


@gradient("LRN")
def local_response(b: Backward) -> Gradients:
    """With s = bias + alpha / size * (sum of X^2 over neighbouring channels), Y = X s^-beta:

    dX = dY s^-beta - 2 alpha beta / size X (sum of dY Y / s over the channels that X is a neighbour
    of).
    """
    make, x, y = b.make, b.operand(0), b.result()
    size, beta = int(b.info.attribute("size")), float(b.info.attribute("beta", 0.75))
    alpha, bias = float(b.info.attribute("alpha", 1e-4)), float(b.info.attribute("bias", 1.0))
    before, after = (size - 1) // 2, size // 2
    scale = make.scaled(_neighbours(make, make.mul(x, x), before, after), alpha / size)
    scale = make.shifted(scale, bias)
    own = make.mul(b.dy, make.binary("Pow", scale, make.scalar(-beta, scale)))
    others = _neighbours(make, make.div(make.mul(b.dy, y), scale), after, before)
    return [make.sub(own, make.mul(x, make.scaled(others, 2 * alpha * beta / size)))]


def _neighbours(make: Build, x: ir.Value, before: int, after: int) -> ir.Value:
    """Return for every channel its sum with the ``before`` previous and ``after`` next channels."""
    channels, padded = sizes_of(x)[1], pad(make, x, {1: (before, after)})
    parts = [take_strided(make, padded, {1: (at, channels, 1)}) for at in range(before + after + 1)]
    return make.onnx("Sum", parts, x.type) if len(parts) > 1 else parts[0]
