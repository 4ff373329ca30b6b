"""Training of a module on one device, as its users would do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = ["OPTIMIZERS", "loss_of", "train"]

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": lambda given, lr: torch.optim.SGD(given, lr, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": lambda given, lr: torch.optim.AdamW(given, lr, weight_decay=0.0),
}
"""Optimizers by the names of tensoropt-opt, with its defaults."""


def loss_of(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the cross entropy of the scores of a batch: its inputs in order, then ``labels``."""
    *inputs, labels = batch.values()
    return functional.cross_entropy(module(*inputs).flatten(0, -2), labels.flatten())


def train(
    module: nn.Module,
    arrays: Mapping[str, Any],
    batch: int,
    steps: int,
    optimizer: str,
    learning_rate: float,
) -> list[float]:
    """Return the loss before each of ``steps`` updates.

    Batches are consecutive samples of ``arrays``, starting over after the last whole batch.
    """
    given = OPTIMIZERS[optimizer](module.train().parameters(), lr=learning_rate)
    samples = len(next(iter(arrays.values())))
    losses = []
    for step in range(steps):
        first = step % (samples // batch) * batch
        held = {n: torch.from_numpy(a[first : first + batch]) for n, a in arrays.items()}
        loss = loss_of(module, held)
        given.zero_grad()
        loss.backward()
        given.step()
        losses.append(loss.item())
    return losses
