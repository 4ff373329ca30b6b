"""Training data in Parquet and Arrow files: a column for each input, a row for each sample.

Files are read by row groups (in Arrow files: record batches), and groups in use are cached. So a
shuffled order mixes the samples of a few groups at a time, drawn from all files, and reads each
group once per epoch.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.training.data.columns import column_of
from tensoropt.runtime.training.data.files import Unchanged
from tensoropt.runtime.training.data.order import by_unit
from tensoropt.runtime.training.data.source import Batch, Parts, join_rows

__all__ = ["WINDOW_BYTES", "ArrowFiles"]

WINDOW_BYTES = 1 << 28
"""Bytes of samples that are shuffled together, at least one row group."""

_OPEN_FILES = 16


class ArrowFiles:
    """The rows of files of one ``kind``, "parquet" or "arrow"; a row group is a unit.

    Caches arrays of groups for each input: a window of groups for an order that ``is_shuffled``,
    otherwise one group.
    """

    def __init__(
        self, kind: str, paths: Sequence[Path], inputs: Sequence[Tensor], *, is_shuffled: bool
    ) -> None:
        """Read the schema and the sizes of all groups; raises `UserError` for invalid columns."""
        opened = _ParquetFile if kind == "parquet" else _ArrowFile
        self._file = lru_cache(_OPEN_FILES)(lambda number: opened(paths[number], inputs))
        found = [self._file(number).counts() for number in range(len(paths))]
        self.counts = [count for counts in found for count in counts]
        self._firsts = np.cumsum(self.counts) - self.counts
        self._groups = [
            (number, group, row)  # the file, the index in the file and the first row of a group
            for number, counts in enumerate(found)
            for group, row in enumerate(accumulate(counts[:-1], initial=0) if counts else ())
        ]
        self.window = max(1, WINDOW_BYTES // sum(map(_sample_bytes, inputs)))
        capacity = max(self.counts, default=0) + (self.window if is_shuffled else 0)
        self._kept = {tensor.name: _Kept(capacity) for tensor in inputs}
        self._unchanged = Unchanged(paths, [sum(counts) for counts in found])
        self.facts = self._unchanged.facts(kind, len(self.counts))

    def take(self, ids: Array, parts: Parts) -> Batch:
        """Return ``parts`` of the samples ``ids``; see `Samples.take`."""
        batch: Batch = {}
        for name, (rows, *rest) in parts.items():
            units = by_unit(ids[rows], self._firsts)
            # Copy: callers may change the array, and the cache must not change.
            batch[name] = join_rows(
                [(to, np.array(self._group(unit, name, rest)[own])) for unit, to, own in units]
            )
        return batch

    def _group(self, unit: int, name: str, rest: Sequence[slice]) -> Array:
        number, group, row = self._groups[unit]
        self._unchanged.check(number)

        def read() -> Array:
            values = self._file(number).values(name, group)
            if len(values) != self.counts[unit]:
                self._unchanged.fail(
                    number, f"{len(values)} rows in group {group}", f"{self.counts[unit]}"
                )
            return self._file(number).columns[name].array(values, row)[(slice(None), *rest)]

        bounds = [(part.start, part.stop) for part in rest]
        return self._kept[name].get((unit, *bounds), read)


class _ParquetFile:
    """The columns for ``inputs`` of a Parquet file."""

    def __init__(self, path: Path, inputs: Sequence[Tensor]) -> None:
        self._path = path
        with _one_line_of(path):
            self._file = pyarrow.parquet.ParquetFile(path)
        schema = self._file.schema_arrow
        self.columns = {tensor.name: column_of(str(path), schema, tensor) for tensor in inputs}

    def counts(self) -> list[int]:
        """Return the number of rows of each group."""
        metadata = self._file.metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

    def values(self, name: str, group: int) -> pa.ChunkedArray:
        with _one_line_of(self._path):
            # Ranks share the cores, and a step is computed at the same time.
            table = self._file.read_row_group(group, columns=[name], use_threads=False)
        return table.column(name)


class _ArrowFile:
    """The columns for ``inputs`` of an Arrow file; uncompressed columns are memory-mapped."""

    def __init__(self, path: Path, inputs: Sequence[Tensor]) -> None:
        self._path = path
        with _one_line_of(path):
            self._mapped = pa.memory_map(str(path))
            schema = pyarrow.ipc.open_file(self._mapped).schema
        self.columns = {tensor.name: column_of(str(path), schema, tensor) for tensor in inputs}
        self._files: dict[str, pyarrow.ipc.RecordBatchFileReader] = {}
        for name, column in self.columns.items():  # a reader decompresses only its own column
            options = pyarrow.ipc.IpcReadOptions(included_fields=[column.place], use_threads=False)
            self._files[name] = pyarrow.ipc.open_file(self._mapped, options=options)
        self._smallest = min(inputs, key=_sample_bytes).name

    def counts(self) -> list[int]:
        """Return the number of rows of each record batch."""
        numbers = range(self._files[self._smallest].num_record_batches)
        return [len(self.values(self._smallest, number)) for number in numbers]

    def values(self, name: str, group: int) -> pa.ChunkedArray:
        with _one_line_of(self._path):
            return pa.chunked_array([self._files[name].get_batch(group).column(0)])


class _Kept:
    """An LRU cache of arrays with at most ``capacity`` samples, or of a single array."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._samples = capacity, 0
        self._arrays: OrderedDict[object, Array] = OrderedDict()

    def get(self, key: object, read: Callable[[], Array]) -> Array:
        """Return the array of ``key``, calling ``read`` if it is not cached."""
        if key in self._arrays:
            self._arrays.move_to_end(key)
            return self._arrays[key]
        self._arrays[key] = found = read()
        self._samples += len(found)
        while self._samples > self._capacity and len(self._arrays) > 1:
            self._samples -= len(self._arrays.popitem(last=False)[1])
        return found


@contextmanager
def _one_line_of(path: Path) -> Iterator[None]:
    """Convert exceptions of pyarrow to `UserError`."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: {cause_of(error)}") from None


def _sample_bytes(tensor: Tensor) -> int:
    return math.prod(int(size) for size in tensor.shape[1:]) * dtype_of(tensor.dtype).itemsize
