"""Names that are not taken."""

from __future__ import annotations

__all__ = ["free_name"]


def free_name(wanted: str, taken: set[str]) -> str:
    """Return ``wanted``, with a numeric suffix if that name is taken, and add it to ``taken``."""
    number = 0
    while (name := f"{wanted}_{number}" if number else wanted) in taken:
        number += 1
    taken.add(name)
    return name
