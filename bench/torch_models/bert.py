"""`graphs.bert` in PyTorch."""

from __future__ import annotations

import torch
from graphs.bert import Bert
from torch import nn
from torch.nn import functional

from torch_models.gpt import merged
from torch_models.weights import Product, add_numbered

__all__ = ["TorchBert"]


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.q, self.k, self.v, self.out = (Product(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        parts = (linear(x) for linear in (self.q, self.k, self.v))
        heads = (part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in parts)
        return self.out(merged(functional.scaled_dot_product_attention(*heads, attn_mask=bias)))


class _FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = Product(width, 4 * width), Product(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x)))


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.mlp = _Attention(width, heads), _FeedForward(width)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(x + self.attention(x, bias))
        return self.mlp_norm(x + self.mlp(x))


class _Head(nn.Module):
    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.dense, self.norm = Product(width, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.empty(vocabulary))

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return functional.linear(self.norm(functional.gelu(self.dense(x))), table, self.bias)


class TorchBert(nn.Module):
    """Ids, segments and mask [batch, sequence] to scores [batch, sequence, vocabulary]."""

    def __init__(self, sizes: Bert) -> None:
        super().__init__()
        width = sizes.width
        self.tokens, self.segments = nn.Embedding(sizes.vocabulary, width), nn.Embedding(2, width)
        self.positions = nn.Parameter(torch.empty(sizes.sequence, width))
        self.norm = nn.LayerNorm(width)
        layers = [_Layer(width, sizes.heads) for _ in range(sizes.layers)]
        self.layers = add_numbered(self, "layer", layers)
        self.head = _Head(width, sizes.vocabulary)

    def forward(
        self, ids: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        x = self.norm(self.tokens(ids) + self.segments(segments) + self.positions)
        lowest = torch.finfo(x.dtype).min
        bias = torch.zeros(mask.shape).masked_fill(mask == 0, lowest)[:, None, None]
        for layer in self.layers:
            x = layer(x, bias)
        return self.head(x, self.tokens.weight)
