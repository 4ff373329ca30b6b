"""End of a process with its parent."""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["end_with"]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with(parent: int | None) -> None:
    """Let the kernel kill this process when ``parent`` dies; exit if it has died already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
