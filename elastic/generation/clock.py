"""The clock that does not jump, which each machine has of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["reading", "seconds_ahead"]


def reading() -> dict[str, Any]:
    """Return what this machine's clock says, and which one it is, for `seconds_ahead`."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return {"boot": boot, "now": time.monotonic()}


def seconds_ahead(theirs: Mapping[str, Any]) -> float:
    """Return by how much this clock is ahead of one that was read just now, 0 of the same."""
    own = reading()
    return 0.0 if own["boot"] == theirs["boot"] else float(own["now"] - theirs["now"])
