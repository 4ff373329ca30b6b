"""Tables of a user's own machine: products as CSV, collectives as output of nccl-tests.

``*.csv`` has a header with the columns ``rows``, ``columns``, ``depth``, ``dtype`` and ``time_s``.
``*.txt`` and ``*.log`` are the output of ``all_reduce_perf``, ``all_gather_perf``,
``reduce_scatter_perf`` or ``alltoall_perf``, as NCCL's tests print it.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tensoropt.compiler.calibrate.samples import CollectiveSample
from tensoropt.compiler.calibrate.tables.rows import Tables, product_rows
from tensoropt.compiler.cost.kernel import FAMILIES
from tensoropt.compiler.cost.measurements import check_type
from tensoropt.compiler.support.errors import UserError

__all__ = ["read_files"]

_SIZES = FAMILIES["products"]
_COLUMNS = (*_SIZES, "dtype", "time_s")
_PROGRAMS = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
}
_RANK = re.compile(r"^#\s+Rank\s+\d+\s")
_TIMES = 4  # size, count, type and operation or root are before the times
_MICROSECOND_S = 1e-6


def read_files(folder: Path) -> Tables:
    """Return the tables of the files of a folder.

    Raises :class:`UserError` if there is none, or at the first line that cannot be read.
    """
    sizes: dict[str, list[list[float]]] = defaultdict(list)
    for path in sorted(folder.glob("*.csv")):
        for dtype, row in _products(path):
            sizes[dtype].append(row)
    samples: list[CollectiveSample] = []
    for path in sorted((*folder.glob("*.txt"), *folder.glob("*.log"))):
        samples += _collectives(path)
    if not sizes and not samples:
        raise UserError(
            f"--from-tables {folder}: expected products as *.csv, output of nccl-tests as *.txt or "
            "*.log, or the tables of a GPU in AIConfigurator's systems/data, got: none"
        )
    products = {}
    for dtype, rows in sizes.items():
        values = np.array(rows, np.float64)
        products["products", dtype] = product_rows(values[:, :-1], dtype, values[:, -1])
    return Tables(f"the files of {folder.name}", products, samples)


def _products(path: Path) -> Iterator[tuple[str, list[float]]]:
    """Yield the type of each row, and its sizes and time."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise UserError(
                f"{path}: expected the columns {', '.join(_COLUMNS)}, got: no {missing[0]}"
            )
        for number, row in enumerate(reader, 2):
            dtype = (row["dtype"] or "").strip()
            check_type(dtype, f"{path}:{number}")
            yield dtype, [_positive(path, number, name, row[name]) for name in (*_SIZES, "time_s")]


def _positive(path: Path, number: int, name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UserError(f"{path}:{number}: {name}: expected a positive number, got: {text!r}")
    return value


def _collectives(path: Path) -> Iterator[CollectiveSample]:
    """Yield the out-of-place times of an output of nccl-tests; sizes are bytes.

    A test counts as its size the larger of the buffers of a rank, so an all-gather sends a piece.
    """
    kind, ranks, found = None, 0, False
    for number, line in enumerate(
        path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
    ):
        if _RANK.match(line):
            ranks += 1
        kind = next((own for name, own in _PROGRAMS.items() if name in line), kind)
        fields = line.split()
        if line.startswith("#") or len(fields) <= _TIMES or not fields[0].isdecimal():
            continue
        if kind is None or ranks < 2:
            raise UserError(
                f"{path}:{number}: expected the header of nccl-tests with the program and two or "
                f"more ranks before the times, got: {kind or 'no program'}, {ranks} ranks"
            )
        size = int(fields[0]) // (ranks if kind == "all_gather" else 1)
        times = [field for field in fields[_TIMES:] if "." in field]
        if not times:
            raise UserError(f"{path}:{number}: expected times in microseconds, got: {line.strip()}")
        found = True
        if size and float(times[0]) > 0:
            yield CollectiveSample(kind, ranks, size, float(times[0]) * _MICROSECOND_S)
    if not found:
        raise UserError(f"{path}: expected the output of nccl-tests, got: no line with times")
