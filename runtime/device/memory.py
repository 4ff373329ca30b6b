"""How much memory a process takes, as the system counts it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

__all__ = ["PeakMemory", "return_freed"]


class PeakMemory:
    """The most resident memory that this process has had since this was made, in bytes."""

    def __init__(self) -> None:
        with suppress(OSError):  # proc(5): 5 sets the peak to what is resident now
            Path("/proc/self/clear_refs").write_text("5")
        self._before = _status().get("VmRSS")

    def bytes(self) -> int | None:
        """Return it, None on a system that does not say."""
        return _status().get("VmHWM")

    def added_bytes(self) -> int | None:
        """Return how much more that is than was resident when this was made."""
        peak = self.bytes()
        return None if peak is None or self._before is None else peak - self._before


def return_freed() -> None:
    """Give memory that is free back to the system, where the C library has a way to."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def _status() -> Mapping[str, int]:
    """Return the sizes that the system gives for this process, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines)
    return {f[0].rstrip(":"): int(f[1]) * 1024 for f in fields if len(f) == 3 and f[2] == "kB"}
