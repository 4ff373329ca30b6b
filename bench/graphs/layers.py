"""Layers of language models."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from graphs.builder import Builder

__all__ = [
    "angles",
    "attend",
    "causal_mask",
    "dropped",
    "embed",
    "encoder_layer",
    "heads_of",
    "layer_norm",
    "linear",
    "linear_4_bits",
    "mask_scores",
    "merge_heads",
    "unembed",
]

_SPREAD = 10000.0
"""The base of the wavelengths of positions (Vaswani et al., arXiv 1706.03762, section 3.5)."""
_BLOCK = 32
_STEPS = 4.6
"""The standard deviation of uniform 4-bit integers."""


def linear(g: Builder, x: str, inputs: int, outputs: int, name: str, *, bias: bool = True) -> str:
    """Map the last dimension linearly."""
    with g.scope(name):
        y = g.op("MatMul", x, g.weight("weight", inputs, outputs, fan_in=inputs))
        return g.op("Add", y, g.weight("bias", outputs)) if bias else y


def linear_4_bits(g: Builder, x: str, inputs: int, outputs: int, name: str) -> str:
    """Map the last dimension by 4-bit weights, with a scale per 32 weights."""
    blocks = inputs // _BLOCK
    sizes = {"K": inputs, "N": outputs, "bits": 4, "block_size": _BLOCK}
    with g.scope(name):
        packed = g.weight("weight", outputs, blocks, _BLOCK // 2, dtype="uint8")
        scales = g.weight("scales", outputs, blocks, scale=inputs**-0.5 / _STEPS)
        return g.op("MatMulNBits", x, packed, scales, domain="com.microsoft", **sizes)


def layer_norm(g: Builder, x: str, width: int, name: str) -> str:
    """Normalise the last dimension."""
    with g.scope(name):
        scale, bias = g.weight("weight", width), g.weight("bias", width)
        return g.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)


def dropped(g: Builder, x: str, ratio: float) -> str:
    """Return ``x`` with dropout of the part ``ratio`` in training; 0 returns ``x``."""
    return g.op("Dropout", x, g.constant(ratio, "float32")) if ratio else x


def embed(g: Builder, ids: str, rows: int, width: int, name: str) -> tuple[str, str]:
    """Look up rows of a table; return them and the table."""
    with g.scope(name):
        table = g.weight("weight", rows, width, fan_in=width)
        return g.op("Gather", table, ids), table


def unembed(g: Builder, x: str, table: str, shape: tuple[int, int, int]) -> str:
    """Return the product of [batch, sequence, width] with the rows of a tied embedding."""
    batch, sequence, width = shape
    with g.scope("unembed"):
        flat = g.op("Reshape", x, g.ints(batch * sequence, width))
        scores = g.op("Gemm", flat, table, transB=1)
        return g.op("Reshape", scores, g.ints(batch, sequence, -1))


def heads_of(g: Builder, x: str, heads: int, size: int, *, turned: bool = False) -> str:
    """Return [batch, sequence, heads * size] as [batch, heads, sequence, size].

    ``turned`` swaps the last two dimensions.
    """
    y = g.op("Reshape", x, g.ints(0, 0, heads, size), name="split_heads")
    return g.op("Transpose", y, perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])


def merge_heads(g: Builder, x: str, width: int) -> str:
    """Undo :func:`heads_of`."""
    y = g.op("Transpose", x, perm=[0, 2, 1, 3])
    return g.op("Reshape", y, g.ints(0, 0, width), name="merge_heads")


def attend(
    g: Builder,
    q: str,
    k_turned: str,
    v: str,
    size: int,
    mask: str = "",
    bias: str = "",
    dropout: float = 0.0,
) -> str:
    """Return softmax(q k / sqrt(size)) v, within ``mask``, or with ``bias`` added to scores.

    In training, ``dropout`` is the part of the softmax that becomes 0.
    """
    scores = g.op("MatMul", g.op("Mul", q, g.constant(size**-0.5), name="scale"), k_turned)
    scores = mask_scores(g, scores, mask) if mask else scores
    scores = g.op("Add", scores, bias) if bias else scores
    return g.op("MatMul", dropped(g, g.op("Softmax", scores, axis=-1), dropout), v)


def encoder_layer(g: Builder, x: str, width: int, heads: int) -> str:
    """Return a layer of an encoder that normalises the inputs of attention and of its products."""
    with g.scope("attention"):
        y = layer_norm(g, x, width, "norm")
        q, k, v = (linear(g, y, width, width, n) for n in ("q", "k", "v"))
        k = heads_of(g, k, heads, width // heads, turned=True)
        q, v = (heads_of(g, part, heads, width // heads) for part in (q, v))
        y = merge_heads(g, attend(g, q, k, v, width // heads), width)
        y = linear(g, y, width, width, "out")
    x = g.op("Add", x, y)
    with g.scope("mlp"):
        y = layer_norm(g, x, width, "norm")
        y = g.op("Gelu", linear(g, y, width, 4 * width, "up"))
        y = linear(g, y, 4 * width, width, "down")
    return g.op("Add", x, y)


def mask_scores(g: Builder, scores: str, mask: str) -> str:
    """Replace scores outside ``mask`` by the lowest number."""
    return g.op("Where", mask, scores, g.constant(ml_dtypes.finfo(g.dtype).min), name="mask")


def causal_mask(g: Builder, sequence: int) -> str:
    """Return [sequence, sequence]: whether a position may attend to another."""
    with g.scope("causal"):
        steps = _steps(g, sequence)
        rows = g.op("Unsqueeze", steps, g.ints(1))
        return g.op("GreaterOrEqual", rows, g.op("Unsqueeze", steps, g.ints(0)))


def angles(g: Builder, sequence: int, size: int, spread: float = _SPREAD) -> tuple[str, str]:
    """Return cosines and sines, both [sequence, size / 2], of position times falling frequency."""
    with g.scope("angles"):
        steps = g.op("Cast", _steps(g, sequence), to=1)
        column = g.op("Unsqueeze", steps, g.ints(1))
        frequencies = spread ** -(np.arange(0, size, 2) / size)
        phase = g.op("Mul", column, g.constant(frequencies, "float32"))
        return _as_weights(g, g.op("Cos", phase)), _as_weights(g, g.op("Sin", phase))


def _steps(g: Builder, sequence: int) -> str:
    start, end, step = (g.constant(n, "int64") for n in (0, sequence, 1))
    return g.op("Range", start, end, step)


def _as_weights(g: Builder, x: str) -> str:
    """Cast from float32 to the type of the model."""
    return x if g.dtype == "float32" else g.op("CastLike", x, g.constant(0))
