"""The collectives that move a tensor from one layout to another."""

from __future__ import annotations

from typing import Literal

__all__ = ["Collective"]

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
