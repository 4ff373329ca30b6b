"""Hashes of files, and the mode of those written aside, which begin as their owner's alone."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["file_mode", "folder_mode", "sha256_of"]


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal, reading it piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_mode() -> int:
    """Return the mode of a new file."""
    return 0o666 & ~_umask()


def folder_mode() -> int:
    """Return the mode of a new folder."""
    return 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
