"""How long a search takes where nobody says: until there can be an answer in time."""

from __future__ import annotations

import math
import time

from tensoropt.compiler.search.frontier import request
from tensoropt.compiler.search.frontier.clock import LATE, LATE_S

__all__ = ["LEAST_S", "search_time_s"]

LEAST_S = 5.0
"""Least time of a search by default, of the processor too, however long reading the model took."""
AFTER_S = 0.7
"""For what comes after the search, its points as programs, the plan in the module and the table,
and for stages of the engine that look at the clock only when they end."""
AFTER_NODE_S = 1e-4
"""The same per node."""


def search_time_s(begun_s: float, nodes: int) -> float:
    """Return the seconds that a search may take which begins now, for an answer in time.

    The person waits since ``begun_s`` on ``time.monotonic()``; the graphs have so many ``nodes``.
    What of a search may be late is left out.
    """
    left_s = begun_s + request.ANSWER_S - time.monotonic() - AFTER_S - AFTER_NODE_S * nodes
    return max(LEAST_S, math.floor(10 * (left_s - LATE_S) / (1 + LATE)) / 10)
