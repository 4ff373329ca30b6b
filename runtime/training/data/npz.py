"""Training data: .npz files keyed by input, samples first, read as one endless row of samples.

Epoch after epoch, the files in sorted order; shuffled, both the files and the samples in each file
come in an order drawn anew for every epoch. So a position in that row, which checkpoints hold, says
which samples follow.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.session.inputs import as_dtype, check_dtype
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError, did_you_mean, one_line
from tensoropt.runtime.support.npz import NpzArray, npz_headers

__all__ = ["Ahead", "Dataset", "open_dataset"]

Batch = dict[str, Array]
"""Arrays by input."""


@dataclass(frozen=True)
class _File:
    path: Path
    arrays: dict[str, NpzArray]
    samples: int


@dataclass(frozen=True)
class Dataset:
    """Samples for ``inputs`` in ``files``; ``shuffle`` is the seed of their order, None for none.

    Files are read where they lie, one at a time; a compressed array is unpacked as a whole.
    """

    files: tuple[_File, ...]
    inputs: tuple[Tensor, ...]
    shuffle: int | None = None

    @property
    def samples(self) -> int:
        return sum(file.samples for file in self.files)

    def read(self, tensor: Tensor, position: int, part: tuple[slice, ...]) -> Array:
        """Return ``part`` of the batch of an input that begins at sample ``position``.

        Only the samples of the part are read. Raises `UserError` where a file is damaged.
        """
        rows, rest = part[0], part[1:]
        found = [
            self._rows(number, tensor, where)[(slice(None), *rest)]
            for number, where in self._runs(position + rows.start, position + rows.stop)
        ]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _runs(self, start: int, stop: int) -> Iterator[tuple[int, slice | Array]]:
        """Yield file numbers and rows that samples ``start`` to ``stop`` - 1 lie in, in order."""
        while start < stop:
            epoch, offset = divmod(start, self.samples)
            order = _order(self.shuffle, epoch, len(self.files))
            for place, (first, last) in enumerate(self._bounds(order)):
                if first <= offset < last:
                    count = min(stop - start, last - offset)
                    begin = offset - first
                    yield order[place], self._places(order[place], epoch, begin, begin + count)
                    start, offset = start + count, offset + count
                if start == stop:
                    return

    def _bounds(self, order: Sequence[int]) -> Iterator[tuple[int, int]]:
        return pairwise(accumulate((self.files[number].samples for number in order), initial=0))

    def _places(self, number: int, epoch: int, start: int, stop: int) -> slice | Array:
        if self.shuffle is None:
            return slice(start, stop)
        return _permutation(self.shuffle, epoch, number, self.files[number].samples)[start:stop]

    def _rows(self, number: int, tensor: Tensor, rows: slice | Array) -> Array:
        file = self.files[number]
        array, dtype = file.arrays[tensor.name], dtype_of(tensor.dtype)
        if array.offset is None:
            return as_dtype(self._unpacked.get(file.path, tensor.name)[rows], dtype)
        try:
            mapped = _mapped(file.path, array, array.offset)
        except (OSError, ValueError) as error:
            raise UserError(f"{file.path}: '{tensor.name}': {one_line(error)}") from None
        return as_dtype(np.array(mapped[rows]), dtype)

    @cached_property
    def _unpacked(self) -> _Unpacked:
        return _Unpacked()


class Ahead:
    """Reads batches, and the one that follows while the one that was asked for is computed."""

    def __init__(self, read: Callable[[int], Batch]) -> None:
        self._read = read
        self._pool = ThreadPoolExecutor(1)
        self._found: tuple[int, Future[Batch]] | None = None

    def get(self, position: int, following: int) -> Batch:
        """Return what ``read`` gives for ``position``; ``following`` is asked for next."""
        found, self._found = self._found, None
        is_there = found is not None and found[0] == position
        future = (
            found[1] if found is not None and is_there else self._pool.submit(self._read, position)
        )
        batch = future.result()
        self._found = following, self._pool.submit(self._read, following)
        return batch


def _mapped(path: Path, array: NpzArray, offset: int) -> Array:
    order: Literal["F", "C"] = "F" if array.is_fortran else "C"
    return np.memmap(path, array.dtype, "r", offset, array.shape, order)


class _Unpacked:
    """The compressed arrays of the file that was read last."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.arrays: dict[str, Array] = {}

    def get(self, path: Path, name: str) -> Array:
        if path != self.path:
            self.path, self.arrays = path, {}
        if name not in self.arrays:
            try:
                with np.load(path) as file:
                    self.arrays[name] = file[name]
            except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                raise UserError(f"{path}: array '{name}' is damaged: {one_line(error)}") from None
        return self.arrays[name]


@lru_cache(maxsize=2)
def _order(shuffle: int | None, epoch: int, files: int) -> list[int]:
    if shuffle is None:
        return list(range(files))
    return [int(i) for i in np.random.default_rng([shuffle, epoch]).permutation(files)]


@lru_cache(maxsize=2)
def _permutation(shuffle: int, epoch: int, file: int, samples: int) -> Array:
    return np.random.default_rng([shuffle, epoch, file]).permutation(samples)


def open_dataset(
    place: Path, inputs: Sequence[Tensor], batch: int, shuffle: int | None = None
) -> Dataset:
    """Return the data in ``place``, a file or a folder, after reading all headers.

    Raises `UserError` for a missing or unfit array, and for fewer samples than ``batch``.
    """
    files = tuple(_file(path, inputs) for path in _paths(place))
    found = Dataset(files, tuple(inputs), shuffle)
    if found.samples < batch:
        raise UserError(f"{place}: expected at least a batch of {batch}, got: {found.samples}")
    return found


def _paths(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    paths = sorted(place.glob("*.npz"))
    if not paths:
        raise UserError(f"{place}: expected .npz files in the folder, got: none")
    return paths


def _file(path: Path, inputs: Sequence[Tensor]) -> _File:
    headers = npz_headers(path)
    for tensor in inputs:
        if tensor.name not in headers:
            near = did_you_mean(tensor.name, headers)
            raise UserError(f"{path}: input '{tensor.name}' is missing{near}")
        _check(path, tensor, headers[tensor.name])
    first = inputs[0].name
    samples = headers[first].shape[0]
    for tensor in inputs:
        if (found := headers[tensor.name].shape[0]) != samples:
            raise UserError(
                f"{path}: input '{tensor.name}': expected {samples} samples as of '{first}', "
                f"got: {found}"
            )
    return _File(path, {tensor.name: headers[tensor.name] for tensor in inputs}, samples)


def _check(path: Path, tensor: Tensor, array: NpzArray) -> None:
    check_dtype(str(path), tensor, array.dtype)
    if not array.shape or array.shape[1:] != tensor.shape[1:]:
        wanted = "x".join(["SAMPLES", *map(str, tensor.shape[1:])])
        got = "x".join(map(str, array.shape)) or "a scalar"
        raise UserError(f"{path}: input '{tensor.name}': expected shape {wanted}, got: {got}")
