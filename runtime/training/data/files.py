"""Files of samples: their discovery, and checks that they do not change during a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.training.data.source import Facts

__all__ = ["Unchanged", "data_files"]


def data_files(place: Path, kinds: Mapping[str, str]) -> tuple[str, list[Path]]:
    """Return the kind of the files at ``place``, a file or a folder, and their paths by name.

    ``kinds`` maps suffixes to kinds; a file with another suffix is "npz". Raises `UserError` unless
    a folder has files of exactly one kind.
    """
    if not place.is_dir():
        return kinds.get(place.suffix.lower(), "npz"), [place]
    paths = sorted(path for path in place.iterdir() if path.suffix.lower() in kinds)
    found = sorted({kinds[path.suffix.lower()] for path in paths})
    if not found:
        *others, last = kinds
        suffixes = f"{', '.join(others)} or {last}"
        raise UserError(f"{place}: expected {suffixes} files in the folder, got: none")
    if len(found) > 1:
        raise UserError(f"{place}: expected files of one kind, got: {' and '.join(found)}")
    return found[0], paths


class Unchanged:
    """A check that files have the sizes and ``counts`` of samples from the start of the job."""

    def __init__(self, paths: Sequence[Path], counts: Sequence[int]) -> None:
        self._paths, self._counts = list(paths), list(counts)
        self._sizes = [_size(path) for path in paths]

    def facts(self, kind: str, groups: int | None = None) -> Facts:
        names = [path.name for path in self._paths]
        files = tuple(zip(names, self._counts, strict=True))
        return Facts(kind, sum(self._counts), files, groups)

    def check(self, number: int) -> None:
        """Raise `UserError` if the size of a file has changed."""
        before = self._sizes[number]
        if (now := _size(self._paths[number])) != before:
            count = self._counts[number]
            self.fail(number, f"{now} bytes", f"{before} bytes with {count} samples")

    def fail(self, number: int, got: str, expected: str) -> NoReturn:
        """Raise `UserError`: a file has changed since the job began."""
        path = self._paths[number]
        raise UserError(f"{path}: has {got}, expected {expected} as when the job began")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise UserError(f"{path}: {cause_of(error)}") from None
