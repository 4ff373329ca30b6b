"""The loss on data that are not trained on, computed by the graphs of a training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.options import OptionError
from tensoropt.runtime.training.data.open import open_dataset
from tensoropt.runtime.training.data.source import Parts
from tensoropt.runtime.training.job import TrainJob
from tensoropt.runtime.training.labels import check_labels
from tensoropt.runtime.training.loss import BatchLoss, loss_of_step
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Evaluation", "check_evaluation", "is_evaluated"]

Losses = Callable[[Callable[[int], Mapping[str, Array]]], list[BatchLoss]]
"""Returns the losses of all micro-batches of a step; the argument returns their inputs."""


def check_evaluation(job: TrainJob, plan: TrainingPlan) -> None:
    """Raise `OptionError` for a plan or data without an evaluation.

    The graphs of a step compute the loss as in training, which is another than that of the trained
    model if values are dropped, or normalised by the statistics of a batch.
    """
    if job.evaluate_data is None:
        if job.evaluate_every is not None:
            raise OptionError("{evaluate_every}: expected {evaluate_data} too")
        return
    differs = {
        "dropout": any(hyper.role == "seed" for hyper in plan.hyper),
        "batch normalisation": any(state.kind == "buffer" for state in plan.state),
    }
    for what, is_present in differs.items():
        if is_present:
            text = (
                "{evaluate_data}: {0} has {1}, expected a model with the same loss as in training"
            )
            raise OptionError(text, job.plan, what)
    Evaluation(job, plan, {})


def is_evaluated(job: TrainJob, step: int, last: int) -> bool:
    """Return whether the loss is evaluated after ``step``: every so often, and after the last."""
    if job.evaluate_data is None:
        return False
    return step == last or (job.evaluate_every is not None and step % job.evaluate_every == 0)


class Evaluation:
    """The held-out data of a job, and the ``parts`` of its inputs that the rank reads.

    They are read in batches of a step, in order; the samples after the last whole one are left out.
    Raises `UserError` for data that do not match, and for less than one such batch.
    """

    def __init__(self, job: TrainJob, plan: TrainingPlan, parts: Parts) -> None:
        size = plan.samples_per_step
        self._plan, self._parts = plan, parts
        self._data = open_dataset(str(job.evaluate_data), plan.plan.inputs, size)
        count = self._data.facts.samples
        if count is None:
            text = "{evaluate_data} {0}: has no end, expected a number of samples"
            raise OptionError(text, job.evaluate_data)
        self._starts = range(0, count - size + 1, size)

    def loss(self, losses: Losses) -> float | None:
        """Return the mean over all samples; all ranks must call this."""
        found: list[BatchLoss] = []
        for start in self._starts:
            found += losses(partial(self._batch, start))
        return loss_of_step(found).loss

    def _batch(self, start: int, micro: int) -> Mapping[str, Array]:
        batch = self._data.read(start + micro * self._plan.batch, self._parts)
        for name, array in batch.items():
            check_labels(self._plan, name, array)
        return batch
