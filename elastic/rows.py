"""A file of JSON lines with ascending numbers, and fast access to any range of numbers."""

from __future__ import annotations

import bisect
import json
import math
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tensoropt.elastic.records import json_line
from tensoropt.runtime.support.errors import UserError, cause_of

__all__ = ["Rows"]

_FLUSH_S = 0.5
_BLOCK = 1 << 16


class Rows:
    """The lines of the file at ``path``, numbered by their field ``key``. Thread-safe.

    One process writes, any may read. A line left incomplete by a crash is ignored. Lines that do
    not fit on a full disk stay in memory, in order, until a later `flush` succeeds; ``error`` is
    the failure of the last flush.
    """

    def __init__(self, path: Path, key: str, *, flush_s: float = _FLUSH_S) -> None:
        self.error: OSError | None = None
        self.path = path
        self._key, self._flush_s = key, flush_s
        self._lock = threading.RLock()
        self._file: IO[bytes] | None = None
        self._pending: list[tuple[int, bytes]] = []
        self._last, self._flushed = 0, -math.inf

    def append(self, facts: Mapping[str, Any]) -> None:
        """Add a line; flush if the last `flush` was at least ``flush_s`` ago.

        Raises ValueError unless its number is higher than the last line's.
        """
        with self._lock:
            if self._file is None:
                self._last = self.last()
            number = int(facts[self._key])
            if number <= self._last:
                raise ValueError(f"{self.path}: expected more than {self._last}, got: {number}")
            self._pending.append((number, json_line(facts).encode()))
            self._last = number
            if time.monotonic() >= self._flushed + self._flush_s:
                self.flush()

    def flush(self) -> None:
        """Write the lines in memory to the file; undo a partial write."""
        with self._lock:
            if not self._pending:
                return
            self._flushed = time.monotonic()
            try:
                file = self._file or self._open()
                end = file.seek(0, os.SEEK_END)
                try:
                    _write_all(file, b"".join(line for _, line in self._pending))
                except OSError:
                    file.truncate(end)
                    raise
            except OSError as error:
                self.error = error
                return
            self._pending.clear()
            self.error = None

    def truncate(self, number: int) -> None:
        """Remove the lines numbered higher than ``number``. Raises OSError."""
        with self._lock:
            self._pending = [each for each in self._pending if each[0] <= number]
            file = self._file or self._open()
            with self._reader() as reader:
                start = self._start_after(reader, number)
                file.truncate(start)
                self._last = self._number_at(reader, _line_before(reader, start)) if start else 0
            self._last = self._pending[-1][0] if self._pending else self._last

    def last(self) -> int:
        """Return the highest number, 0 if there is no line."""
        with self._lock:
            if self._pending:
                return self._pending[-1][0]
            if self._file is not None:
                return self._last  # even if the file has been removed
            with self._reader() as file:
                end = _end(file)
                return self._number_at(file, _line_before(file, end)) if end else 0

    def rows_after(self, number: int, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the lines numbered higher than ``number``: all, or the last ``limit``.

        Missing numbers count towards ``limit``. O(log(file size) + lines returned).
        """
        if limit is not None:
            number = max(number, self.last() - limit)
        with self._lock:
            self.flush()
            pending = [line for each, line in self._pending if each > number]
            with self._reader() as file:
                start, end = self._start_after(file, number), _end(file)
                file.seek(start)
                lines = file.read(max(end - start, 0)).splitlines()
        return [self._parse(line) for line in (*lines, *pending)]

    def close(self) -> None:
        """Write everything to the file and close it. Raises `UserError` if lines are lost."""
        with self._lock:
            self.flush()
            lost, self._pending = len(self._pending), []
            if self._file is not None:
                self._file.close()
                self._file = None
            if lost and self.error is not None:
                raise UserError(f"{self.path}: {lost} lines are lost: {cause_of(self.error)}")

    def _open(self) -> IO[bytes]:
        """Open the file for writing and cut off an incomplete last line. Raises OSError."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        self._file.truncate(_end(self._file))
        return self._file

    def _reader(self) -> IO[bytes]:
        path = self.path if self.path.exists() else Path(os.devnull)
        return path.open("rb")

    def _start_after(self, file: IO[bytes], number: int) -> int:
        """Return the offset of the first line numbered higher than ``number``."""
        end = _end(file)

        def is_after(place: int) -> bool:
            start = _line_from(file, place)
            return start >= end or self._number_at(file, start) > number

        return _line_from(file, bisect.bisect_left(range(end), True, key=is_after))

    def _number_at(self, file: IO[bytes], start: int) -> int:
        file.seek(start)
        return int(self._parse(file.readline())[self._key])

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads(line)
            int(facts[self._key])
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{self.path}: expected lines with '{self._key}', got: {line[:60]!r}"
            ) from None
        return facts


def _write_all(file: IO[bytes], data: bytes) -> None:
    """Write ``data`` to an unbuffered file, which may accept only part of it per call."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _line_from(file: IO[bytes], place: int) -> int:
    """Return the offset of the first line that begins at ``place`` or later."""
    if place == 0:
        return 0
    file.seek(place - 1)
    file.readline()
    return file.tell()


def _line_before(file: IO[bytes], end: int) -> int:
    """Return the offset of the line that ends at ``end``."""
    return _newline_before(file, end - 1)


def _end(file: IO[bytes]) -> int:
    """Return the offset of the end of the last complete line."""
    return _newline_before(file, file.seek(0, os.SEEK_END))


def _newline_before(file: IO[bytes], end: int) -> int:
    """Return the offset after the last newline before ``end``, 0 if there is none."""
    while end > 0:
        start = max(end - _BLOCK, 0)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
