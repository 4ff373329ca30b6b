"""The loss of a step from those of its batches."""

from __future__ import annotations

import math

import pytest

from tensoropt.runtime.training.loss import BatchLoss, loss_of_step


def test_a_step_is_the_mean_over_all_labels() -> None:
    """Nine labels of ten with a loss of 1, and one of ten with 2: the mean of the means is 1.5."""
    loss, weight = loss_of_step([BatchLoss(0.9, 0.9), BatchLoss(0.2, 0.1)])
    assert (loss, weight) == (pytest.approx(1.1), pytest.approx(0.5))


def test_a_batch_without_labels_does_not_count() -> None:
    assert loss_of_step([BatchLoss(0.0, 0.0), BatchLoss(1.0, 0.5)]) == (2.0, 0.25)


def test_a_step_without_labels_has_no_loss() -> None:
    assert loss_of_step([BatchLoss(0.0, 0.0)] * 2) == (None, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stays_so(bad: float) -> None:
    loss, _ = loss_of_step([BatchLoss(1.0), BatchLoss(bad)])
    assert loss is not None
    assert math.isnan(loss)
