"""A file of JSON lines that are numbered in rising order, of which any part is found at once."""

from __future__ import annotations

import bisect
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tensoropt.elastic.records import json_line
from tensoropt.runtime.support.errors import UserError

__all__ = ["Rows"]

_FLUSH_S = 0.5
_BLOCK = 1 << 16


class Rows:
    """The lines of the file at ``path``, numbered by their field ``key``; from any thread.

    One process writes, any may read. A line that a crash left half written is no line.
    """

    def __init__(self, path: Path, key: str, *, flush_s: float = _FLUSH_S) -> None:
        self._path, self._key, self._flush_s = path, key, flush_s
        self._lock = threading.RLock()
        self._file: IO[bytes] | None = None
        self._last, self._flushed = 0, 0.0

    def append(self, facts: Mapping[str, Any]) -> None:
        """Add a line; it is in the file with the first one ``flush_s`` after the last `flush`.

        Raises ValueError unless its number is higher than the last one's.
        """
        with self._lock:
            file = self._opened()
            number = int(facts[self._key])
            if number <= self._last:
                raise ValueError(f"{self._path}: expected more than {self._last}, got: {number}")
            file.write(json_line(facts).encode())
            self._last = number
            if time.monotonic() >= self._flushed + self._flush_s:
                self.flush()

    def flush(self) -> None:
        """Bring what was appended into the file."""
        with self._lock:
            if self._file is not None:
                self._file.flush()
                self._flushed = time.monotonic()

    def truncate(self, number: int) -> None:
        """Take out the lines numbered higher than ``number``."""
        with self._lock:
            file = self._opened()
            file.flush()
            with self._path.open("rb") as reader:
                start = self._start_after(reader, number)
            file.truncate(start)
            file.seek(start)
            self._last = self.last()

    def last(self) -> int:
        """Return the highest number, 0 where there is no line."""
        self.flush()
        with self._reader() as file:
            end = _end(file)
            return self._number_at(file, _line_before(file, end)) if end else 0

    def after(self, number: int, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the lines numbered higher than ``number``: all, or the last ``limit``.

        Numbers that are left out count towards ``limit``.
        """
        if limit is not None:
            number = max(number, self.last() - limit)
        self.flush()
        with self._reader() as file:
            start, end = self._start_after(file, number), _end(file)
            file.seek(start)
            lines = file.read(max(end - start, 0)).splitlines()
        return [self._parsed(line) for line in lines]

    def close(self) -> None:
        """Bring everything into the file, and close it."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _opened(self) -> IO[bytes]:
        """Return the file for writing, behind its last whole line."""
        if self._file is None:
            self._last = self.last()
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            self._file = os.fdopen(descriptor, "r+b")
            self._file.truncate(_end(self._file))
            self._file.seek(0, os.SEEK_END)
        return self._file

    def _reader(self) -> IO[bytes]:
        path = self._path if self._path.exists() else Path(os.devnull)
        return path.open("rb")

    def _start_after(self, file: IO[bytes], number: int) -> int:
        """Return where the first line begins that is numbered higher than ``number``."""
        end = _end(file)

        def is_after(place: int) -> bool:
            start = _line_from(file, place)
            return start >= end or self._number_at(file, start) > number

        return _line_from(file, bisect.bisect_left(range(end), True, key=is_after))

    def _number_at(self, file: IO[bytes], start: int) -> int:
        file.seek(start)
        return int(self._parsed(file.readline())[self._key])

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads(line)
            int(facts[self._key])
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{self._path}: expected lines with '{self._key}', got: {line[:60]!r}"
            ) from None
        return facts


def _line_from(file: IO[bytes], place: int) -> int:
    """Return where the first line begins at ``place`` or later."""
    if place == 0:
        return 0
    file.seek(place - 1)
    file.readline()
    return file.tell()


def _line_before(file: IO[bytes], end: int) -> int:
    """Return where the line begins that ends at ``end``."""
    return _newline_before(file, end - 1)


def _end(file: IO[bytes]) -> int:
    """Return where the last whole line ends."""
    return _newline_before(file, file.seek(0, os.SEEK_END))


def _newline_before(file: IO[bytes], end: int) -> int:
    """Return what follows the last end of a line before ``end``, 0 where there is none."""
    while end > 0:
        start = max(end - _BLOCK, 0)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
