"""Cost of communication: alpha-beta times of collectives.

A message of ``n`` bytes takes ``alpha + n * beta``: the latency of a link and the inverse of its
bandwidth. Each kind of collective uses the faster of its known algorithms (`CollectiveTraits`), so
its time is the minimum of a few lines in ``n``, the bytes of one rank's *input* (Thakur,
Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005; NCCL's
trees and rings reach the same bounds). The time to combine elements is hidden by memory and not
counted.

Synchronised ranks drift apart while they compute, and each then waits for the slowest. As in a
random walk, the wait grows with the square root of the time since the last synchronisation. A
collective does not know that time, but it is roughly proportional to the tensor. The wait is
therefore ``gamma sqrt(N)`` (:class:`Waiting`), with ``N`` the bytes of the whole tensor in a group
of ``p`` ranks: ``n``, or ``p n`` if each rank has a piece.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tensoropt.compiler.cost.device import Device, Link
from tensoropt.compiler.cost.measurements import KINDS, MeasuredCurve
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.collectives import COLLECTIVES

__all__ = [
    "Curve",
    "Line",
    "collective_curve",
    "collective_time_s",
    "copy_line",
    "is_measured",
    "packed_bytes_per_byte",
]


class Line(NamedTuple):
    """A time linear in bytes: ``fixed_s + s_per_byte * bytes``."""

    fixed_s: float
    s_per_byte: float

    def time_s(self, local_bytes: float) -> float:
        """Return the time in seconds for ``local_bytes``."""
        return self.fixed_s + self.s_per_byte * local_bytes


class Curve(NamedTuple):
    """The minimum of lines in bytes, one per algorithm, or the maximum, if measured.

    A term in the square root of the bytes, such as waiting, is added.
    """

    lines: tuple[Line, ...]
    greatest: bool = False
    s_per_root_byte: float = 0.0

    def time_s(self, local_bytes: float) -> float:
        """Return the time in seconds for ``local_bytes``."""
        times = [line.time_s(local_bytes) for line in self.lines]
        own_s = max(times) if self.greatest else min(times)
        return own_s + self.s_per_root_byte * math.sqrt(local_bytes)


def collective_time_s(
    kind: str, local_bytes: float, axes: Sequence[int], mesh: Mesh, device: Device
) -> float:
    """Return the time of one collective over the ranks along ``axes``; 0 for a group of one.

    ``local_bytes`` is the input of one rank: its piece for an all-gather, its whole partial result
    for a reduce-scatter. Over several axes, the slowest link carries all the data.
    """
    return collective_curve(kind, axes, mesh, device).time_s(local_bytes)


def collective_curve(kind: str, axes: Sequence[int], mesh: Mesh, device: Device) -> Curve:
    """Return the time of one collective as a function of local input bytes.

    Measurements for this number of ranks, or the next larger one, apply if all ranks share a node;
    the fixed wait of a collective is then added. The wait that grows with the size of the tensor is
    always added.
    """
    p = mesh.extent(tuple(axes))
    if p == 1:
        return Curve((Line(0.0, 0.0),))
    links = device.axis_links(mesh)
    waits = device.waits(p)
    drift = waits.s_per_root_byte * math.sqrt(_whole(kind, p))
    inside = all(links[axis] is device.intra_node for axis in axes)
    measured = _measured(kind, p, device) if inside else None
    if measured is not None:
        lines = tuple(Line(a + waits.collective_s, b) for a, b in measured.lines)
        return Curve(lines, greatest=True, s_per_root_byte=measured.s_per_root_byte + drift)
    link, launch_s = _slowest(links, axes), device.launch_overhead_s
    return Curve(
        tuple(
            Line(launch_s + messages * link.latency_s, volume / link.bandwidth_bytes_per_s)
            for messages, volume in COLLECTIVES[kind].algorithms(p)
        ),
        s_per_root_byte=drift,
    )


def _whole(kind: str, p: int) -> int:
    """Return the bytes of the tensor that the ranks have together, per byte of input."""
    return 1 if COLLECTIVES[kind].reduces else p


def is_measured(kind: str, axes: Sequence[int], mesh: Mesh, device: Device) -> bool:
    """Return whether the time of a collective comes from measurements."""
    return collective_curve(kind, axes, mesh, device).greatest


def _measured(kind: str, p: int, device: Device) -> MeasuredCurve | None:
    """Return the curve measured for ``p`` ranks, or for the next larger number.

    An unmeasured kind takes the time of a similar kind, or of an all-gather that sends the same
    number of bytes.
    """
    known = COLLECTIVES[kind].timed_as or kind
    if known in KINDS:
        return _next_larger(known, p, device)
    (_, sent), *_ = COLLECTIVES[kind].algorithms(p)
    gather, times = _next_larger("all_gather", p, device), (p - 1) / sent
    return gather and replace(
        gather,
        lines=tuple((fixed_s, s_per_byte / times) for fixed_s, s_per_byte in gather.lines),
        s_per_root_byte=gather.s_per_root_byte / math.sqrt(times),
    )


def _next_larger(kind: str, p: int, device: Device) -> MeasuredCurve | None:
    known = [ranks for own, ranks in device.collectives if own == kind and ranks >= p]
    return device.collectives[kind, min(known)] if known else None


def packed_bytes_per_byte(kind: str, p: int) -> float:
    """Return the bytes read and written per input byte to pack it and unpack its result.

    The collective runs over ``p`` ranks, and joins or splits their pieces.
    """
    return 2.0 * (1.0 + COLLECTIVES[kind].result_scale(p))


def copy_line(bytes_moved_per_byte: float, device: Device) -> Line:
    """Return the line of a local copy that moves ``bytes_moved_per_byte`` bytes per input byte."""
    return Line(
        device.launch_overhead_s, bytes_moved_per_byte / device.memory_bandwidth_bytes_per_s
    )


def _slowest(links: Sequence[Link], axes: Sequence[int]) -> Link:
    used = [links[axis] for axis in axes]
    return Link(
        max(link.latency_s for link in used), min(link.bandwidth_bytes_per_s for link in used)
    )
