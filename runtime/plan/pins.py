"""Text of the pins that a plan was searched with."""

from __future__ import annotations

from collections.abc import Iterator

from tensoropt.runtime.plan.entries import PinsCostEntry, PinsEntry

__all__ = ["pins_cost_text", "pins_lines", "pins_text"]

_NOTHING = 5e-4
"""Smaller fractions are printed as 0.0%."""


def pins_lines(pins: PinsEntry | None) -> Iterator[str]:
    """Yield the pins and their cost; nothing for a plan without pins."""
    if pins is not None:
        yield f"pins: {pins_text(pins)}"
        yield f"pins cost: {pins_cost_text(pins['cost'])}"


def pins_text(pins: PinsEntry) -> str:
    """Return pins as flags of the search."""
    flags = [f"--pin '{text}'" for text in pins["pin"]]
    if pins["annotations"] is not None:
        flags.append(f"--pins {pins['annotations']}")
    return " ".join([*flags, *(f"--forbid '{text}'" for text in pins["forbid"])])


def pins_cost_text(cost: PinsCostEntry | None) -> str:
    """Return the cost of pins relative to the ends of the frontier without them."""
    if cost is None:
        return "not known, nothing was searched without them"
    parts = [
        f"{more:.1%} {what}"
        for more, what in (
            (cost["time"], "time at the fastest point"),
            (cost["memory"], "memory at the leanest"),
        )
        if more >= _NOTHING
    ]
    return ", ".join(parts) or "nothing, the ends of the frontier are as without"
