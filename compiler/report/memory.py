"""Memory as reports show it: what a process takes, and how much of that is no tensor."""

from __future__ import annotations

from collections.abc import Iterable

from tensoropt.compiler.search.frontier.points import Point

__all__ = ["BESIDE", "beside_bytes", "memory_name", "memory_title"]

BESIDE = "beside tensors"
"""What the part of a process that is no tensor is called."""


def beside_bytes(point: Point) -> int:
    """Return what a rank's process takes that is no tensor; 0 where the device does not say."""
    return point.process_bytes - point.memory_bytes


def memory_name(*, whole: bool) -> str:
    """Return what memory is called: that of the whole process, or that of its tensors alone."""
    return "process memory" if whole else "tensor memory"


def memory_title(points: Iterable[Point], unit: str) -> str:
    """Return what an axis of the memory of ``points`` is called."""
    name = memory_name(whole=any(beside_bytes(point) for point in points))
    return f"{name} per device ({unit})"
