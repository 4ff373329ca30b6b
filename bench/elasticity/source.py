"""Samples of an .npz file with a record of reads, for ``--data``.

TENSOROPT_BENCH_DATA is the file. In the folder TENSOROPT_BENCH_READS every process writes a file
named by its pid. For every batch that it read, the file has the time, the number of samples, and
their numbers, all as float64. A batch takes TENSOROPT_BENCH_PACE seconds, and waits while the
folder has a file ``hold``. Single samples, by which a job inspects its source, do not wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["DATA", "HOLD", "PACE", "READS", "Read", "open_samples", "reads_of"]

DATA, READS, PACE = (f"TENSOROPT_BENCH_{name}" for name in ("DATA", "READS", "PACE"))
HOLD = "hold"
_HELD_S = 300.0
_LOOK_S = 0.01


@dataclass(frozen=True)
class Read:
    """A batch that was read at ``time`` of the monotonic clock, with the numbers of its samples."""

    time: float
    ids: list[int]


class _Samples:
    def __init__(self, data: Path, folder: Path) -> None:
        with np.load(data) as file:
            self._arrays = {name: file[name] for name in file.files}
        self._record = (folder / str(os.getpid())).open("ab", buffering=0)
        self._hold = folder / HOLD
        self._pace_s = float(os.environ.get(PACE, "0"))

    def __len__(self) -> int:
        return len(next(iter(self._arrays.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        self._record.write(np.array([time.monotonic(), len(ids), *ids], np.float64).tobytes())
        if len(ids) > 1:
            self._wait()
        return [{name: array[i] for name, array in self._arrays.items()} for i in ids]

    def _wait(self) -> None:
        time.sleep(self._pace_s)
        end = time.monotonic() + _HELD_S
        while self._hold.exists() and time.monotonic() < end:
            time.sleep(_LOOK_S)


def open_samples() -> _Samples:
    """Return the samples that the environment describes."""
    return _Samples(Path(os.environ[DATA]), Path(os.environ[READS]))


def reads_of(path: Path) -> list[Read]:
    """Return the reads of one process, without the first, by which it inspects the source."""
    numbers, found, place = np.fromfile(path), [], 0
    while place < len(numbers):
        first, last = place + 2, place + 2 + int(numbers[place + 1])
        found.append(Read(float(numbers[place]), numbers[first:last].astype(int).tolist()))
        place = last
    return found[1:]
