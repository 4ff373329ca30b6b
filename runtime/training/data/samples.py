"""Samples from Python code: their validation and assembly into batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.dtypes import Array, as_array, dtype_of
from tensoropt.runtime.support.errors import UserError, did_you_mean, one_line
from tensoropt.runtime.training.data.python import RandomAccess, one_line_of
from tensoropt.runtime.training.data.source import Batch, Facts, Parts, hull

__all__ = ["Batches", "PythonSamples"]


class PythonSamples:
    """The samples of ``source``, which ``place`` names, as a single unit of their order."""

    window = None

    def __init__(self, place: str, source: RandomAccess, inputs: Sequence[Tensor]) -> None:
        self._place, self._source = place, source
        self._batches = Batches(place, inputs)
        self.counts = [self._length()]
        is_endless = self.counts[0] >= sys.maxsize  # the length of Grain's repeat()
        self.facts = Facts("python", None if is_endless else self.counts[0])

    def take(self, ids: Array, parts: Parts) -> Batch:
        """Return ``parts`` of the samples ``ids``, reading each sample once."""
        if (now := self._length()) != self.counts[0]:
            raise UserError(
                f"{self._place}: has {now} samples, expected {self.counts[0]} as when the job began"
            )
        first, last = hull(parts)
        numbers = ids[first:last].tolist()
        samples = zip(numbers, self._samples(numbers), strict=True)
        return self._batches.assemble(samples, first, parts)

    def _length(self) -> int:
        with one_line_of(self._place):
            return len(self._source)

    def _samples(self, ids: list[int]) -> Sequence[Any]:
        get = getattr(self._source, "__getitems__", None)
        if get is None:
            made: list[Any] = []
            with one_line_of(lambda: f"{self._place}: sample {ids[len(made)]}"):
                for number in ids:
                    made.append(self._source[number])  # its length selects the sample in errors
            return made
        with one_line_of(f"{self._place}: samples {ids[0]} to {ids[-1]}"):
            found: Sequence[Any] = get(ids)
        if len(found) != len(ids):
            raise UserError(
                f"{self._place}: __getitems__: expected {len(ids)} samples, got: {len(found)}"
            )
        return found


class Batches:
    """Assembly of samples into batches for ``inputs``; ``place`` names their source."""

    def __init__(self, place: str, inputs: Sequence[Tensor]) -> None:
        self._place = place
        self._inputs = {tensor.name: _Input.from_tensor(tensor) for tensor in inputs}

    def assemble(self, samples: Iterable[tuple[int, Any]], first: int, parts: Parts) -> Batch:
        """Return ``parts`` of a batch from numbered ``samples``, which start at its row ``first``.

        Raises `UserError` for a sample without an input, or with another type or shape of it.
        """
        batch, wanted = {}, []
        for name, (rows, *rest) in parts.items():
            spec = self._inputs[name]
            shape = [part.stop - part.start for part in (rows, *rest)]
            batch[name] = np.empty(shape, spec.dtype)
            wanted.append((spec, rows.start, rows.stop, tuple(rest), batch[name]))
        for row, (number, sample) in enumerate(samples, first):
            for spec, start, stop, part, array in wanted:
                if start <= row < stop:
                    array[row - start] = self._array(spec, number, sample)[part]
        return batch

    def _array(self, spec: _Input, number: int, sample: Any) -> Array:
        try:
            value = sample[spec.name]
        except (LookupError, TypeError):
            raise UserError(f"{self._place}: sample {number}: {spec.missing(sample)}") from None
        try:
            array = spec.array(value)
        except (TypeError, ValueError, RuntimeError) as error:
            fault = f"'{spec.name}': {one_line(error)}"
            raise UserError(f"{self._place}: sample {number}: {fault}") from None
        if array.dtype != spec.dtype or array.shape != spec.shape:
            expected, got = _kind(spec.dtype, spec.shape), _kind(array.dtype, array.shape)
            fault = f"'{spec.name}': expected {expected}, got: {got}"
            raise UserError(f"{self._place}: sample {number}: {fault}")
        return array


@dataclass(frozen=True)
class _Input:
    """The type and shape that a sample must have for an input."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> _Input:
        return cls(tensor.name, dtype_of(tensor.dtype), tuple(int(n) for n in tensor.shape[1:]))

    def array(self, value: Any) -> Array:
        """Return an array; numbers and lists of Python get the type of the input, if it fits."""
        return as_array(value, self.dtype)

    def missing(self, sample: Any) -> str:
        """Return why a sample lacks the input."""
        if not isinstance(sample, Mapping):
            return f"expected arrays by input, got: {type(sample).__name__}"
        return f"input '{self.name}' is missing{did_you_mean(self.name, map(str, sample))}"


def _kind(dtype: np.dtype[Any], shape: Sequence[int]) -> str:
    return f"{dtype.name} of {'x'.join(map(str, shape))}" if shape else dtype.name
