"""A lock on a folder of checkpoints: one run at a time, as each run removes old checkpoints."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tensoropt.runtime.support.errors import UserError

__all__ = ["lock_folder"]


@contextmanager
def lock_folder(folder: str | None) -> Iterator[None]:
    """Prevent other runs from writing checkpoints to ``folder``, which is created if needed.

    The kernel releases the lock when the process ends in any way. Raises `UserError` if another run
    has the lock. Without a folder (None), or on a file system without locks, nothing is locked.
    """
    if folder is None:
        yield
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"--checkpoint {folder}: another run writes checkpoints there, "
                "expected another folder"
            ) from None
        except OSError:
            pass  # the file system has no locks
        yield
    finally:
        os.close(descriptor)
