"""`graphs.lstm` in PyTorch, with rows first."""

from __future__ import annotations

import torch
from graphs.lstm import Lstm
from torch import nn

from torch_models.weights import Product, add_numbered

__all__ = ["TorchLstm"]


class TorchLstm(nn.Module):
    """Ids [batch, sequence] to scores [batch, sequence, vocabulary]."""

    def __init__(self, sizes: Lstm) -> None:
        super().__init__()
        width = sizes.width
        self.tokens = nn.Embedding(sizes.vocabulary, width)
        layers = [nn.LSTM(width, width, batch_first=True) for _ in range(sizes.layers)]
        self.layers = add_numbered(self, "layer", layers)
        self.out = Product(width, sizes.vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for layer in self.layers:
            x, _ = layer(x)
        return self.out(x)
