"""`graphs.vit` in PyTorch."""

from __future__ import annotations

import torch
from graphs.vit import Vit
from torch import nn
from torch.nn import functional

from torch_models.gpt import FeedForward, merged
from torch_models.weights import Product, add_numbered

__all__ = ["TorchVit"]


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (Product(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        parts = (linear(x) for linear in (self.q, self.k, self.v))
        heads = (part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in parts)
        return self.out(merged(functional.scaled_dot_product_attention(*heads)))


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = _Attention(width, heads)
        self.mlp = FeedForward(width, "none")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.mlp(x)


class TorchVit(nn.Module):
    """A network from images to the scores of classes."""

    def __init__(self, sizes: Vit) -> None:
        super().__init__()
        width = sizes.width
        self.patches = nn.Conv2d(3, width, sizes.patch, sizes.patch)
        self.token = nn.Parameter(torch.empty(1, 1, width))
        tokens = 1 + (sizes.image // sizes.patch) ** 2
        self.positions = nn.Parameter(torch.empty(tokens, width))
        layers = [_Layer(width, sizes.heads) for _ in range(sizes.layers)]
        self.layers = add_numbered(self, "layer", layers)
        self.norm = nn.LayerNorm(width)
        self.classifier0 = nn.Linear(width, sizes.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        rows = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(rows), -1, -1), rows], 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.classifier0(self.norm(x)[:, 0])
