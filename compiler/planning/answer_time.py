"""Default time of a search: until the answer is due, and in proportion to the model."""

from __future__ import annotations

import math
import time

from tensoropt.compiler.planning import request
from tensoropt.compiler.search.frontier.clock import LATE, LATE_S

__all__ = ["least_s", "search_time_s"]

LEAST_S = 5.0
"""Least time of a search by default, in wall time and in time of the processor."""
LEAST_NODE_S = 2e-4
"""The same per node."""
AFTER_S = 0.7
"""Time after the search, for the points as programs, the plan in the module and the table."""
AFTER_NODE_S = 1e-4
"""The same per node."""


def least_s(nodes: int) -> float:
    """Return the default least seconds of a search of graphs with ``nodes`` nodes."""
    return max(LEAST_S, LEAST_NODE_S * nodes)


def search_time_s(begun_s: float, nodes: int) -> float:
    """Return the seconds of a search that begins now, for an answer in time.

    ``begun_s`` is the start of the command on ``time.monotonic()``, and ``nodes`` the number of
    nodes of all graphs. The time by which a search may be late is subtracted.
    """
    past_s = time.monotonic() - begun_s
    left_s = request.ANSWER_S - past_s - AFTER_S - AFTER_NODE_S * nodes
    in_time_s = math.floor(10 * (left_s - LATE_S) / (1 + LATE)) / 10
    return max(least_s(nodes), in_time_s)
