"""The mode of files that are written aside, which begin as their owner's alone."""

from __future__ import annotations

import os

__all__ = ["file_mode", "folder_mode"]


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
