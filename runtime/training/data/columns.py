"""Conversion and validation of columns of an Arrow table to arrays of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError, did_you_mean

__all__ = ["Column", "column_of"]


@dataclass(frozen=True)
class Column:
    """Values of an input, in nested lists with the ``sizes`` of each level, outermost first.

    ``path`` is the file, and ``place`` the index of the column.
    """

    path: str
    name: str
    place: int
    shape: tuple[int, ...]
    sizes: tuple[int, ...]

    def array(self, values: pa.ChunkedArray, row: int) -> Array:
        """Return the samples of ``values``, which begin at ``row`` of the file.

        Raises `UserError` for nulls, and for lists of an unexpected size.
        """
        arrays = []
        for chunk in values.chunks:
            arrays.append(self._chunk(chunk, row))
            row += len(chunk)
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def _chunk(self, values: pa.Array, row: int) -> Array:
        samples, each = len(values), 1  # ``each``: values per sample at the current level
        for size in self.sizes:
            lists = _plain(values)
            assert isinstance(lists, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray)
            self._check_nulls(lists, row, each)
            self._check_sizes(lists, size, row, each)
            values, each = lists.flatten(), each * size
        values = _plain(values)
        self._check_nulls(values, row, each)
        return values.to_numpy(zero_copy_only=False).reshape(samples, *self.shape)

    def _check_nulls(self, values: pa.Array, row: int, each: int) -> None:
        if values.null_count:
            place = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]
            self._fail(row + place // each, "a value", "null")

    def _check_sizes(self, values: pa.Array, size: int, row: int, each: int) -> None:
        if not isinstance(values, pa.ListArray | pa.LargeListArray):
            return
        found = np.diff(values.offsets.to_numpy())
        wrong = np.flatnonzero(found != size)
        if len(wrong):
            expected = f"{size} {'value' if size == 1 else 'values'}"
            self._fail(row + wrong[0] // each, expected, str(found[wrong[0]]))

    def _fail(self, row: int, expected: str, got: str) -> None:
        raise UserError(
            f"{self.path}: column '{self.name}': row {row}: expected {expected}, got: {got}"
        )


def column_of(path: str, schema: pa.Schema, tensor: Tensor) -> Column:
    """Return the column of an input; raises `UserError` unless exactly one column fits."""
    places = schema.get_all_field_indices(tensor.name)
    if len(places) != 1:
        near = did_you_mean(tensor.name, schema.names)
        fault = f"is missing{near}" if not places else "exists more than once"
        raise UserError(f"{path}: column '{tensor.name}' {fault}")
    kind, shape = schema.field(places[0]).type, tuple(int(size) for size in tensor.shape[1:])
    *levels, values = _levels(kind)
    sizes = _sizes(levels, shape)
    if sizes is None or not _is_of(values, tensor):
        each = f"{tensor.dtype} of {'x'.join(map(str, shape))}" if shape else tensor.dtype
        raise UserError(f"{path}: column '{tensor.name}': expected {each}, got: {kind}")
    return Column(path, tensor.name, places[0], shape, sizes)


def _levels(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the nested list types of a type, outermost first, then the type of the values."""
    while True:
        if isinstance(kind, pa.BaseExtensionType) and not _is_permuted(kind):
            kind = kind.storage_type
        yield kind
        if not isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
            return
        kind = kind.value_type


def _is_permuted(kind: pa.DataType) -> bool:
    """Return whether the storage order of a tensor type differs from its dimensions."""
    if not isinstance(kind, pa.FixedShapeTensorType):
        return False
    return list(kind.permutation or ()) != sorted(kind.permutation or ())


def _sizes(levels: list[pa.DataType], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the sizes of nested lists for samples of ``shape``, None if the lists do not fit.

    If there is a list for each dimension, variable-size lists take the sizes of the dimensions.
    Otherwise a single variable-size list takes the remaining number of elements.
    """
    given = [k.list_size if isinstance(k, pa.FixedSizeListType) else None for k in levels]
    known, total = math.prod(size for size in given if size is not None), math.prod(shape)
    if len(given) == len(shape):
        other = list(shape)
    elif given.count(None) > 1 or not known:
        return None
    else:
        other = [total // known] * len(given)
    sizes = tuple(n if size is None else size for size, n in zip(given, other, strict=True))
    return sizes if math.prod(sizes) == total else None


def _is_of(values: pa.DataType, tensor: Tensor) -> bool:
    if not pa.types.is_primitive(values):
        return False
    return bool(np.dtype(values.to_pandas_dtype()) == dtype_of(tensor.dtype))


def _plain(values: pa.Array) -> pa.Array:
    return values.storage if isinstance(values, pa.ExtensionArray) else values
