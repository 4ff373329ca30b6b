"""Normalisations."""

from __future__ import annotations

from fuzz.builder import Builder, UnsuitableError, Value
from fuzz.operators.registry import maker
from fuzz.operators.windows import image


def positive(b: Builder, size: int, dtype: str) -> Value:
    return b.constant(b.rng.uniform(0.5, 1.5, size).astype(dtype))


@maker(2.0, since=17)
def layer_normalization(b: Builder) -> None:
    x = b.float(least=1)
    axis = b.axis(x.rank)
    shape = x.shape[axis:]
    scale = b.weight(shape[-1:] if b.flip(0.2) else shape, x.dtype, exact=False)
    bias = [b.weight(shape, x.dtype, exact=False)] if b.flip(0.7) else []
    results = b.choose((1, 1, 2, 3))
    b.add("LayerNormalization", x, scale, *bias, results=results, axis=axis, epsilon=0.01)


@maker(1.5)
def batch_normalization(b: Builder) -> None:
    x = b.float(least=2, dtype="float32")
    channels = x.shape[1]
    scale, bias = (b.weight((channels,), x.dtype, exact=False) for _ in range(2))
    if b.opset >= 14 and b.flip(0.2):
        held = {"training_mode": 1, "momentum": 0.7}
        own = (
            b.constant(b.rng.uniform(0.5, 1.5, channels).astype(x.dtype), kept=False)
            for _ in range(2)
        )  # it writes over them
        b.add("BatchNormalization", x, scale, bias, *own, results=3, **held)
    else:
        mean = b.weight((channels,), x.dtype, exact=False)
        b.add("BatchNormalization", x, scale, bias, mean, positive(b, channels, x.dtype))


@maker(1.0)
def instance_normalization(b: Builder) -> None:
    x = image(b)
    if not x.array.size:
        raise UnsuitableError("of nothing, ONNX Runtime reads what is not there")
    scale, bias = (b.weight((x.shape[1],), x.dtype, exact=False) for _ in range(2))
    b.add("InstanceNormalization", x, scale, bias, epsilon=0.01)


@maker(1.0, since=18)
def group_normalization(b: Builder) -> None:
    x = image(b)
    channels = x.shape[1]
    groups = b.choose([n for n in range(1, channels + 1) if channels % n == 0])
    size = channels if b.opset >= 21 else groups
    scale, bias = (b.weight((size,), x.dtype, exact=False) for _ in range(2))
    b.add("GroupNormalization", x, scale, bias, num_groups=groups, epsilon=0.01)


@maker(0.7)
def lp_normalization(b: Builder) -> None:
    x = b.float(least=1, dtype="float32")
    b.add("LpNormalization", x, axis=b.axis(x.rank), p=b.choose((1, 2)))


@maker(0.5)
def mean_variance(b: Builder) -> None:
    x = b.float(least=2, dtype="float32")
    axes = b.subset(x.rank, least=1)
    b.add("MeanVarianceNormalization", x, axes=axes)


@maker(0.7)
def loss(b: Builder) -> None:
    x = b.float(least=2, dtype="float32")
    shape = (x.shape[0], *x.shape[2:])
    labels = b.constant(b.rng.integers(0, max(x.shape[1], 1), shape))
    reduction = b.choose((None, "none", "sum", "mean"))
    ignored = b.choose((None, 0))
    weight = [positive(b, x.shape[1], x.dtype)] if b.flip() else []
    if b.flip():
        results = b.choose((1, 2))
        b.add("SoftmaxCrossEntropyLoss", x, labels, *weight, results=results,
              reduction=reduction, ignore_index=ignored)  # fmt: skip
    else:
        b.add("NegativeLogLikelihoodLoss", x, labels, *weight, reduction=reduction,
              ignore_index=ignored)  # fmt: skip


@maker(1.0)
def simplified(b: Builder) -> None:
    """Add ONNX Runtime's normalisation by the root mean square, with or without a sum before."""
    x = b.float(least=1, dtype="float32")
    scale = b.weight(x.shape[-1:], x.dtype, exact=False)
    if b.flip() or x.rank != 3:
        b.add("SimplifiedLayerNormalization", x, scale, axis=-1, results=b.choose((1, 2)))
        return
    skip = b.pick(lambda v: v.dtype == x.dtype and v.shape == x.shape)
    bias = b.weight(x.shape[-1:], x.dtype, exact=False)
    if b.flip():
        b.add("SkipLayerNormalization", x, skip, scale, bias, domain="com.microsoft")
    else:
        b.add("SkipSimplifiedLayerNormalization", x, skip, scale, domain="com.microsoft")
