"""Checks of class indices, with messages that name the inputs of the data."""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["check_labels", "describe_integers"]

_INDEX_WORDS = ("indices", "index", "out of data bounds", "out of range", "out of bounds")


def check_labels(plan: TrainingPlan, name: str, array: Array) -> None:
    """Raise `UserError` if input ``name`` has the labels and a label is not a class of the model.

    Plans without a number of classes are not checked.
    """
    classes, ignored = plan.loss.get("classes"), plan.loss.get("ignore_index")
    if name != plan.loss["labels"] or classes is None or not array.size:
        return
    wrong = (array < 0) | (array >= classes)
    if ignored is not None:
        wrong &= array != ignored
    if wrong.any():
        other = "" if ignored is None else f", or {ignored} to ignore a label"
        raise UserError(
            f"input '{name}': expected classes from 0 to {classes - 1}{other}, "
            f"got: {array[wrong][0]}"
        )


def describe_integers(error: str, batch: Mapping[str, Array]) -> str:
    """Return the ranges of the batch's integer inputs if ``error`` is about an index, else ""."""
    if not any(word in error for word in _INDEX_WORDS):
        return ""
    ranges = [
        f"'{name}' holds {array.min()} to {array.max()}"
        for name, array in batch.items()
        if array.dtype.kind in "iu" and array.size
    ]
    return f" (in this batch {', '.join(ranges)})" if ranges else ""
