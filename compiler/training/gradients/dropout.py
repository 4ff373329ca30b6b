"""Dropout in training (Srivastava et al., 2014), whose mask is the same however it is split.

An element is dropped by a hash of the seed of the step, the number of the dropout and its place:
the dimensions are cut into two groups, each group has a table of 64-bit keys (mixed of the seed and
of random literals along single dimensions), and the hash of an element is x (x + c) of the product
x of its two keys, modulo 2^64. So a rank hashes what it holds from parts of the tables, by products
and sums of int64 alone, which wrap around alike on every device. The high bits of a product depend
on all bits of its factors; they are what is compared.
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
    """X / (1 - ratio) where the mask is, else zero, in whatever mode the operator is for inference.

    The results keep no copy of X; the mask is a byte per element.
    """
    make, x, ratio = f.make, f.operands[0], _ratio(f)
    if isinstance(ratio, float) and ratio == 0:
        whole = make.expand(_true(make), sizes_of(x)) if f.gives(1) else None
        return [make.unary("Identity", x), whole][: len(f.op.results)]
    # What reads X comes first: all that follows lies as it does.
    x = x if isinstance(ratio, float) else make.unary("Identity", x)
    scale = _scale(make, ratio, x)
    scaled = make.mul(x, scale)
    mask = keep_mask(make, f.training, sizes_of(x), ratio)
    f.kept.update(mask=mask, scale=scale)
    return [make.where(mask, scaled, make.scalar(0.0, x)), mask][: len(f.op.results)]


@gradient("Dropout")
def dropout(b: Backward) -> Gradients:
    """The same of the gradient."""
    if not b.held:
        return b.first(b.dy)
    scaled = b.make.mul(b.dy, b.kept("scale"))
    return b.first(b.make.where(b.kept("mask"), scaled, b.make.scalar(0.0, scaled)))


def _ratio(f: ForwardOp) -> float | ir.Value:
    """Return the ratio as a number, or the value of the graph that holds it."""
    if not f.has(1):
        return _RATIO
    literal = f.info.literal(1)
    return f.operands[1] if literal is None else float(literal.reshape(()))


def _true(make: Build) -> ir.Value:
    import numpy as np

    return make.constant(np.array(True))


def _scale(make: Build, ratio: float | ir.Value, x: ir.Value) -> ir.Value:
    """Return 1 / (1 - ratio), or 0 where all is dropped."""
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
    """Return booleans of ``shape``, each false with probability ``ratio``, by the step's seed.

    ``ratio`` is a number or a floating point scalar. Literals: a key per index of each dimension.
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
    """Return a literal of random odd numbers, or even ones."""
    import numpy as np

    words = rng.integers(-_WORD // 2, _WORD // 2, shape, np.int64) | 1
    return make.constant(np.asarray(words - 1 if even else words, np.int64))


def _halves(shape: Sequence[int]) -> tuple[range, range]:
    """Return the dimensions in two groups, of about as many elements each."""
    rank = len(shape)
    at = min(range(rank + 1), key=lambda d: math.prod(shape[:d]) + math.prod(shape[d:]))
    return range(at), range(at, rank)


def _table(
    make: Build, seed: ir.Value, rng: np.random.Generator, shape: Sequence[int], dims: range
) -> ir.Value:
    """Return the keys of a group of dimensions; the other ones are 1 in size."""
    rank = len(shape)
    keys = [_key(make, rng, [n if d == at else 1 for d, n in enumerate(shape)]) for at in dims]
    keys = keys or [_key(make, rng, [1] * rank)]
    odd = [_key(make, rng) for _ in keys]
    return reduce(
        lambda x, pair: _mixed(make, make.mul(pair[0], x), pair[1]),
        zip(keys, odd, strict=True),
        seed,
    )


def _mixed(make: Build, x: ir.Value, key: ir.Value) -> ir.Value:
    """Return ``x`` with its high bits, which depend on all others, brought down to the low ones."""
    import numpy as np

    x = make.mul(x, make.add(x, key))
    high = make.div(x, make.constant(np.array(_HALF, np.int64)))
    return make.mul(make.add(x, high), key)


def _threshold(make: Build, ratio: float | ir.Value) -> ir.Value:
    """Return the number, of int64, that a part ``ratio`` of all of them do not exceed."""
    import numpy as np

    if isinstance(ratio, float):
        least = max(int((ratio - 0.5) * _WORD) - 1, -_WORD // 2)
        return make.constant(np.array(min(least, _WORD // 2 - 1), np.int64))
    high = make.scaled(make.shifted(ratio, -0.5), float(_HALF))
    whole = make.cast(high, ir.IntegerType.get_signless(64))
    return make.mul(whole, make.constant(np.array(_HALF, np.int64)))
