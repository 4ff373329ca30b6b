"""Hashes of files, atomic replacement, and the modes of new files and folders."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

__all__ = [
    "PAGE_BYTES",
    "PROTOBUF_BYTES",
    "file_mode",
    "folder_mode",
    "may_replace",
    "replace_private",
    "sha256_of",
]

PAGE_BYTES = 4096
"""Alignment of tensors in a file of weights, so that a runtime can map each of them."""

PROTOBUF_BYTES = 2**31
"""Size limit of a protobuf message."""


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal, reading it in chunks."""
    import hashlib  # its libraries take milliseconds

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_private(path: Path, text: str) -> None:
    """Atomically replace a file that only its owner may read.

    Raises OSError, and then leaves the old file unchanged.
    """
    aside = path.with_name(f".{path.name}.tmp")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def may_replace(path: Path) -> bool:
    """Return whether ``path`` is a file or a free name in a folder, not a device (/dev/null)."""
    return path.parent.is_dir() and (path.is_file() or not path.exists())


def file_mode() -> int:
    """Return the mode of a new file."""
    return 0o666 & ~_umask()


def folder_mode() -> int:
    """Return the mode of a new folder."""
    return 0o777 & ~_umask()


def _umask() -> int:
    """Return the umask of the process; only Linux tells it without a change of it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        status = ""
    if (shown := re.search(r"^Umask:\s+([0-7]+)", status, re.MULTILINE)) is not None:
        return int(shown[1], 8)
    with _masking:
        mask = os.umask(0o077)
        os.umask(mask)
    return mask


_masking = threading.Lock()
"""Two threads that change the umask at once could leave it changed."""
