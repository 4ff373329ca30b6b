"""The cuts of a searched program into chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from tensoropt.compiler.stages.chunk_costs import NodeTimes
from tensoropt.compiler.stages.cuts import cut_evenly, cut_within
from tensoropt.compiler.stages.devices import StageDevices
from tensoropt.compiler.stages.order import Floats

__all__ = ["Evenness", "cuts_of", "cuts_within", "stream_cuts"]

Evenness = Literal["chunks", "ends", "ends without W"]
"""The times that a cut makes about equal: of the chunks, or the ends of chunks that each are a
stage. A stage begins after the forward pass of the chunks before, and the backward pass through
these follows after its last task; gradients of weights, if they are tasks, fill that time."""


def cuts_of(
    devices: StageDevices, places: Sequence[int], evenness: Evenness = "chunks"
) -> list[int]:
    """Return the places of the forward pass at which each chunk but the first begins.

    ``places`` has the stage of each chunk. Each chunk reads a parameter first, as each stage trains
    one; there are at least as many of these reads as chunks.
    """
    whole = devices.group_times[0]
    rows = [_units_s(times, whole, evenness) for times in devices.group_times]
    unit_s, lead_s = zip(*(rows[devices.groups[stage]] for stage in places), strict=True)
    units = cut_evenly(unit_s, _passing(whole), lead_s, needed=whole.needed)
    return _places(whole, units)


def cuts_within(devices: StageDevices, in_flight: Sequence[int]) -> list[int] | None:
    """Return the cuts of equal time into a chunk per stage that fits its device, if there are any.

    Stages keep the activations of ``in_flight`` micro-batches.
    """
    whole = devices.group_times[0]
    unit_s = [_units_s(times, whole, "chunks")[0] for times in devices.group_times]
    static, kept = (np.add.reduceat(own, whole.beginnings) for own in whole.place_bytes)
    working = whole.step([]).working_bytes
    pairs = zip(in_flight, devices.limits_bytes, strict=True)
    room = [(static + count * kept) / max(most - working, 1) for count, most in pairs]
    times_s = [unit_s[group] for group in devices.groups]
    units = cut_within(times_s, _passing(whole), room, whole.needed)
    return None if units is None else _places(whole, units)


def stream_cuts(devices: StageDevices) -> list[int]:
    """Return the places at which each stage but the first begins, in inference.

    The slowest stage or transfer is about the fastest: all of them work at the same time, on
    different inputs. A stage begins anywhere, and reads a parameter first.
    """
    whole = devices.group_times[0]
    passing: list[int] = whole.passing_bytes[:-1].tolist()
    links = [devices.link(stage, stage + 1) for stage in range(devices.stages - 1)]
    sent = {link: np.array([link.send_s(size) for size in passing]) for link in links}
    sent_s = [*(sent[link] for link in links), np.zeros(len(passing))]
    place_s = [devices.group_times[group].place_s[1] for group in devices.groups]
    return cut_evenly(place_s, passing, sent_s=sent_s, needed=whole.order.first_reads)


def _units_s(times: NodeTimes, whole: NodeTimes, evenness: Evenness) -> tuple[Floats, Floats]:
    """Return the time between the beginnings of ``whole``, and the lead of a chunk at each."""
    starts = [*whole.beginnings, len(times.order.forward)]
    forward_s, all_s = (np.concatenate([[0.0], np.cumsum(own)])[starts] for own in times.place_s)
    lead_s = {"chunks": 0.0 * all_s, "ends": forward_s, "ends without W": all_s}[evenness]
    return np.diff(all_s), lead_s[:-1] / times.order.graph.micro_batches


def _places(whole: NodeTimes, units: Sequence[int]) -> list[int]:
    """Return the places of some beginnings of chunks."""
    found: list[int] = whole.beginnings[list(units)].tolist()
    return found


def _passing(whole: NodeTimes) -> list[int]:
    """Return the bytes that pass each beginning of a chunk."""
    passing: list[int] = whole.passing_bytes[whole.beginnings].tolist()
    return passing
