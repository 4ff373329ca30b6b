"""Memory of a process, as counted by the system."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

__all__ = ["PeakMemory", "return_freed"]


class PeakMemory:
    """Peak resident memory of this process since this object was created, in bytes."""

    def __init__(self) -> None:
        with suppress(OSError):  # proc(5): 5 resets the peak to the current size
            Path("/proc/self/clear_refs").write_text("5")
        self._before = _status().get("VmRSS")

    def bytes(self) -> int | None:
        """Return the peak, None on a system that does not report it."""
        return _status().get("VmHWM")

    def added_bytes(self) -> int | None:
        """Return the peak minus the resident memory at the start."""
        peak = self.bytes()
        return None if peak is None or self._before is None else peak - self._before


def return_freed() -> None:
    """Return free memory to the system, if the C library can."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def _status() -> Mapping[str, int]:
    """Return the sizes that the system reports for this process, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines)
    return {f[0].rstrip(":"): int(f[1]) * 1024 for f in fields if len(f) == 3 and f[2] == "kB"}
