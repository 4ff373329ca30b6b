"""What collectives cost that are sent as one: one latency for all, and packing for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tensoropt.compiler.cost.communication import collective_curve, copy_line, packed_bytes_per_byte
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.collective import Collective
from tensoropt.compiler.layout.mesh import Mesh

__all__ = ["JOINED", "CollectiveTime", "joined_time_s", "joining_time"]

JOINED = ("all_reduce", "all_gather", "reduce_scatter")
"""The kinds of which several can be sent as one."""

CollectiveTime = tuple[list[tuple[float, float]], bool, float, float]
"""Lines in the bytes that one rank puts in (seconds, seconds per byte), whether the greatest counts
or the least, seconds per root of a byte, and seconds of packing a byte: ``CollectiveTime`` of
``engine/joins.hpp``."""


def joining_time(
    kind: Collective, axes: Sequence[int], mesh: Mesh, device: Device
) -> CollectiveTime:
    """Return the time of a collective that others may be sent with."""
    curve = collective_curve(kind, axes, mesh, device)
    packing = packed_bytes_per_byte(kind, mesh.extent(tuple(axes)))
    lines = [(line.fixed_s, line.s_per_byte) for line in curve.lines]
    return lines, curve.greatest, curve.s_per_root_byte, copy_line(packing, device).s_per_byte


def joined_time_s(
    kind: str, axes: Sequence[int], local_bytes: float, mesh: Mesh, device: Device
) -> float:
    """Return the time of collectives that put in ``local_bytes`` together."""
    own = cast("Collective", kind)
    *_, packing = joining_time(own, axes, mesh, device)
    return collective_curve(own, axes, mesh, device).at(local_bytes) + packing * local_bytes
