"""Quantising, and products of integers."""

from __future__ import annotations

import numpy as np

from fuzz.builder import Builder, Value
from fuzz.operators.registry import maker


def steps(b: Builder, size: int | None) -> Value:
    """Return scales that are powers of two, so that what is exact stays so."""
    shape = () if size is None else (size,)
    return b.constant(2.0 ** b.rng.integers(-2, 1, shape).astype(np.float32), kept=False)


def zeros(b: Builder, size: int | None, kind: str) -> Value:
    shape = () if size is None else (size,)
    low = 0 if kind == "uint8" else -3
    return b.constant(np.asarray(b.rng.integers(low, 4, shape)).astype(kind), kept=False)


@maker(2.0)
def quantize(b: Builder) -> None:
    x = b.float(dtype="float32")
    axis = b.axis(x.rank) if x.rank and b.flip(0.4) else None
    size = None if axis is None else x.shape[axis]
    zero = [zeros(b, size, b.choose(("uint8", "int8")))] if b.flip(0.8) else []
    b.add("QuantizeLinear", x, steps(b, size), *zero, axis=axis, exact="jump")


@maker(2.5)
def dequantize(b: Builder) -> None:
    x = b.pick(lambda v: v.dtype in ("int8", "uint8"))
    axis = b.axis(x.rank) if x.rank and b.flip(0.4) else None
    size = None if axis is None else x.shape[axis]
    zero = [zeros(b, size, x.dtype)] if b.flip(0.8) else []
    b.add("DequantizeLinear", x, steps(b, size), *zero, axis=axis, exact="linear")


@maker(1.0)
def dynamic(b: Builder) -> None:
    b.add("DynamicQuantizeLinear", b.float(dtype="float32"), results=3, exact="jump")


def bytes_of(b: Builder, least: int) -> Value:
    """Return a tensor of bytes, perhaps a new input."""
    if b.flip():
        return b.pick(
            lambda v: v.dtype in ("int8", "uint8") and v.rank >= least and v.array.size > 0
        )  # a product over nothing is what the memory held before
    shape = [max(b.size(), 1) for _ in range(b.integer(max(least, 2), 3))]
    return b.input(shape, b.choose(("int8", "uint8")))


@maker(1.5)
def integer_product(b: Builder) -> None:
    x = bytes_of(b, 2)
    w = b.weight((x.shape[-1], b.size()), b.choose(("int8", "uint8")))
    zero = [zeros(b, None, x.dtype)] if b.flip() else []
    if zero and b.flip():
        zero.append(zeros(b, w.shape[1] if b.flip() else None, w.dtype))
    b.add("MatMulInteger", x, w, *zero)


@maker(1.0)
def quantized_product(b: Builder) -> None:
    x = bytes_of(b, 2)
    w = b.weight((x.shape[-1], b.size()), x.dtype)
    many = w.shape[1] if b.flip(0.4) else None
    operands = (x, steps(b, None), zeros(b, None, x.dtype), w, steps(b, many),
                zeros(b, many, w.dtype), steps(b, None), zeros(b, None, x.dtype))  # fmt: skip
    b.add("QLinearMatMul", *operands)


@maker(1.0)
def quantized_convolution(b: Builder) -> None:
    x = b.input((b.integer(1, 3), b.integer(1, 4), b.integer(2, 6), b.integer(2, 6)), "uint8")
    kernel = [b.integer(1, 2), b.integer(1, 2)]
    filters = b.integer(1, 4)
    w = b.weight((filters, x.shape[1], *kernel), b.choose(("uint8", "int8")))
    held = {"pads": [b.integer(0, n - 1) for n in (*kernel, *kernel)]}
    if b.flip():
        b.add("ConvInteger", x, w, *([zeros(b, None, x.dtype)] if b.flip() else []), **held)
        return
    many = filters if b.flip(0.4) else None
    bias = b.constant(b.rng.integers(-8, 8, filters).astype(np.int32))
    operands = (x, steps(b, None), zeros(b, None, "uint8"), w, steps(b, many),
                b.constant(np.zeros(() if many is None else many, w.dtype), kept=False),
                steps(b, None), zeros(b, None, "uint8"))  # fmt: skip
    b.add("QLinearConv", *operands, *([bias] if b.flip() else []), **held)
