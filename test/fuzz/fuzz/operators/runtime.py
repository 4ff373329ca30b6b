"""Attention, of the standard and of ONNX Runtime, and the other operators of com.microsoft."""

from __future__ import annotations

import numpy as np

from fuzz.builder import Builder, UnsuitableError, Value
from fuzz.operators.registry import maker

DOMAIN = "com.microsoft"


@maker(1.0)
def activation(b: Builder) -> None:
    x = b.float(least=1, dtype="float32")
    bias = b.weight(x.shape[-1:], exact=False)
    kind = b.choose(("Gelu", "BiasGelu", "FastGelu", "QuickGelu"))
    b.add(kind, x, *([bias] if kind in ("BiasGelu", "FastGelu") else []), domain=DOMAIN)


@maker(1.0)
def fused_product(b: Builder) -> None:
    x = b.float(least=2, dtype="float32")
    over, turned = b.integer(0, 1), b.integer(0, 1)
    inner, columns = x.shape[-2 if over else -1], b.size()
    batch = x.shape[:-2] if b.flip() else ()
    w = b.weight((*batch, *((columns, inner) if turned else (inner, columns))))
    held = {"transA": over, "transB": turned, "alpha": b.choose((1.0, 0.5))}
    b.add("FusedMatMul", x, w, domain=DOMAIN, exact="linear", **held)


@maker(0.5)
def fused_gemm(b: Builder) -> None:
    x = b.float(rank=2, dtype="float32")
    columns = b.size()
    operands = [b.weight((x.shape[1], columns)), b.weight((columns,))]
    b.add("FusedGemm", x, *operands, activation=b.choose(("Relu", "Tanh")), domain=DOMAIN)


def sequences(b: Builder, width: int, length: int | None = None, batch: int | None = None) -> Value:
    shape = (batch or b.choose((1, 2, 4)), length or b.integer(1, 5), width)
    return b.input(shape, exact=False)


@maker(1.5)
def attention(b: Builder) -> None:
    heads, size = b.choose((1, 2, 3, 4)), b.choose((2, 4))
    width = heads * size
    if b.flip(0.3):
        x = sequences(b, b.size() + 1)
        w = b.weight((x.shape[-1], 3 * width), exact=False)
        bias = b.weight((3 * width,), exact=False)
        held = {"num_heads": heads, "unidirectional": b.integer(0, 1)}
        b.add("Attention", x, w, bias, domain=DOMAIN, **held)
        return
    q = sequences(b, width)
    batch = q.shape[0]
    k = sequences(b, width, batch=batch)
    v = sequences(b, width, k.shape[1], batch)
    mask = b.weight((b.choose((1, batch)), b.choose((1, heads)), q.shape[1], k.shape[1]),
                    exact=False)  # fmt: skip
    bias = b.weight((3 * width,), exact=False) if b.flip(0.3) else None
    operands = [q, k, v, bias, None, mask if b.flip() else None]
    b.add("MultiHeadAttention", *operands, num_heads=heads, domain=DOMAIN)


@maker(1.0)
def attention_by_hand(b: Builder) -> None:
    """Add the attention that exporters write: reshape, transpose, product, softmax, product."""
    heads, size = b.choose((1, 2, 3, 4)), b.choose((1, 2, 4))
    x = b.float(rank=3, dtype="float32")
    weights = [b.weight((x.shape[-1], heads * size), exact=False) for _ in range(3)]
    wide = b.numbers_of([0, 0, heads, size])
    if 0 in x.shape:
        wide = b.numbers_of([*x.shape[:2], heads, size])
    q, k, v = (b.add("Reshape", b.add("MatMul", x, w)[0], wide)[0] for w in weights)
    q, v = (b.add("Transpose", part, perm=[0, 2, 1, 3])[0] for part in (q, v))
    k = b.add("Transpose", k, perm=[0, 2, 3, 1])[0]
    scores = b.add("Softmax", b.add("MatMul", q, k)[0], axis=-1)[0]
    y = b.add("Transpose", b.add("MatMul", scores, v)[0], perm=[0, 2, 1, 3])[0]
    b.add("Reshape", y, b.numbers_of([*x.shape[:2], heads * size]))


@maker(0.6)
def grouped_attention(b: Builder) -> None:
    heads, groups, size = 4, b.choose((1, 2, 4)), 8
    batch, length, past = b.choose((1, 2, 4)), 1, b.integer(1, 4)
    q = sequences(b, heads * size, length, batch)
    k, v = (sequences(b, groups * size, length, batch) for _ in range(2))
    caches = [b.input((batch, groups, past, size), exact=False, is_fixed=True) for _ in range(2)]
    ends = b.constant(np.full(batch, past, np.int32))
    total = b.constant(np.array(past + length, np.int32))
    b.add("GroupQueryAttention", q, k, v, *caches, ends, total, num_heads=heads,
          kv_num_heads=groups, results=3, domain=DOMAIN)  # fmt: skip


@maker(0.6)
def rotary(b: Builder) -> None:
    heads, size, length = b.choose((1, 2, 4)), b.choose((2, 4)), b.integer(1, 4)
    x = b.input((b.choose((1, 2)), heads, length, size), exact=False)
    places = b.constant(np.tile(np.arange(length), (x.shape[0], 1)))
    tables = [b.constant(f(b.rng.uniform(0, 3, (8, size // 2))).astype(np.float32))
              for f in (np.cos, np.sin)]  # fmt: skip
    b.add("RotaryEmbedding", x, places, *tables, interleaved=b.integer(0, 1), domain=DOMAIN)


@maker(0.6)
def few_bits(b: Builder) -> None:
    """Add a product with weights of 4 bits."""
    x = b.float(least=2, dtype="float32")
    inner, columns, block = x.shape[-1], b.size(), 16
    if not inner:
        raise UnsuitableError("ONNX Runtime leaves the memory of a sum of nothing as it was")
    blocks = -(-inner // block)
    w = b.constant(b.rng.integers(0, 256, (columns, blocks, block // 2)).astype(np.uint8))
    scales = b.constant(2.0 ** b.rng.integers(-3, 0, columns * blocks).astype(np.float32))
    held = {"K": inner, "N": columns, "bits": 4, "block_size": block, "accuracy_level": 1}
    b.add("MatMulNBits", x, w, scales, domain=DOMAIN, **held)
