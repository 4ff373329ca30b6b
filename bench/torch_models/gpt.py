"""`graphs.gpt` in PyTorch."""

from __future__ import annotations

import torch
from graphs.gpt import Gpt
from torch import nn
from torch.nn import functional

from torch_models.weights import Product, add_numbered

__all__ = ["FeedForward", "TorchGpt", "merged"]


def merged(x: torch.Tensor) -> torch.Tensor:
    """Return [batch, heads, sequence, size] as [batch, sequence, heads * size]."""
    return x.transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    """Two products after a normalisation; ``approximate`` selects the GELU between them."""

    def __init__(self, width: int, approximate: str) -> None:
        super().__init__()
        self.approximate = approximate
        self.norm = nn.LayerNorm(width)
        self.up, self.down = Product(width, 4 * width), Product(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(self.norm(x))
        return self.down(functional.gelu(y, approximate=self.approximate))


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, *, thirds: bool) -> None:
        super().__init__()
        self.size, self.thirds = width // heads, thirds
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = Product(width, 3 * width), Product(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = self.qkv(self.norm(x))
        if self.thirds:
            packed = packed.unflatten(-1, (3, -1, self.size)).transpose(-2, -3).flatten(-2)
        else:
            packed = packed.unflatten(-1, (-1, 3 * self.size))
        y = functional.scaled_dot_product_attention(
            *packed.transpose(1, 2).chunk(3, dim=-1), is_causal=True
        )
        return self.out(merged(y))


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int, *, thirds: bool) -> None:
        super().__init__()
        self.attention = _Attention(width, heads, thirds=thirds)
        self.mlp = FeedForward(width, "tanh")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.mlp(x)


class TorchGpt(nn.Module):
    """Ids [batch, sequence] to scores [batch, sequence, vocabulary]."""

    tied = "norm"
    """The module with results that are multiplied by the embedding."""

    def __init__(self, sizes: Gpt) -> None:
        super().__init__()
        width = sizes.width
        self.tokens = nn.Embedding(sizes.vocabulary, width)
        self.positions = nn.Parameter(torch.empty(sizes.sequence, width))
        layers = [_Layer(width, sizes.heads, thirds=sizes.thirds) for _ in range(sizes.layers)]
        self.layers = add_numbered(self, "layer", layers)
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions
        for layer in self.layers:
            x = layer(x)
        return functional.linear(self.norm(x), self.tokens.weight)
