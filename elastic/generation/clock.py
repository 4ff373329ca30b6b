"""The monotonic clocks of machines, and the offset between two of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["read_clock", "seconds_ahead"]


def read_clock() -> dict[str, Any]:
    """Return this machine's monotonic time and its boot id, for `seconds_ahead`."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {"boot": boot, "now": time.monotonic()}


def seconds_ahead(theirs: Mapping[str, Any]) -> float:
    """Return the lead of this clock over one that was just read; 0 for the same boot id."""
    own = read_clock()
    return 0.0 if own["boot"] == theirs["boot"] else float(own["now"] - theirs["now"])
