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
from typing import TYPE_CHECKING, NamedTuple

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
from tensoropt.dialects.onnx import owner

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["RATIO", "Seeds", "draw_seeds", "keep_mask", "scale_of", "threshold_of"]

RATIO = 0.5
"""The ratio of a Dropout without one."""

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
    scale = _scale(make, ratio, x)
    scaled = make.mul(x, scale)
    f.leader = owner(scaled)
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
        return RATIO
    literal = f.info.literal(1)
    return f.operands[1] if literal is None else float(literal.reshape(()))


def _scale(make: Build, ratio: float | ir.Value, x: ir.Value) -> ir.Value:
    """Return 1 / (1 - ratio), or 0 if everything is dropped."""
    if isinstance(ratio, float):
        return make.scalar(scale_of(ratio), x)
    left = make.sub(make.scalar(1.0, ratio), ratio)
    inverse = make.where(
        make.compare("Greater", left, make.scalar(0.0, left)),
        make.unary("Reciprocal", left),
        make.scalar(0.0, left),
    )
    return make.cast(inverse, ir.RankedTensorType(x.type).element_type)


def scale_of(ratio: float) -> float:
    """Return 1 / (1 - ratio), or 0 if everything is dropped."""
    return 0.0 if ratio == 1 else 1.0 / (1.0 - ratio)


def keep_mask(
    make: Build, training: Training, shape: Sequence[int], ratio: float | ir.Value
) -> ir.Value:
    """Return bools of ``shape``, each false with probability ``ratio``, from the step's seed.

    ``ratio`` is a number or a floating point scalar. The literals are one key per index of each
    dimension.
    """
    import numpy as np

    sizes = range(len(shape) + 1)
    first = min(sizes, key=lambda d: math.prod(shape[:d]) + math.prod(shape[d:]))
    left, right, mix = draw_seeds(make, training, shape, first)
    x = make.mul(left, right)
    hashed = make.mul(x, make.add(x, make.constant(np.array(mix))))
    return make.compare("Greater", hashed, _threshold(make, ratio))


class Seeds(NamedTuple):
    """Keys of the first and of the other dimensions of a mask, int64, and a number.

    The hash of an element is ``x (x + mix)`` modulo 2^64 for the product x of its keys.
    """

    left: ir.Value
    right: ir.Value
    mix: int


def draw_seeds(make: Build, training: Training, shape: Sequence[int], first: int) -> Seeds:
    """Return the keys of the ``first`` dimensions of a mask of ``shape``, and of the others."""
    import numpy as np

    rng = np.random.default_rng(training.number())
    spread, start = (make.constant(_words(rng, even=even)) for even in (True, False))
    seed = make.add(make.mul(training.seed(), spread), start)
    halves = range(first), range(first, len(shape))
    left, right = (_table(make, seed, rng, shape, dims) for dims in halves)
    return Seeds(left, right, int(_words(rng, even=True)))


def _words(
    rng: np.random.Generator, shape: Sequence[int] = (), *, even: bool = False
) -> npt.NDArray[np.int64]:
    """Return random odd (or ``even``) numbers."""
    import numpy as np

    words = rng.integers(-_WORD // 2, _WORD // 2, shape, np.int64) | 1
    return np.asarray(words - 1 if even else words, np.int64)


def _table(
    make: Build, seed: ir.Value, rng: np.random.Generator, shape: Sequence[int], dims: range
) -> ir.Value:
    """Return the keys of a group of dimensions; all other dimensions have size 1."""
    rank = len(shape)
    lines = [[n if d == at else 1 for d, n in enumerate(shape)] for at in dims] or [[1] * rank]
    keys = [make.constant(_words(rng, line)) for line in lines]
    odd = [make.constant(_words(rng)) for _ in keys]
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


def threshold_of(ratio: float) -> int:
    """Return the 64-bit number that is not exceeded with probability ``ratio``."""
    return min(max(int((ratio - 0.5) * _WORD) - 1, -_WORD // 2), _WORD // 2 - 1)


def _threshold(make: Build, ratio: float | ir.Value) -> ir.Value:
    """Return the int64 number that is not exceeded with probability ``ratio``."""
    import numpy as np

    if isinstance(ratio, float):
        return make.constant(np.array(threshold_of(ratio), np.int64))
    high = make.scaled(make.shifted(ratio, -0.5), float(_HALF))
    whole = make.cast(high, ir.IntegerType.get_signless(64))
    return make.mul(whole, make.constant(np.array(_HALF, np.int64)))
