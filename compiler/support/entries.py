"""Entries of dictionaries that threads share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["replace_entries"]

K = TypeVar("K")
V = TypeVar("V")


def replace_entries(shared: dict[K, V], entries: Mapping[K, V]) -> None:
    """Give ``shared`` these ``entries`` only; readers always see the entries that both have."""
    shared.update(entries)
    for stale in shared.keys() - entries.keys():
        del shared[stale]
