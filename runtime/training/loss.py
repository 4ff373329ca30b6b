"""The loss of a step, from the losses of its batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["BatchLoss", "StepLoss", "loss_of_step"]


class BatchLoss(NamedTuple):
    """The loss of one batch, times its ``weight``.

    The weight is the mean over all labels of the weight of a label, which is 0 for ignored labels.
    """

    loss: float
    weight: float = 1.0


class StepLoss(NamedTuple):
    """The loss of a step, and its weight, the mean of its batches' weights.

    The loss is NaN if a batch has none that is finite, and None if no label of the step counts.
    """

    loss: float | None
    weight: float


def loss_of_step(batches: Sequence[BatchLoss]) -> StepLoss:
    """Return the mean over all labels of a step that count, not the mean of the batches' means."""
    if not all(math.isfinite(number) for batch in batches for number in batch):
        return StepLoss(math.nan, math.nan)
    total = math.fsum(batch.loss for batch in batches)
    weight = math.fsum(batch.weight for batch in batches)
    return StepLoss(total / weight if weight else None, weight / len(batches))
