"""The cuts of a searched program into chunks."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np

from tensoropt.compiler.cost.device import Link
from tensoropt.compiler.stages.chunk_costs import NodeTimes
from tensoropt.compiler.stages.cuts import cut_evenly
from tensoropt.compiler.stages.order import Floats

__all__ = ["Evenness", "cuts_of", "stream_cuts"]

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
    forward_s, all_s = _until_s(times)
    lead_s = {"chunks": 0.0 * all_s, "ends": forward_s, "ends without W": all_s}[evenness]
    lead_s = lead_s[:-1] / order.graph.micro_batches
    units = cut_evenly(*_units(times, all_s), count, lead_s.tolist())
    return [order.starts[unit] for unit in units]


def stream_cuts(times: NodeTimes, stages: int, link: Link) -> list[int]:
    """Return the places at which each of ``stages`` but the first begins, in inference.

    The slowest stage or transfer is about the fastest: all of them work at the same time, on
    different inputs. There are at least ``stages`` beginnings.
    """
    order, (_, all_s) = times.order, _until_s(times)
    unit_s, passing = _units(times, all_s)
    sent_s = [link.send_s(size) for size in passing]
    return [order.starts[unit] for unit in cut_evenly(unit_s, passing, stages, sent_s=sent_s)]


def _until_s(times: NodeTimes) -> tuple[Floats, Floats]:
    """Return the time until each place at which a chunk may begin, and the end: forward, in all."""
    starts = [*times.order.starts, len(times.order.forward)]
    forward_s, all_s = (np.concatenate([[0.0], np.cumsum(own)])[starts] for own in times.place_s)
    return forward_s, all_s


def _units(times: NodeTimes, until_s: Floats) -> tuple[list[float], list[int]]:
    """Return the time between beginnings of chunks, and the bytes that pass each of them."""
    passing: list[int] = times.passing_bytes[times.order.starts].tolist()
    return [float(end_s - start_s) for start_s, end_s in pairwise(until_s)], passing
