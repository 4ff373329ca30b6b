"""Normalisations, with the statistics that they give beside their result."""

from __future__ import annotations

from typing import Any

from torch.nn import functional

from fuzz.gradients.draft import Draft, UnfitError, Value, maker

__all__: list[str] = []


def _spread(d: Draft, x: Value) -> Value:
    """Return ``x`` if its elements differ: constant rows have no direction."""
    if x.size == 0 or (x.size > 1 and float(x.tensor.std()) < 0.05):
        raise UnfitError
    return x


def _standard(x: Any, dims: list[int], epsilon: float) -> tuple[Any, Any, Any]:
    """Return x standardised along ``dims``, its mean and its inverse deviation."""
    mean = x.mean(dims, True)
    inverse = ((x - mean).square().mean(dims, True) + epsilon).rsqrt()
    return (x - mean) * inverse, mean, inverse


@maker(2)
def layer(d: Draft) -> None:
    x = _spread(d, d.pick(range(1, 5)))
    axis, epsilon = d.axis(x.rank), d.number(0.01, 0.1)
    dims = list(range(axis % x.rank, x.rank))
    shape = [x.shape[dim] for dim in dims]
    scale = d.like(shape)
    bias = [d.like(shape)] if d.chance(0.6) else []
    there = [d.chance(0.8), d.chance(0.4), d.chance(0.4)] if d.dtype == "float32" else [True]
    there = there if any(there) else [True]

    def normalised(x: Any, s: Any, b: Any = 0) -> Any:
        y, mean, inverse = _standard(x, dims, epsilon)
        return [y * s + b, mean, inverse][: len(there)]

    held = {"axis": axis, "epsilon": epsilon}
    if not there[0]:
        there[0] = True  # the first output is not optional
    d.add_many("LayerNormalization", [x, scale, *bias], normalised, held, there=there)


@maker(0.7)
def root_mean_square(d: Draft) -> None:
    x = _spread(d, d.pick(range(1, 5)))
    axis, epsilon = d.axis(x.rank), d.number(0.01, 0.1)
    dims = list(range(axis % x.rank, x.rank))
    scale = d.like([x.shape[dim] for dim in dims])
    held = {"axis": axis, "epsilon": epsilon}

    def normalised(x: Any, s: Any) -> Any:
        inverse = (x.square().mean(dims, True) + epsilon).rsqrt()
        return x * inverse * s, inverse

    if d.opset >= 23 and d.chance(0.5):
        d.add("RMSNormalization", [x, scale], lambda x, s: normalised(x, s)[0], held)
    elif d.dtype == "float32":
        both = len(dims) == 1 and d.chance(0.5)  # of more, ONNX Runtime takes it for another shape
        d.add_many(
            "SimplifiedLayerNormalization", [x, scale],
            lambda x, s: normalised(x, s)[: 1 + both], held, there=(True, True)[: 1 + both],
        )  # fmt: skip


@maker(0.7, narrow=True)
def sums(d: Draft) -> None:
    x = _spread(d, d.pick([3]))
    y, simple = d.like(x.shape), d.chance(0.5)
    scale, epsilon = d.like(x.shape[-1:]), d.number(0.01, 0.1)
    bias = [] if simple or d.chance(0.3) else [d.like(x.shape[-1:])]
    both = d.chance(0.5)

    def normalised(x: Any, y: Any, s: Any, b: Any = 0) -> Any:
        total = x + y
        found = _standard(total, [-1], epsilon)[0] * s + b
        if simple:
            found = total * (total.square().mean(-1, True) + epsilon).rsqrt() * s
        return [found, None, None, total] if both else [found]

    d.add_many(
        "SkipSimplifiedLayerNormalization" if simple else "SkipLayerNormalization",
        [x, y, scale, *bias], normalised, {"epsilon": epsilon},
        there=(True, False, False, True) if both else (True,), domain="com.microsoft",
    )  # fmt: skip


@maker(1.5)
def batch(d: Draft) -> None:
    """In training mode, whose running statistics may be used; they are data here, no buffers."""
    x = _spread(d, d.pick(range(2, 5), lambda v: v.size // max(v.shape[1], 1) > 1))
    count = x.shape[1]
    scale, bias = d.like([count]), d.like([count])
    mean, variance = d.data([count]), d.within(0.5, 2.0, d.like([count]))
    momentum, epsilon = d.number(0.2, 0.9), d.number(0.01, 0.1)
    dims = [dim for dim in range(x.rank) if dim != 1]

    def normalised(x: Any, s: Any, b: Any, m: Any, v: Any) -> Any:
        wide = [-1] + [1] * (x.ndim - 2)
        y, centre, _ = _standard(x, dims, epsilon)
        deviation = (x - centre).square().mean(dims)
        moved = [momentum * m + (1 - momentum) * centre.reshape(-1)]
        moved.append(momentum * v + (1 - momentum) * deviation)
        return [y * s.reshape(wide) + b.reshape(wide), *moved]

    held = {"training_mode": 1, "momentum": momentum, "epsilon": epsilon}
    operands = [x, scale, bias, mean, variance]
    made = d.add_many("BatchNormalization", operands, normalised, held, there=(True,) * 3)
    d.used.update(v.name for v in made[1:] if d.chance(0.5))  # not all are on the way to the loss


@maker(1, narrow=True)
def groups(d: Draft) -> None:
    x = _spread(d, d.pick([3, 4, 5]))
    count, epsilon = x.shape[1], d.number(0.01, 0.1)
    if d.chance(0.5):
        d.add(
            "InstanceNormalization", [x, d.like([count]), d.like([count])],
            lambda x, s, b: functional.group_norm(x, count, s, b, epsilon), {"epsilon": epsilon},
        )  # fmt: skip
    elif d.opset >= 21:
        number = d.choice([n for n in range(1, count + 1) if count % n == 0])
        d.add(
            "GroupNormalization", [x, d.like([count]), d.like([count])],
            lambda x, s, b: functional.group_norm(x, number, s, b, epsilon),
            {"epsilon": epsilon, "num_groups": number},
        )  # fmt: skip


@maker(0.4, narrow=True)
def neighbours(d: Draft) -> None:
    x = d.pick([4], lambda v: v.size > 0)
    size, alpha, beta = d.choice([1, 3]), d.number(0.1, 1), d.number(0.3, 0.9)
    bias = d.number(0.5, 2)

    def normalised(x: Any) -> Any:
        square = functional.pad(x.square(), (0, 0, 0, 0, size // 2, size // 2))
        total = square.unfold(1, size, 1).sum(-1)
        return x * (bias + alpha / size * total) ** -beta

    held = {"size": size, "alpha": alpha, "beta": beta, "bias": bias}
    d.add("LRN", [x], normalised, held)


@maker(0.4, narrow=True)
def mean_variance(d: Draft) -> None:
    x = _spread(d, d.pick([4]))
    axes = d.axes(4, 1)
    if float(x.tensor.var(axes, unbiased=False).min()) < 0.05:
        raise UnfitError
    d.add(
        "MeanVarianceNormalization", [x],
        lambda x: _standard(x, axes, 0.0)[0], {"axes": axes},
    )  # fmt: skip
