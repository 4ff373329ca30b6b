"""Points within the memory limit of a request, and the errors for points above it.

The limit is ``memory``, else the capacity of the device. Points above ``memory`` are no answer to
a request; points above the capacity are shown, but neither picked nor compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.search.frontier.points import Point, least_process_bytes, pick_point
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import BYTES, format_bytes

__all__ = [
    "DoesNotFitError",
    "check_capacity",
    "fitting",
    "lacking",
    "limit_name",
    "nothing_fits",
    "passed_over",
    "pick",
    "points_within",
    "remedy",
]

_P = TypeVar("_P", bound=Point)


class DoesNotFitError(UserError):
    """No plan fits the memory limit: of ``memory``, or of the device."""

    __module__ = "tensoropt"


def points_within(points: Sequence[_P], limit_bytes: int | None) -> Sequence[_P]:
    """Return the points of at most ``limit_bytes``, or all for ``None``."""
    if limit_bytes is None:
        return points
    return [point for point in points if point.process_bytes <= limit_bytes]


def fitting(points: Sequence[_P], request: Request) -> Sequence[_P]:
    """Return the points within the limit; all of them if each is above the capacity.

    Raises UserError if all are above ``memory``, and says by how much.
    """
    fits = points_within(points, request.limit_bytes)
    if not fits and request.memory_bytes is not None:
        raise nothing_fits(request, request.memory_bytes, least_process_bytes(points))
    return fits or points


def pick(points: Sequence[_P], request: Request, which: str) -> _P:
    """Return the point that ``which`` names among those that fit.

    Raises UserError for the index of a point above the capacity.
    """
    for point in points:
        if which == str(point.index):
            check_capacity(f"--pick {which}", point, points, request)
    return pick_point(fitting(points, request), which)


def passed_over(points: Sequence[_P], chosen: _P, which: str) -> _P | None:
    """Return the point that ``which`` would name without a capacity, if it is not ``chosen``."""
    if which.isdecimal() or chosen.is_above_capacity:
        return None
    first = pick_point(points, which)
    return first if first.is_above_capacity else None


def check_capacity(place: str, point: Point, points: Sequence[Point], request: Request) -> None:
    """Raise UserError for a plan of ``point``, one of ``points``, that is above the capacity."""
    capacity = request.limit_bytes
    if not point.is_above_capacity or capacity is None:
        return
    if not points_within(points, capacity):
        raise nothing_fits(request, capacity, least_process_bytes(points))
    name, need = request.interface.name_of, point.process_bytes
    raise UserError(
        f"{place}: needs {format_bytes(need)} per device, {request.description.name} has "
        f"{format_bytes(capacity)}; expected another point, more {name('devices')}, "
        f"or {name('memory')} {_at_least(need)}"
    )


def _at_least(size_bytes: int) -> str:
    """Return a round size of at least ``size_bytes``, in the notation of options."""
    factor, unit = next(pair for pair in BYTES if size_bytes >= pair[0] or pair[0] == 1)
    return f"{math.ceil(size_bytes / factor)}{unit}"


def limit_name(request: Request) -> str:
    """Return the option that sets the limit: ``memory``, else the device with its capacity."""
    if request.memory is not None:
        return request.interface.name_of("memory")
    return f"{request.interface.name_of('device')} {request.description.name}"


def remedy(request: Request) -> str:
    """Return the words on how to make plans fit the limit."""
    if request.memory is not None:
        return "expected more memory or devices"
    return f"expected more devices, or {request.interface.name_of('memory')} with another limit"


def nothing_fits(
    request: Request, limit_bytes: int, need: int, *, exactly: bool = True
) -> DoesNotFitError:
    """Return the error for a memory limit below ``need`` bytes: the leanest plan's, or a bound."""
    devices, rest = request.devices, request.rest_bytes
    expected = remedy(request)
    if rest >= limit_bytes:
        expected = f"a process takes {format_bytes(rest)} without any model, expected more memory"
    return DoesNotFitError(
        f"{limit_name(request)}: nothing fits {format_bytes(limit_bytes)} on {devices} "
        f"device{'' if devices == 1 else 's'}, {lacking(limit_bytes, need, exactly=exactly)}; "
        f"{expected}"
    )


def lacking(limit_bytes: int, need: int, *, exactly: bool = True) -> str:
    """Return the words on the missing memory if the leanest plan needs ``need`` bytes, or more."""
    least = "" if exactly else "at least "
    return (
        f"the leanest plan needs {least}{format_bytes(need)} ({need} bytes), "
        f"{format_bytes(need - limit_bytes)} more"
    )
