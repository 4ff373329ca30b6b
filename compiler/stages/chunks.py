"""The cuts of a searched training step into chunks."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np

from tensoropt.compiler.stages.chunk_costs import NodeTimes
from tensoropt.compiler.stages.cuts import cut_evenly

__all__ = ["Evenness", "cuts_of"]

Evenness = Literal["chunks", "ends", "ends without W"]
"""The times that a cut makes about equal: of the chunks, or the ends of chunks that each are a
stage. A stage begins after the forward pass of the chunks before, and the backward pass through
these follows after its last task; gradients of weights, if they are tasks, fill that time."""


def cuts_of(times: NodeTimes, count: int, evenness: Evenness = "chunks") -> list[int]:
    """Return the places of the forward pass at which each of ``count`` chunks but the first begins.

    A chunk begins with an operation that reads a parameter first, so each has parameters. There are
    at least ``count`` of these.
    """
    order = times.order
    starts = [*order.starts, len(order.forward)]
    forward_s, all_s = (np.concatenate([[0.0], np.cumsum(own)])[starts] for own in times.place_s)
    lead_s = {"chunks": 0.0 * all_s, "ends": forward_s, "ends without W": all_s}[evenness]
    lead_s = lead_s[:-1] / order.graph.micro_batches
    passing = times.passing_bytes[order.starts].tolist()
    unit_s = [float(end_s - start_s) for start_s, end_s in pairwise(all_s)]
    return [order.starts[unit] for unit in cut_evenly(unit_s, passing, count, lead_s.tolist())]
