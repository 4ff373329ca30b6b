"""Attention of one packed projection, in the forms that models unpack it.

A module is `lead`, a product that every rank runs whole, then `columns`, the packed projection, and
`rows`, the product after attention.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["ALL", "FEATURES", "FORMS", "HEADS", "SIZE", "WIDTH", "Parts", "attend", "heads"]

WIDTH, HEADS, SHARED, SIZE, FEATURES = 48, 8, 4, 6, 32

Parts = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values: batch, heads, tokens, size."""

FORMS: dict[str, Callable[[], nn.Module]] = {}
"""The module of each form, by name."""


class _Attention(nn.Module):
    """Attention of a packed projection."""

    def __init__(
        self, columns: int, unpack: Callable[[Tensor], Parts], width: int = WIDTH, bias: bool = True
    ) -> None:
        super().__init__()
        self.lead = nn.Linear(width, width)
        self.columns = nn.Linear(width, columns, bias=bias)
        self.rows = nn.Linear(HEADS * SIZE, width)
        self.unpack = unpack

    def forward(self, x: Tensor) -> Tensor:
        x = self.lead(x)
        made: Tensor = self.rows(attend(*self.unpack(self.columns(x))))
        return made


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention with heads merged: batch, tokens, features."""
    repeats = q.shape[1] // k.shape[1]
    if repeats > 1:
        k, v = (_repeated(own, repeats) for own in (k, v))
    weights = torch.softmax(q @ k.transpose(-1, -2) / SIZE**0.5, dim=-1)
    mixed = (weights @ v).transpose(1, 2)
    return mixed.reshape(mixed.shape[0], mixed.shape[1], -1)


def _repeated(x: Tensor, repeats: int) -> Tensor:
    batch, heads, tokens, size = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, repeats, tokens, size)
    return x.reshape(batch, heads * repeats, tokens, size)


def attention(
    columns: int = 3 * HEADS * SIZE,
) -> Callable[[Callable[[Tensor], Parts]], Callable[[Tensor], Parts]]:
    """Register an attention by the function that unpacks its projection of ``columns``."""

    def register(unpack: Callable[[Tensor], Parts]) -> Callable[[Tensor], Parts]:
        FORMS[unpack.__name__.strip("_")] = lambda: _Attention(columns, unpack)
        return unpack

    return register


def heads(x: Tensor, size: int = SIZE) -> Tensor:
    """Return features as heads: batch, heads, tokens, size."""
    return x.view(*x.shape[:2], -1, size).transpose(1, 2)


ALL = HEADS * SIZE
_GROUPED = (ALL, SHARED * SIZE, SHARED * SIZE)


@attention()
def _split_three(x: Tensor) -> Parts:  # GPT-2, Bark
    q, k, v = x.split(ALL, dim=2)
    return heads(q), heads(k), heads(v)


@attention()
def _chunk_three(x: Tensor) -> Parts:  # MPT, LayoutLMv2
    q, k, v = x.chunk(3, dim=-1)
    return heads(q), heads(k), heads(v)


@attention()
def _slices_from_both_ends(x: Tensor) -> Parts:
    return heads(x[..., :ALL]), heads(x[..., ALL:-ALL]), heads(x[..., -ALL:])


@attention()
def _narrow(x: Tensor) -> Parts:
    q, k, v = (x.narrow(-1, n * ALL, ALL) for n in range(3))
    return heads(q), heads(k), heads(v)


@attention(sum(_GROUPED))
def _split_sizes(x: Tensor) -> Parts:  # DBRX, ChatGLM
    q, k, v = x.split(_GROUPED, dim=-1)
    return heads(q), heads(k), heads(v)


@attention(sum(_GROUPED))
def _slices_by_sizes(x: Tensor) -> Parts:  # Phi-3
    end = ALL + SHARED * SIZE
    return heads(x[..., :ALL]), heads(x[..., ALL:end]), heads(x[..., end:])


@attention(sum(_GROUPED))
def _tensor_split(x: Tensor) -> Parts:  # xLSTM
    q, k, v = torch.tensor_split(x, (ALL, ALL + SHARED * SIZE), dim=-1)
    return heads(q), heads(k), heads(v)


@attention((HEADS + 2) * SIZE)
def _one_key(x: Tensor) -> Parts:  # GPT-BigCode
    q, kv = x.split((ALL, 2 * SIZE), dim=2)
    k, v = kv.split((SIZE, SIZE), dim=-1)
    return heads(q), heads(k), heads(v)


@attention((HEADS + 2) * SIZE)
def _one_key_last(x: Tensor) -> Parts:  # Falcon with one key
    x = x.view(*x.shape[:2], HEADS + 2, SIZE)
    q, k, v = x[..., :-2, :], x[..., [-2], :], x[..., [-1], :]
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


@attention()
def _heads_three_size_select(x: Tensor) -> Parts:  # BLOOM, Falcon, Persimmon
    x = x.view(*x.shape[:2], HEADS, 3, SIZE)
    return (
        x[..., 0, :].transpose(1, 2),
        x[..., 1, :].transpose(1, 2),
        x[..., 2, :].transpose(1, 2),
    )


@attention()
def _heads_three_size_unbind(x: Tensor) -> Parts:
    q, k, v = x.unflatten(-1, (HEADS, 3, SIZE)).unbind(-2)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


@attention()
def _heads_chunk_three(x: Tensor) -> Parts:  # GPT-NeoX
    x = x.view(*x.shape[:2], -1, 3 * SIZE).transpose(1, 2)
    q, k, v = x.chunk(3, dim=-1)
    return q, k, v


@attention()
def _heads_slices(x: Tensor) -> Parts:  # GPT-NeoX Japanese
    x = x.view(*x.shape[:2], HEADS, 3 * SIZE)
    q, k, v = x[..., :SIZE], x[..., SIZE : 2 * SIZE], x[..., 2 * SIZE :]
    return q.permute(0, 2, 1, 3), k.permute(0, 2, 1, 3), v.permute(0, 2, 1, 3)


@attention(HEADS * (2 * 4 + SIZE))
def _heads_split_sizes(x: Tensor) -> Parts:  # LeViT, EfficientFormer
    q, k, v = x.view(*x.shape[:2], HEADS, -1).split([4, 4, SIZE], dim=3)
    return q.permute(0, 2, 1, 3), k.permute(0, 2, 1, 3), v.permute(0, 2, 1, 3)


@attention()
def _heads_size_three(x: Tensor) -> Parts:
    q, k, v = x.view(*x.shape[:2], HEADS, SIZE, 3).unbind(-1)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


@attention()
def _three_heads_permute_unbind(x: Tensor) -> Parts:  # timm, Qwen-VL, Swin
    x = x.reshape(*x.shape[:2], 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
    q, k, v = x.unbind(0)
    return q, k, v


@attention()
def _three_heads_permute_index(x: Tensor) -> Parts:  # BLIP, TimeSformer
    x = x.reshape(*x.shape[:2], 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
    return x[0], x[1], x[2]


@attention()
def _three_heads_unbind(x: Tensor) -> Parts:  # SAM 2, Hiera
    q, k, v = x.reshape(*x.shape[:2], 3, HEADS, -1).unbind(2)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


@attention()
def _three_heads_transpose_unbind(x: Tensor) -> Parts:  # ModernBERT, MaxViT
    x = x.view(*x.shape[:2], 3, HEADS, SIZE)
    q, k, v = x.transpose(3, 1).unbind(dim=2)
    return q, k, v


@attention()
def _three_heads_select(x: Tensor) -> Parts:
    x = x.view(*x.shape[:2], 3, HEADS, SIZE)
    q, k, v = x[:, :, 0], x[:, :, 1], x[:, :, 2]
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


@attention()
def _three_heads_merged_batch(x: Tensor) -> Parts:  # SAM, ViTDet
    batch, tokens = x.shape[:2]
    x = x.reshape(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
    q, k, v = x.reshape(3, batch * HEADS, tokens, -1).unbind(0)
    return (
        q.view(batch, HEADS, tokens, -1),
        k.view(batch, HEADS, tokens, -1),
        v.view(batch, HEADS, tokens, -1),
    )


@attention()
def _three_unflattened(x: Tensor) -> Parts:  # Baichuan
    x = x.unflatten(-1, (3, ALL)).unsqueeze(0).transpose(0, -2).squeeze(-2)
    return heads(x[0]), heads(x[1]), heads(x[2])


@attention()
def _transposed_chunk(x: Tensor) -> Parts:  # channels before tokens, as in guided diffusion
    x = x.transpose(1, 2)
    q, k, v = x.chunk(3, dim=1)
    q, k, v = (own.reshape(own.shape[0], HEADS, SIZE, -1) for own in (q, k, v))
    return q.transpose(2, 3), k.transpose(2, 3), v.transpose(2, 3)


@attention()
def _transposed_heads_split(x: Tensor) -> Parts:  # the older form of guided diffusion
    x = x.transpose(1, 2)
    batch, tokens = x.shape[0], x.shape[2]
    q, k, v = x.reshape(batch * HEADS, 3 * SIZE, tokens).split(SIZE, dim=1)
    q, k, v = (own.reshape(batch, HEADS, SIZE, tokens) for own in (q, k, v))
    return q.transpose(2, 3), k.transpose(2, 3), v.transpose(2, 3)


@attention()
def _transposed_three_unbind(x: Tensor) -> Parts:  # MaxViT, channels first
    x = x.transpose(1, 2)
    q, k, v = x.reshape(x.shape[0], 3, HEADS, SIZE, -1).unbind(1)
    return q.transpose(2, 3), k.transpose(2, 3), v.transpose(2, 3)


@attention()
def _transposed_heads_chunk(x: Tensor) -> Parts:
    x = x.transpose(1, 2)
    q, k, v = x.view(x.shape[0], HEADS, SIZE * 3, -1).chunk(3, dim=2)
    return q.transpose(2, 3), k.transpose(2, 3), v.transpose(2, 3)


@attention(sum(_GROUPED))
def _groups_select(x: Tensor) -> Parts:  # Falcon with groups
    each = HEADS // SHARED
    x = x.view(*x.shape[:2], -1, each + 2, SIZE)
    q, k, v = x[:, :, :, :-2], x[:, :, :, [-2]], x[:, :, :, [-1]]
    k, v = torch.broadcast_to(k, q.shape), torch.broadcast_to(v, q.shape)
    q, k, v = (own.flatten(2, 3).transpose(1, 2) for own in (q, k, v))
    return q, k, v


@attention(sum(_GROUPED))
def _groups_index(x: Tensor) -> Parts:  # InternLM 2
    each = HEADS // SHARED
    x = x.view(*x.shape[:2], SHARED, each + 2, SIZE)
    q = x[..., :each, :].reshape(*x.shape[:2], HEADS, SIZE)
    k, v = x[..., -2, :], x[..., -1, :]
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


@attention(sum(_GROUPED))
def _groups_split_sizes(x: Tensor) -> Parts:  # Megatron-LM
    each = HEADS // SHARED
    x = x.view(*x.shape[:2], SHARED, (each + 2) * SIZE)
    q, k, v = x.split([each * SIZE, SIZE, SIZE], dim=3)
    q = q.reshape(*q.shape[:2], -1, SIZE)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


@attention()
def _ranks_split(x: Tensor) -> Parts:  # CodeGen: blocks for the ranks of a TPU
    ranks = 4
    x = x.reshape(*x.shape[:-1], ranks, -1)
    q, v, k = x.split(ALL // ranks, dim=-1)

    def merged(own: Tensor) -> Tensor:
        own = own.reshape(*own.shape[:-1], HEADS // ranks, SIZE)
        return own.reshape(*own.shape[:-3], -1, SIZE).transpose(1, 2)

    return merged(q), merged(k), merged(v)


@attention(4 * ALL)
def _gated_heads(x: Tensor) -> Parts:  # Qwen3-Next: a gate with each head of queries
    q, k, v = x.split([2 * ALL, ALL, ALL], dim=-1)
    q, gate = q.view(*q.shape[:2], -1, 2 * SIZE).chunk(2, dim=-1)
    gate = gate.reshape(*gate.shape[:2], -1)
    return heads(q.reshape(*q.shape[:2], -1) * torch.sigmoid(gate)), heads(k), heads(v)


@attention(HEADS * 4 * SIZE)
def _heads_split_qkvz(x: Tensor) -> Parts:  # linear attention of Qwen3-Next
    x = x.view(*x.shape[:2], HEADS, 4 * SIZE)
    q, k, v, z = torch.split(x, [SIZE, SIZE, SIZE, SIZE], dim=3)
    q = q * torch.sigmoid(z)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


@attention()
def _rotary(x: Tensor) -> Parts:
    """Halves of heads are turned after the split."""
    q, k, v = (heads(own) for own in x.split(ALL, dim=-1))
    half = SIZE // 2

    def turned(own: Tensor) -> Tensor:
        back = torch.cat((-own[..., half:], own[..., :half]), dim=-1)
        return own * 0.5 + back * 0.25

    return turned(q), turned(k), v
