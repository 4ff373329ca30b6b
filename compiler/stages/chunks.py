"""The cuts of a searched program into chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.compiler.stages.chunk_costs import NodeTimes
from tensoropt.compiler.stages.cuts import cut_evenly, cut_within
from tensoropt.compiler.stages.devices import StageDevices
from tensoropt.compiler.stages.families import BY_STAGES, Evenness
from tensoropt.compiler.stages.order import Floats, Ints

__all__ = ["cuts_of", "cuts_within", "stream_cuts"]


def cuts_of(
    devices: StageDevices,
    places: Sequence[int],
    evenness: Evenness = "chunks",
    begins: Sequence[int] = (),
) -> list[int]:
    """Return the places of the forward pass at which each chunk but the first begins.

    ``places`` has the stage of each chunk. Each chunk reads a parameter first, as each stage trains
    one. There are no fewer such reads than chunks. The places ``begins`` are among the cuts.
    """
    begin = _Beginnings.cheap(devices.group_times[0], begins)
    rows = [begin.units_s(times, evenness) for times in devices.group_times]
    unit_s, lead_s = zip(*(rows[devices.groups[stage]] for stage in places), strict=True)
    given = np.searchsorted(begin.places, begins).tolist()
    units = cut_evenly(unit_s, begin.passing_bytes, lead_s, needed=begin.needed, given=given)
    if evenness in BY_STAGES:
        units = _even_stages(devices, places, begin, units)
    return begin.places_of(units)


def _even_stages(
    devices: StageDevices, places: Sequence[int], begin: _Beginnings, units: Sequence[int]
) -> list[int]:
    """Return the cuts ``units`` with the second chunks changed, so that stages end together.

    A stage takes the forward time before its first chunk, and then the time of its chunks.
    """
    stages, ends = len(places) // 2, [0, *units]
    first = ends[stages]
    by_group = [begin.units_s(times, "ends") for times in devices.group_times]
    rows, leads = [], []
    for stage in places[stages:]:
        unit_s, lead_s = by_group[devices.groups[stage]]
        lead = unit_s[ends[stage] : ends[stage + 1]].sum() + lead_s[ends[stage]]
        rows.append(unit_s[first:])
        leads.append(np.full(len(unit_s) - first, lead))
    needed = [unit - first for unit in begin.needed if unit >= first]
    second = cut_evenly(rows, begin.passing_bytes[first:], leads, needed=needed)
    return [*units[:stages], *(first + unit for unit in second)]


def cuts_within(
    devices: StageDevices, in_flight: Sequence[int], before: Sequence[int]
) -> list[int] | None:
    """Return the cuts of equal time into a chunk per stage that fits its device, if there are any.

    Stages keep the activations of ``in_flight`` micro-batches. They have the temporary tensors of
    the stages that the cuts ``before`` make.
    """
    whole = devices.group_times[0]
    begin = _Beginnings.cheap(whole)
    unit_s = [begin.units_s(times, "chunks")[0] for times in devices.group_times]
    static, kept = (np.add.reduceat(own, begin.places) for own in whole.place_bytes)
    rows = zip(in_flight, devices.limits_bytes, whole.step(before), strict=True)
    room = [(static + n * kept) / max(most - own.working_bytes, 1) for n, most, own in rows]
    times_s = [unit_s[group] for group in devices.groups]
    units = cut_within(times_s, begin.passing_bytes, room, begin.needed)
    return None if units is None else begin.places_of(units)


def stream_cuts(devices: StageDevices) -> list[int]:
    """Return the places at which each stage but the first begins, in inference.

    The slowest stage or transfer is about the fastest: all of them work at the same time, on
    different inputs. Each stage reads a parameter first.
    """
    whole = devices.group_times[0]
    begin = _Beginnings(whole, np.array(whole.order.beginnings))
    rows = [begin.units_s(times, "chunks")[0] for times in devices.group_times]
    links = [devices.link(stage, stage + 1) for stage in range(devices.stages - 1)]
    passing = begin.passing_bytes
    sent = {link: np.array([link.send_s(size) for size in passing]) for link in {*links}}
    sent_s = [*(sent[link] for link in links), np.zeros(len(passing))]
    unit_s = [rows[group] for group in devices.groups]
    units = cut_evenly(unit_s, passing, sent_s=sent_s, needed=begin.needed)
    return begin.places_of(units)


@dataclass(frozen=True, eq=False)
class _Beginnings:
    """The ``places`` at which chunks may begin; the operations between two are a unit."""

    whole: NodeTimes
    places: Ints

    @classmethod
    def cheap(cls, whole: NodeTimes, given: Sequence[int] = ()) -> _Beginnings:
        """Return the beginnings where no more bytes pass than at some first read of a parameter.

        The places ``given`` are among them. Cuts where more pass are more even, but pipelines with
        these were slower as often as faster.
        """
        passing, places = whole.passing_bytes, np.array(whole.order.beginnings)
        most = passing[list(whole.order.first_reads)].max(initial=0)
        is_given = np.isin(places, [0, *given])
        return cls(whole, places[(passing[places] <= most) | is_given])

    @property
    def needed(self) -> list[int]:
        """The units that begin with a first read of a parameter."""
        found: list[int] = np.searchsorted(self.places, self.whole.order.first_reads).tolist()
        return found

    @property
    def passing_bytes(self) -> list[int]:
        """The bytes that pass each beginning."""
        found: list[int] = self.whole.passing_bytes[self.places].tolist()
        return found

    def units_s(self, times: NodeTimes, evenness: Evenness) -> tuple[Floats, Floats]:
        """Return the time of each unit, and the lead of a chunk that begins with it."""
        ends = [*self.places, len(times.order.forward)]
        forward_s, all_s = (np.concatenate([[0.0], np.cumsum(own)])[ends] for own in times.place_s)
        lead_s = forward_s if evenness.startswith("ends") else 0.0 * all_s
        return np.diff(all_s), lead_s[:-1] / times.order.graph.micro_batches

    def places_of(self, units: Sequence[int]) -> list[int]:
        """Return the places at which some units begin."""
        found: list[int] = self.places[list(units)].tolist()
        return found
