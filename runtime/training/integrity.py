"""SHA-256 digests in the metadata of a checkpoint: one for each tensor, one for the header.

They detect damage (a flipped bit, a truncated copy, blocks of zeros), not forgery. The digest of
the header covers the digests of the tensors, so it identifies the whole file.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import mmap
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.runtime.support.errors import UserError, cause_of, one_line

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["DamagedError", "blank_digests", "check_tensors", "header_digest", "seal"]

_HEADER = "header_sha256"
_TENSORS = "tensors_sha256"
_BLANK = "0" * 64
_LENGTH_BYTES = 8


class DamagedError(UserError):
    """A checkpoint differs from the bytes that were written."""


@dataclass(frozen=True)
class _Header:
    """The header of a safetensors file; ``start`` is the position of its first tensor, in bytes."""

    raw: bytes
    metadata: Mapping[str, str]
    entries: Mapping[str, Any]

    @property
    def start(self) -> int:
        return _LENGTH_BYTES + len(self.raw)

    @property
    def extents(self) -> dict[str, tuple[int, int]]:
        """The first byte of each tensor in the file, and the byte after its last."""
        return {
            name: (self.start + entry["data_offsets"][0], self.start + entry["data_offsets"][1])
            for name, entry in self.entries.items()
        }


def blank_digests(names: Iterable[str]) -> dict[str, str]:
    """Return placeholder digests for the tensors ``names``, of the size that `seal` needs."""
    return {_HEADER: _BLANK, _TENSORS: json.dumps(dict.fromkeys(names, _BLANK))}


def seal(path: Path) -> str:
    """Replace the `blank_digests` of a file by its digests; returns `header_digest`.

    Reads the file once, on all cores, and rewrites its header.
    """
    header = _read(path)
    with path.open("r+b") as file, _map(path) as data:
        with ThreadPoolExecutor() as pool:
            digests = dict(pool.map(lambda item: _digest(data, *item), header.extents.items()))
        tensors = {**header.metadata, _TENSORS: json.dumps(digests)}
        entries = {"__metadata__": tensors, **header.entries}
        text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
        # The tensors cannot move, so the new header must fit in the place of the old one.
        assert len(text) <= len(header.raw), "the file was not written with blank digests"
        blank = text.ljust(len(header.raw))
        digest = hashlib.sha256(blank).hexdigest()
        file.seek(_LENGTH_BYTES)
        file.write(blank.replace(_BLANK.encode(), digest.encode()))
    return digest


def header_digest(path: Path) -> str:
    """Return the header's digest; raises `DamagedError` if it is missing or wrong.

    Reads only the header.
    """
    return _check_header(path, _read(path))


def check_tensors(path: Path, comm: MPI.Comm | None = None) -> None:
    """Compare a checkpoint with its digests; raises `DamagedError` on all ranks of ``comm``.

    The tensors are divided over the ranks by their bytes, so that together they read the file once.
    """
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
    error = _damage(path, rank, ranks)
    errors = [error] if comm is None else comm.allgather(error)
    found = next((error for error in errors if error is not None), None)
    if found is not None:
        raise DamagedError(found)


def _damage(path: Path, rank: int, ranks: int) -> str | None:
    """Return a message about the first damage in the tensors that ``rank`` checks, or None."""
    try:
        header = _read(path)
        _check_header(path, header)
        expected = json.loads(header.metadata[_TENSORS])
        extents = header.extents
        if expected.keys() != extents.keys():
            odd = min(expected.keys() ^ extents.keys())
            return f"{path}: damaged: tensor '{odd}' has no digest, or a digest and no data"
        mine = _shares({name: end - start for name, (start, end) in extents.items()}, ranks)[rank]
        with _map(path) as data:
            for name in mine:
                _, found = _digest(data, name, extents[name])
                if found != expected[name]:
                    return (
                        f"{path}: damaged: tensor '{name}' has changed since it was written, "
                        f"expected sha256 {expected[name]}, got: {found}"
                    )
    except (OSError, UserError) as error:
        text = str(error) if isinstance(error, UserError) else one_line(error)
        return text if text.startswith(str(path)) else f"{path}: {text}"
    return None


def _shares(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    """Divide the names into ``count`` lists of about equal total size, greedily, largest first."""
    lists: list[list[str]] = [[] for _ in range(count)]
    heap = [(0, index) for index in range(count)]
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        size, index = heapq.heappop(heap)
        lists[index].append(name)
        heapq.heappush(heap, (size + sizes[name], index))
    return lists


def _read(path: Path) -> _Header:
    """Return the header of a safetensors file; raises OSError and `DamagedError`."""
    with path.open("rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if not 0 < length <= size - _LENGTH_BYTES:
            raise DamagedError(f"{path}: damaged: its header is longer than the file")
        raw = file.read(length)
    try:
        entries = json.loads(raw)
        header = _Header(raw, dict(entries.pop("__metadata__")), entries)
        expected = max((end for _, end in header.extents.values()), default=header.start)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DamagedError(f"{path}: damaged: its header: {cause_of(error)}") from None
    if size != expected:
        raise DamagedError(f"{path}: damaged: expected {expected} bytes, got: {size}")
    return header


def _check_header(path: Path, header: _Header) -> str:
    """Return the digest in a header after checking it against the header's bytes."""
    expected = header.metadata.get(_HEADER, "")
    if len(expected) != len(_BLANK) or header.raw.count(expected.encode()) != 1:
        raise DamagedError(f"{path}: damaged: its header has no digest")
    blank = header.raw.replace(expected.encode(), _BLANK.encode())
    found = hashlib.sha256(blank).hexdigest()
    if found != expected:
        raise DamagedError(
            f"{path}: damaged: its header has changed since it was written, "
            f"expected sha256 {expected}, got: {found}"
        )
    return expected


def _map(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _digest(data: mmap.mmap, name: str, extent: tuple[int, int]) -> tuple[str, str]:
    """Return the name with the SHA-256 of its bytes. hashlib releases the GIL."""
    with memoryview(data) as view, view[slice(*extent)] as part:
        return name, hashlib.sha256(part).hexdigest()
