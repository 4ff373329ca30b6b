"""Points within the memory limit of a request, and the error if there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tensoropt.compiler.search.frontier.points import Point, least_process_bytes
from tensoropt.compiler.search.frontier.request import Request
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes

__all__ = ["fitting", "lacking", "nothing_fits"]

_P = TypeVar("_P", bound=Point)


def fitting(points: Sequence[_P], request: Request) -> Sequence[_P]:
    """Return the points within the memory limit; when there is none, say by how much."""
    limit = request.memory_bytes
    if limit is None:
        return points
    fits = [point for point in points if point.process_bytes <= limit]
    if not fits:
        raise nothing_fits(request, limit, least_process_bytes(points))
    return fits


def nothing_fits(
    request: Request, limit_bytes: int, need: int, *, exactly: bool = True
) -> UserError:
    """Return the error for a memory limit below ``need`` bytes: the leanest plan's, or a bound."""
    memory = request.interface.name_of("memory")
    devices, rest = request.devices, request.rest_bytes
    expected = "expected more memory or devices"
    if rest >= limit_bytes:
        expected = f"a process takes {format_bytes(rest)} without any model, expected more memory"
    return UserError(
        f"{memory}: nothing fits {format_bytes(limit_bytes)} on {devices} "
        f"device{'' if devices == 1 else 's'}, {lacking(limit_bytes, need, exactly=exactly)}; "
        f"{expected}"
    )


def lacking(limit_bytes: int, need: int, *, exactly: bool = True) -> str:
    """Return what is missing where the leanest plan needs ``need`` bytes, or at least that."""
    least = "" if exactly else "at least "
    return (
        f"the leanest plan needs {least}{format_bytes(need)} ({need} bytes), "
        f"{format_bytes(need - limit_bytes)} more"
    )
