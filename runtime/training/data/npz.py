"""Training data in .npz files: an array for each input, samples first.

Uncompressed arrays are memory-mapped; a compressed array is read as a whole.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.session.inputs import as_dtype, check_dtype
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError, cause_of, did_you_mean
from tensoropt.runtime.support.npz import NpzArray, npz_headers
from tensoropt.runtime.training.data.files import Unchanged
from tensoropt.runtime.training.data.order import by_unit
from tensoropt.runtime.training.data.source import Batch, Parts, join_rows

__all__ = ["NpzFiles"]


@dataclass(frozen=True)
class _File:
    path: Path
    arrays: dict[str, NpzArray]
    samples: int


class NpzFiles:
    """The samples of ``inputs`` in .npz files; a file is a unit of their order."""

    window = None

    def __init__(self, paths: Sequence[Path], inputs: Sequence[Tensor]) -> None:
        """Read all headers; raises `UserError` for a missing or invalid array."""
        self._files = [_file(path, inputs) for path in paths]
        self._dtypes = {tensor.name: dtype_of(tensor.dtype) for tensor in inputs}
        self._unpacked = _Unpacked()
        self.counts = [file.samples for file in self._files]
        self._firsts = np.cumsum(self.counts) - self.counts
        self._unchanged = Unchanged(paths, self.counts)
        self.facts = self._unchanged.facts("npz")

    def take(self, ids: Array, parts: Parts) -> Batch:
        """Return ``parts`` of the samples ``ids``; see `Samples.take`."""
        batch: Batch = {}
        for name, (rows, *rest) in parts.items():
            units = by_unit(ids[rows], self._firsts)
            batch[name] = join_rows(
                [(to, self._rows(number, name, own, rest)) for number, to, own in units]
            )
        return batch

    def _rows(self, number: int, name: str, rows: slice | Array, rest: Sequence[slice]) -> Array:
        file = self._files[number]
        self._unchanged.check(number)
        array, dtype = file.arrays[name], self._dtypes[name]
        if array.offset is None:
            whole = self._unpacked.get(file.path, name)
        else:
            whole = _mapped(file.path, name, array, array.offset)
        found = whole[(slice(None), *rest)][rows]
        # Copy slices of a mapped file, so that the file is read here and not later.
        return as_dtype(np.array(found) if isinstance(rows, slice) else np.asarray(found), dtype)


def _mapped(path: Path, name: str, array: NpzArray, offset: int) -> Array:
    order: Literal["F", "C"] = "F" if array.is_fortran else "C"
    try:
        return np.memmap(path, array.dtype, "r", offset, array.shape, order)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: '{name}': {cause_of(error)}") from None


class _Unpacked:
    """A cache of the decompressed arrays of the last file that was read."""

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
                raise UserError(f"{path}: array '{name}' is damaged: {cause_of(error)}") from None
        return self.arrays[name]


def _file(path: Path, inputs: Sequence[Tensor]) -> _File:
    headers = npz_headers(path)
    for tensor in inputs:
        if tensor.name not in headers:
            near = did_you_mean(tensor.name, headers)
            raise UserError(f"{path}: input '{tensor.name}' is missing{near}")
        array = headers[tensor.name]
        check_dtype(str(path), tensor, array.dtype)
        if not array.shape or array.shape[1:] != tensor.shape[1:]:
            wanted = "x".join(["SAMPLES", *map(str, tensor.shape[1:])])
            got = "x".join(map(str, array.shape)) or "a scalar"
            raise UserError(f"{path}: input '{tensor.name}': expected shape {wanted}, got: {got}")
    first = inputs[0].name
    samples = headers[first].shape[0]
    for tensor in inputs:
        if (found := headers[tensor.name].shape[0]) != samples:
            raise UserError(
                f"{path}: input '{tensor.name}': expected {samples} samples as of '{first}', "
                f"got: {found}"
            )
    return _File(path, {tensor.name: headers[tensor.name] for tensor in inputs}, samples)
