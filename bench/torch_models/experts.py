"""`graphs.experts.RoutedExperts` in PyTorch."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from torch_models.weights import Product

__all__ = ["TorchExperts"]


class TorchExperts(nn.Module):
    """Experts with gates, in turn with the values, and ``choices`` per token."""

    def __init__(self, experts: int, choices: int, width: int, inner: int) -> None:
        super().__init__()
        self.choices = choices
        self.router = Product(width, experts, bias=False)
        self.up = nn.Parameter(torch.empty(experts, 2 * inner, width))
        self.down = nn.Parameter(torch.empty(experts, width, inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(0, 1)
        best, which = self.router(rows).softmax(-1).topk(self.choices)
        best = best / best.sum(-1, keepdim=True)
        y = torch.zeros_like(rows)
        for expert, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            tokens, choice = torch.where(which == expert)
            wide = rows[tokens] @ up.mT
            inner = functional.silu(wide[:, ::2]) * wide[:, 1::2]
            y = y.index_add(0, tokens, best[tokens, choice, None] * (inner @ down.mT))
        return y.view_as(x)
