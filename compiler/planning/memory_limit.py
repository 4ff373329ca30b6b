"""Points within the memory limit of a request, and the errors for points above it.

The limit is ``memory``, else the capacity of the device. Points above ``memory`` are no answer to
a request; points above the capacity are shown, but neither picked nor compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.search.frontier.points import (
    Point,
    least_process_bytes,
    overfull_of,
    pick_point,
)
from tensoropt.compiler.search.problem.problem import DoesNotFitError
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import BYTES, format_bytes

__all__ = [
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


def points_within(points: Sequence[_P], limit_bytes: int | None) -> Sequence[_P]:
    """Return the points of at most ``limit_bytes``, or all for ``None``."""
    if limit_bytes is None:
        return points
    return [point for point in points if point.process_bytes <= limit_bytes]


def fitting(points: Sequence[_P], request: Request) -> Sequence[_P]:
    """Return the points within the limit; all of them if each is above the capacity.

    Raises UserError if all are above ``memory``, and says by how much.
    """
    within = points_within(points, request.limit_bytes)
    fits = [point for point in within if not point.is_above_capacity]
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
    over = overfull_of(point)
    if over is None:
        return
    if all(own.is_above_capacity for own in points):
        raise _nothing_fits_capacity(request, points)
    name = request.interface.name_of
    raise UserError(
        f"{place}: needs {format_bytes(over.need_bytes)} per device, {over.device} has "
        f"{format_bytes(over.capacity_bytes)}; expected another point, more {name('devices')}, "
        f"or {name('memory')} {_at_least(over.need_bytes)}"
    )


def _nothing_fits_capacity(request: Request, points: Sequence[Point]) -> DoesNotFitError:
    """Return the error for points that all are above the capacity; it names the nearest one."""
    found = (overfull_of(point) for point in points)
    least = min((own for own in found if own), key=lambda own: own.excess_bytes)
    error = nothing_fits(request, least.capacity_bytes, least.need_bytes)
    return DoesNotFitError(f"{error} on {least.device}") if request.groups else error


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


def nothing_fits(request: Request, limit_bytes: int, need: int, bound: str = "") -> DoesNotFitError:
    """Return the error for a memory limit below ``need`` bytes; see :func:`lacking`."""
    devices, rest = request.devices, request.rest_bytes
    expected = remedy(request)
    if rest >= limit_bytes:
        expected = f"a process takes {format_bytes(rest)} without any model, expected more memory"
    return DoesNotFitError(
        f"{limit_name(request)}: nothing fits {format_bytes(limit_bytes)} on {devices} "
        f"device{'' if devices == 1 else 's'}, {lacking(limit_bytes, need, bound)}; "
        f"{expected}"
    )


def lacking(limit_bytes: int, need: int, bound: str = "") -> str:
    """Return the words on the missing memory if the leanest plan needs ``need`` bytes.

    ``bound`` is "at least " or "at most " if it may need others.
    """
    return (
        f"the leanest plan needs {bound}{format_bytes(need)} ({need} bytes), "
        f"{format_bytes(need - limit_bytes)} more"
    )
