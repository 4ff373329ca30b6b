"""Memory in reports: the memory of a process, and its part outside tensors."""

from __future__ import annotations

from collections.abc import Iterable

from tensoropt.compiler.search.frontier.points import Point

__all__ = ["BESIDE", "beside_bytes", "memory_name", "memory_title"]

BESIDE = "beside tensors"
"""The name of a process's memory other than tensors."""


def beside_bytes(point: Point) -> int:
    """Return the memory of a rank's process other than tensors.

    0 if the device description does not predict it.
    """
    return point.process_bytes - point.memory_bytes


def memory_name(*, whole: bool) -> str:
    """Return the name of the memory of a ``whole`` process, or of its tensors alone."""
    return "process memory" if whole else "tensor memory"


def memory_title(points: Iterable[Point], unit: str) -> str:
    """Return the title of an axis with the memory of ``points``."""
    name = memory_name(whole=any(beside_bytes(point) for point in points))
    return f"{name} per device ({unit})"
