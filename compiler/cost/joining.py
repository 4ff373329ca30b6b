"""Cost of fused collectives: one latency for all, and packing for each."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.cost.communication import collective_curve, copy_line, packed_bytes_per_byte
from tensoropt.compiler.cost.device import Device
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["CollectiveTime", "joined_time_s", "joining_time"]

CollectiveTime = tuple[list[tuple[float, float]], bool, float, float]
"""Time of a fusible collective, ``CollectiveTime`` of ``walk/joins.hpp``.

The lines in the bytes that one rank sends (seconds, seconds per byte); whether the maximum or the
minimum of the lines applies; seconds per root of a byte; and seconds to pack a byte.
"""


def joining_time(kind: str, axes: Sequence[int], mesh: Mesh, device: Device) -> CollectiveTime:
    """Return the time of a collective that can be fused with others."""
    curve = collective_curve(kind, axes, mesh, device)
    packing = packed_bytes_per_byte(kind, mesh.extent(tuple(axes)))
    lines = [(line.fixed_s, line.s_per_byte) for line in curve.lines]
    return lines, curve.greatest, curve.s_per_root_byte, copy_line(packing, device).s_per_byte


def joined_time_s(
    kind: str, axes: Sequence[int], local_bytes: float, mesh: Mesh, device: Device
) -> float:
    """Return the time of fused collectives with ``local_bytes`` of input in total."""
    *_, packing = joining_time(kind, axes, mesh, device)
    return collective_curve(kind, axes, mesh, device).time_s(local_bytes) + packing * local_bytes
