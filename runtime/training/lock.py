"""One run at a time writes checkpoints into a folder: each removes the older ones of it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tensoropt.runtime.support.errors import UserError

__all__ = ["alone_in"]


@contextmanager
def alone_in(folder: str | None) -> Iterator[None]:
    """Keep other runs from writing checkpoints into ``folder``, made if need be; None is none.

    The system ends that with the process, however it ends. Raises `UserError` where another run
    writes there. A file system without locks has none.
    """
    if folder is None:
        yield
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"--checkpoint {folder}: another run writes checkpoints there, expected another folder"
        ) from None
