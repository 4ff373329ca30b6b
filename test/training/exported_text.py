"""A small decoder in PyTorch with a tied embedding, learned positions and masks in buffers."""

from __future__ import annotations

import math

import torch
from torch import nn

VOCABULARY, TOKENS, WIDTH = 24, 8, 16


class Block(nn.Module):
    """Attention with a causal mask, batch normalisation, and a layer of its own width."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.batch_norm = nn.LayerNorm(WIDTH), nn.BatchNorm1d(TOKENS)
        self.packed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("causal_mask", torch.tril(torch.ones(TOKENS, TOKENS)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens after attention."""
        q, k, v = self.packed(self.norm(x)).split(WIDTH, dim=2)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(WIDTH)
        scores = scores.masked_fill(self.causal_mask == 0, float("-inf"))
        return self.batch_norm(x + self.out(scores.softmax(-1) @ v))


class Decoder(nn.Module):
    """Scores of the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Parameter(torch.randn(1, TOKENS, WIDTH) * 0.1)
        self.block, self.head = Block(), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        return self.head(self.block(self.wte(ids) + self.wpe))
