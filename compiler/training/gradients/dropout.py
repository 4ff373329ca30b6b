"""Dropout in training (Srivastava et al., 2014), with a mask that does not depend on the split.

An element is dropped by a hash of the step's seed, the number of the dropout and the element's
position. The dimensions are divided into two groups. Each group has a table of 64-bit keys, mixed
from the seed and from random literals along single dimensions. The hash of an element is x (x + c)
modulo 2^64 for the product x of its two keys. A rank can therefore hash its shard from shards of
the tables, using only int64 products and sums, which wrap around identically on every device. The
high bits of a product depend on all bits of its factors, so they decide the comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from tensoropt.compiler.training.gradients.registry import (
    Backward,
    ForwardOp,
    Gradients,
    Training,
    forward_form,
    gradient,
)
from tensoropt.dialects.build import Build, sizes_of
from tensoropt.dialects.mlir import ir

if TYPE_CHECKING:
    import numpy as np

__all__ = ["keep_mask"]

_RATIO = 0.5
_HALF, _WORD = 2**32, 2**64


@forward_form("Dropout")
def dropout_form(f: ForwardOp) -> Sequence[ir.Value | None]:
    """X / (1 - ratio) where the mask is true, else zero; the inference mode is ignored.

    The results save no copy of X; the mask is a byte per element.
    """
    import numpy as np

    make, x, ratio = f.make, f.operands[0], _ratio(f)
    if isinstance(ratio, float) and ratio == 0:
        true = make.constant(np.array(True)) if f.has_result(1) else None
        whole = None if true is None else make.expand(true, sizes_of(x))
        return [make.unary("Identity", x), whole][: len(f.op.results)]
    # The reader of X comes first, as the leader of the other ops.
    x = x if isinstance(ratio, float) else make.unary("Identity", x)
    scale = _scale(make, ratio, x)
    scaled = make.mul(x, scale)
    mask = keep_mask(make, f.training, sizes_of(x), ratio)
    f.saved.update(mask=mask, scale=scale)
    return [make.where(mask, scaled, make.scalar(0.0, x)), mask][: len(f.op.results)]


@gradient("Dropout")
def dropout(b: Backward) -> Gradients:
    """dY / (1 - ratio) where the mask is true, else zero."""
    if not b.saved_values:
        return b.first(b.dy)
    scaled = b.make.mul(b.dy, b.saved("scale"))
    return b.first(b.make.where(b.saved("mask"), scaled, b.make.scalar(0.0, scaled)))


def _ratio(f: ForwardOp) -> float | ir.Value:
    """Return the ratio as a number, or as a value of the graph."""
    if not f.has(1):
        return _RATIO
    literal = f.info.literal(1)
    return f.operands[1] if literal is None else float(literal.reshape(()))


def _scale(make: Build, ratio: float | ir.Value, x: ir.Value) -> ir.Value:
    """Return 1 / (1 - ratio), or 0 if everything is dropped."""
    if isinstance(ratio, float):
        return make.scalar(0.0 if ratio == 1 else 1.0 / (1.0 - ratio), x)
    left = make.sub(make.scalar(1.0, ratio), ratio)
    inverse = make.where(
        make.compare("Greater", left, make.scalar(0.0, left)),
        make.unary("Reciprocal", left),
        make.scalar(0.0, left),
    )
    return make.cast(inverse, ir.RankedTensorType(x.type).element_type)


def keep_mask(
    make: Build, training: Training, shape: Sequence[int], ratio: float | ir.Value
) -> ir.Value:
    """Return bools of ``shape``, each false with probability ``ratio``, from the step's seed.

    ``ratio`` is a number or a floating point scalar. The literals are one key per index of each
    dimension.
    """
    import numpy as np

    rng = np.random.default_rng(training.number())
    spread, start = _key(make, rng, even=True), _key(make, rng)
    seed = make.add(make.mul(training.seed(), spread), start)
    left, right = (_table(make, seed, rng, shape, dims) for dims in _halves(shape))
    x = make.mul(left, right)
    found = make.mul(x, make.add(x, _key(make, rng, even=True)))
    return make.compare("Greater", found, _threshold(make, ratio))


def _key(
    make: Build, rng: np.random.Generator, shape: Sequence[int] = (), *, even: bool = False
) -> ir.Value:
    """Return a literal of random odd (or ``even``) numbers."""
    import numpy as np

    words = rng.integers(-_WORD // 2, _WORD // 2, shape, np.int64) | 1
    return make.constant(np.asarray(words - 1 if even else words, np.int64))


def _halves(shape: Sequence[int]) -> tuple[range, range]:
    """Return the dimensions in two groups with similar numbers of elements."""
    rank = len(shape)
    at = min(range(rank + 1), key=lambda d: math.prod(shape[:d]) + math.prod(shape[d:]))
    return range(at), range(at, rank)


def _table(
    make: Build, seed: ir.Value, rng: np.random.Generator, shape: Sequence[int], dims: range
) -> ir.Value:
    """Return the keys of a group of dimensions; all other dimensions have size 1."""
    rank = len(shape)
    keys = [_key(make, rng, [n if d == at else 1 for d, n in enumerate(shape)]) for at in dims]
    keys = keys or [_key(make, rng, [1] * rank)]
    odd = [_key(make, rng) for _ in keys]
    return reduce(
        lambda x, pair: _mix(make, make.mul(pair[0], x), pair[1]),
        zip(keys, odd, strict=True),
        seed,
    )


def _mix(make: Build, x: ir.Value, key: ir.Value) -> ir.Value:
    """Return ``x`` mixed with ``key``, its high bits added to the low ones.

    The high bits depend on all other bits.
    """
    import numpy as np

    x = make.mul(x, make.add(x, key))
    high = make.div(x, make.constant(np.array(_HALF, np.int64)))
    return make.mul(make.add(x, high), key)


def _threshold(make: Build, ratio: float | ir.Value) -> ir.Value:
    """Return the int64 number that is not exceeded with probability ``ratio``."""
    import numpy as np

    if isinstance(ratio, float):
        least = max(int((ratio - 0.5) * _WORD) - 1, -_WORD // 2)
        return make.constant(np.array(min(least, _WORD // 2 - 1), np.int64))
    high = make.scaled(make.shifted(ratio, -0.5), float(_HALF))
    whole = make.cast(high, ir.IntegerType.get_signless(64))
    return make.mul(whole, make.constant(np.array(_HALF, np.int64)))
