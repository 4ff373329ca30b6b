"""Products of matrices, and attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from fuzz.gradients.draft import Draft, UnfitError, Value, maker

__all__: list[str] = []

_RUNTIME = "com.microsoft"


@maker(4)
def matmul(d: Draft) -> None:
    x = d.pick(range(1, 5))
    if d.chance(0.5):
        d.add("MatMul", [x, _right(d, x)], torch.matmul)
    else:
        d.add("MatMul", [_left(d, x), x], torch.matmul)


def _batch(d: Draft, shape: list[int]) -> list[int]:
    """Return batch dimensions that broadcast with ``shape``."""
    if not shape:
        return d.shape(d.whole(1, 2)) if d.chance(0.2) else []
    held = [1 if d.chance(0.3) else n for n in shape][d.whole(0, len(shape)) :]
    return [d.size() if n == 1 and d.chance(0.3) else n for n in held]


def _right(d: Draft, x: Value) -> Value:
    inner = x.shape[-1]
    if d.chance(0.15):
        return d.like([inner])
    return d.like([*_batch(d, x.shape[:-2]), inner, d.size()])


def _left(d: Draft, x: Value) -> Value:
    inner = x.shape[-2] if x.rank > 1 else x.shape[0]
    if d.chance(0.15):
        return d.like([inner])
    return d.like([*_batch(d, x.shape[:-2]), d.size(), inner])


@maker(2)
def gemm(d: Draft) -> None:
    a = d.pick([2])
    flip_a, flip_b = d.chance(0.4), d.chance(0.4)
    inner, rows = a.shape if flip_a else a.shape[::-1]
    columns = d.size()
    b = d.like([columns, inner] if flip_b else [inner, columns])
    alpha, beta = (1.0 if d.chance(0.5) else d.number(-2, 2) for _ in "ab")
    c = None
    if d.chance(0.7):
        c = d.like(d.choice([[columns], [1, columns], [rows, 1], [rows, columns], [1], [1, 1], []]))
    held = {"transA": int(flip_a), "transB": int(flip_b), "alpha": alpha, "beta": beta}

    def product(a: Any, b: Any, c: Any = None) -> Any:
        y = alpha * (a.T if flip_a else a) @ (b.T if flip_b else b)
        return y if c is None else y + beta * c

    d.add("Gemm", [a, b] if c is None else [a, b, c], product, held)


_EQUATIONS = (
    "ij,jk->ik", "ij,jk->ki", "bij,bjk->bik", "bij,bkj->bik", "i,j->ij", "i,i->", "ij->ji",
    "ij->i", "ij->", "ij,ij->ij", "ij,j->i", "bhid,bhjd->bhij", "...ij,jk->...ik", "ij,kj",
    "ab,bc,cd->ad", "ij,kl->ijkl", "bi,ij,bj->b", "...i,...i->...", "i...,i->...", "ijk->kij",
)  # fmt: skip


@maker(1.5)
def einsum(d: Draft) -> None:
    equation = d.choice(_EQUATIONS)
    if d.chance(0.2):
        equation = equation.replace(",", " , ").replace("->", " -> ")
    extra = d.shape(d.whole(0, 1))
    sizes: dict[str, int] = {}
    operands = [
        d.like(_sizes(d, term.strip(), sizes, extra))
        for term in equation.partition("->")[0].split(",")
    ]
    if any(v.size == 0 for v in operands):
        raise UnfitError
    compact = equation.replace(" ", "")
    d.add("Einsum", operands, lambda *xs: torch.einsum(compact, *xs), {"equation": equation})


def _sizes(d: Draft, term: str, sizes: dict[str, int], extra: list[int]) -> list[int]:
    shape: list[int] = []
    for letter in term.replace("...", "."):
        if letter == ".":
            shape += extra
        else:
            shape.append(sizes.setdefault(letter, d.size()))
    return shape


@maker(0.7, narrow=True)
def fused(d: Draft) -> None:
    a = d.pick([2, 3])
    flip_a, flip_b, alpha = d.chance(0.4), d.chance(0.4), d.number(-2, 2)
    inner = a.shape[-2] if flip_a else a.shape[-1]
    n = d.size()
    b = d.like([*a.shape[:-2], n, inner] if flip_b else [*a.shape[:-2], inner, n])
    if 0 in (*a.shape, *b.shape):
        raise UnfitError
    held = {"transA": int(flip_a), "transB": int(flip_b), "alpha": alpha}

    def product(a: Any, b: Any) -> Any:
        return alpha * (a.mT if flip_a else a) @ (b.mT if flip_b else b)

    d.add("FusedMatMul", [a, b], product, held, domain=_RUNTIME)


@maker(0.5, narrow=True)
def fused_gemm(d: Draft) -> None:
    a = d.pick([2], lambda v: v.size > 0)
    b = d.like([a.shape[1], d.whole(1, 4)])
    c = d.like([b.shape[1]])
    functions = {"Tanh": torch.tanh, "Sigmoid": torch.sigmoid}
    name = d.choice(list(functions))
    if b.size == 0:
        raise UnfitError
    d.add(
        "FusedGemm", [a, b, c], lambda a, b, c: functions[name](a @ b + c), {"activation": name},
        domain=_RUNTIME,
    )  # fmt: skip


@maker(0.7, since=23, narrow=True)
def attention(d: Draft) -> None:
    batch, shared, each, rows, keys = (d.whole(1, 3) for _ in range(5))
    size, wide = d.whole(1, 4), d.whole(1, 4)
    q = d.like([batch, shared * each, rows, size])
    k, v = d.like([batch, shared, keys, size]), d.like([batch, shared, keys, wide])
    scale = d.number(0.2, 1.0)
    held: dict[str, Any] = {"scale": scale}
    causal, softcap = d.chance(0.3), d.choice([0.0, 1.5])
    held |= ({"is_causal": 1} if causal else {}) | ({"softcap": softcap} if softcap else {})
    mask = None if d.chance(0.5) else d.like(d.choice([[rows, keys], [batch, 1, rows, keys]]))

    def attended(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        k, v = (x.repeat_interleave(each, 1) for x in (k, v))
        scores = scale * q @ k.mT
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        scores = scores if mask is None else scores + mask
        if causal:
            below = torch.ones(rows, keys, dtype=torch.bool).tril()
            scores = scores.masked_fill(~below, -math.inf)
        return scores.softmax(-1) @ v

    d.add("Attention", [q, k, v, *([] if mask is None else [mask])], attended, held)
