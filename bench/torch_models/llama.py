"""`graphs.llama` in PyTorch, without experts of one-hot products."""

from __future__ import annotations

import torch
from graphs.llama import Llama
from torch import nn
from torch.nn import functional

from torch_models.experts import TorchExperts
from torch_models.gpt import merged
from torch_models.weights import Product, add_numbered

__all__ = ["TorchLlama"]


def _product(inputs: int, outputs: int) -> Product:
    return Product(inputs, outputs, bias=False)


def _angles(sizes: Llama) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines [sequence, size], both halves of ``size`` the same."""
    size = sizes.width // sizes.heads
    frequencies = sizes.spread ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)
    phase = torch.outer(torch.arange(sizes.sequence).float(), frequencies.float())
    return phase.cos().repeat(1, 2), phase.sin().repeat(1, 2)


def _rotate(x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * angles[0] + torch.cat([-high, low], dim=-1) * angles[1]


class _Attention(nn.Module):
    def __init__(self, sizes: Llama) -> None:
        super().__init__()
        width, self.size = sizes.width, sizes.width // sizes.heads
        self.q, self.out = _product(width, width), _product(width, width)
        self.k, self.v = (_product(width, self.size * sizes.groups) for _ in range(2))
        self.angles = _angles(sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (linear(x).unflatten(-1, (-1, self.size)) for linear in (self.q, self.k, self.v))
        q, k, v = (part.transpose(1, 2) for part in parts)
        q, k = (_rotate(part, self.angles) for part in (q, k))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(merged(y))


class _FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = _product(width, inner), _product(width, inner)
        self.down = _product(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


def _feed_forward(sizes: Llama) -> nn.Module:
    if sizes.experts:
        return TorchExperts(sizes.experts, sizes.choices, sizes.width, sizes.inner)
    return _FeedForward(sizes.width, sizes.inner)


class _Layer(nn.Module):
    def __init__(self, sizes: Llama) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(sizes.width, eps=1e-5) for _ in range(2))
        self.attention = _Attention(sizes)
        self.mlp = _feed_forward(sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TorchLlama(nn.Module):
    """Ids [batch, sequence] to scores [batch, sequence, vocabulary]."""

    def __init__(self, sizes: Llama) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        layers = [_Layer(sizes) for _ in range(sizes.layers)]
        self.layers = add_numbered(self, "layer", layers)
        self.norm = nn.RMSNorm(sizes.width, eps=1e-5)
        self.out = _product(sizes.width, sizes.vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x))
