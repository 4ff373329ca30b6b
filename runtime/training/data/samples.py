"""Samples that Python code makes: checked, and put together to batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError, did_you_mean, one_line
from tensoropt.runtime.training.data.python import RandomAccess, one_line_of
from tensoropt.runtime.training.data.source import Batch, Facts, Parts, hull

__all__ = ["PythonSamples", "batch_of"]


class PythonSamples:
    """The samples of ``source``, which ``place`` names; all are one unit of their order."""

    window = None

    def __init__(self, place: str, source: RandomAccess, inputs: Sequence[Tensor]) -> None:
        self._place, self._source = place, source
        self._inputs = {tensor.name: tensor for tensor in inputs}
        self.counts = [self._length()]
        is_endless = self.counts[0] >= sys.maxsize  # as Grain's repeat() has it
        self.facts = Facts("python", None if is_endless else self.counts[0])

    def take(self, ids: Array, parts: Parts) -> Batch:
        """Return ``parts`` of the samples ``ids``, of which each is made once."""
        if (now := self._length()) != self.counts[0]:
            raise UserError(
                f"{self._place}: has {now} samples, expected {self.counts[0]} as when the job began"
            )
        first, last = hull(parts)
        numbers = ids[first:last].tolist()
        samples = zip(numbers, self._samples(numbers), strict=True)
        return batch_of(self._place, samples, first, self._inputs, parts)

    def _length(self) -> int:
        with one_line_of(self._place):
            return len(self._source)

    def _samples(self, ids: list[int]) -> Sequence[Any]:
        get = getattr(self._source, "__getitems__", None)
        if get is None:
            return [self._sample(i) for i in ids]
        with one_line_of(f"{self._place}: samples {ids[0]} to {ids[-1]}"):
            found: Sequence[Any] = get(ids)
        if len(found) != len(ids):
            raise UserError(
                f"{self._place}: __getitems__: expected {len(ids)} samples, got: {len(found)}"
            )
        return found

    def _sample(self, number: int) -> Any:
        with one_line_of(f"{self._place}: sample {number}"):
            return self._source[number]


def batch_of(
    place: str,
    samples: Iterable[tuple[int, Any]],
    first: int,
    inputs: Mapping[str, Tensor],
    parts: Parts,
) -> Batch:
    """Return ``parts`` of the batch whose samples are those from ``first`` on, with numbers.

    Raises `UserError` for a sample that lacks an input or has it in another type or shape.
    """
    found: dict[str, list[Array]] = {name: [] for name in parts}
    for row, (number, sample) in enumerate(samples, first):
        for name, (rows, *rest) in parts.items():
            if rows.start <= row < rows.stop:
                array = _array(f"{place}: sample {number}", sample, inputs[name])
                found[name].append(array[tuple(rest)])
    return {name: np.stack(arrays) for name, arrays in found.items()}


def _array(where: str, sample: Any, tensor: Tensor) -> Array:
    """Return an input of a sample; a number that is no array takes the type of the input."""
    if not isinstance(sample, Mapping):
        raise UserError(f"{where}: expected arrays by input, got: {type(sample).__name__}")
    if tensor.name not in sample:
        near = did_you_mean(tensor.name, map(str, sample))
        raise UserError(f"{where}: input '{tensor.name}' is missing{near}")
    value, dtype = sample[tensor.name], dtype_of(tensor.dtype)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{where}: '{tensor.name}': {one_line(error)}") from None
    if type(value) in (bool, int, float) and np.can_cast(array.dtype, dtype, "same_kind"):
        array = array.astype(dtype)
    shape = tuple(tensor.shape[1:])
    if array.dtype != dtype or array.shape != shape:
        expected, got = _kind(dtype, shape), _kind(array.dtype, array.shape)
        raise UserError(f"{where}: '{tensor.name}': expected {expected}, got: {got}")
    return array


def _kind(dtype: np.dtype[Any], shape: Sequence[int | str]) -> str:
    return f"{dtype.name} of {'x'.join(map(str, shape))}" if shape else dtype.name
