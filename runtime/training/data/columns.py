"""From a column of an Arrow table to an array of samples, and all that can be wrong with it."""

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
    """Values of an input, in lists within lists: ``sizes`` says how many are in each, from outside.

    ``path`` is the file; ``place`` the number of the column.
    """

    path: str
    name: str
    place: int
    shape: tuple[int, ...]
    sizes: tuple[int, ...]

    def array(self, values: pa.ChunkedArray, row: int) -> Array:
        """Return the samples of ``values``, which begin at ``row`` of the file.

        Raises `UserError` for nulls, and for lists of another size than is expected.
        """
        arrays = []
        for chunk in values.chunks:
            arrays.append(self._chunk(chunk, row))
            row += len(chunk)
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def _chunk(self, values: pa.Array, row: int) -> Array:
        samples, each = len(values), 1  # values of a sample, as deep as the loop is
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
    """Return the column of an input; raises `UserError` where there is none that fits."""
    places = schema.get_all_field_indices(tensor.name)
    if len(places) != 1:
        near = did_you_mean(tensor.name, schema.names)
        what = f"is missing{near}" if not places else "is there more than once"
        raise UserError(f"{path}: column '{tensor.name}' {what}")
    kind, shape = schema.field(places[0]).type, tuple(int(size) for size in tensor.shape[1:])
    *levels, values = _levels(kind)
    sizes = _sizes(levels, shape)
    if sizes is None or not _is_of(values, tensor):
        each = f"{tensor.dtype} of {'x'.join(map(str, shape))}" if shape else tensor.dtype
        raise UserError(f"{path}: column '{tensor.name}': expected {each}, got: {kind}")
    return Column(path, tensor.name, places[0], shape, sizes)


def _levels(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the lists that a type is made of, from outside, and the type of the values."""
    while True:
        if isinstance(kind, pa.BaseExtensionType) and not _is_permuted(kind):
            kind = kind.storage_type
        yield kind
        if not isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
            return
        kind = kind.value_type


def _is_permuted(kind: pa.DataType) -> bool:
    """Say whether the values of a tensor lie in another order than its dimensions."""
    if not isinstance(kind, pa.FixedShapeTensorType):
        return False
    return list(kind.permutation or ()) != sorted(kind.permutation or ())


def _sizes(levels: list[pa.DataType], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the sizes of lists that make samples of ``shape``, None where they cannot.

    Lists of any size take theirs from the dimensions, if there is one for each, or a single one
    from the size of the sample.
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
