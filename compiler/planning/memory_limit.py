"""Points within the memory limit of a request, and the errors for points above it.

The limit is ``memory``, else the capacity of the device. Points above ``memory`` are no answer to
a request; points above the capacity are shown last, but neither named, picked nor compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from tensoropt.compiler.planning.request import MAX_DEVICES, Request
from tensoropt.compiler.search.frontier.points import (
    Point,
    leanest,
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
    """Return the points within the limit.

    Raises DoesNotFitError if all are above it, and says by how much.
    """
    within = points_within(points, request.limit_bytes)
    fits = [point for point in within if not point.is_above_capacity]
    if not fits and request.memory_bytes is not None:
        lean = leanest(points)
        raise nothing_fits(request, request.memory_bytes, lean.process_bytes, lean=lean)
    if not fits and any(own.is_above_capacity for own in points):
        raise _nothing_fits_capacity(request, points)
    return fits or points


def pick(points: Sequence[_P], request: Request, which: str) -> _P:
    """Return the point that ``which`` names among those that fit.

    Raises UserError for the index of a point above the capacity, and if no point fits.
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
    found = ((overfull_of(point), point) for point in points)
    pairs = [(over, point) for over, point in found if over is not None]
    least, point = min(pairs, key=lambda pair: pair[0].excess_bytes)
    error = nothing_fits(request, least.capacity_bytes, least.need_bytes, lean=point)
    if request.groups:
        error.args = (f"{error} on {least.device}",)
    return error


def _at_least(size_bytes: int) -> str:
    """Return a round size of at least ``size_bytes``, in the notation of options."""
    factor, unit = next(pair for pair in BYTES if size_bytes >= pair[0] or pair[0] == 1)
    return f"{math.ceil(size_bytes / factor)}{unit}"


def limit_name(request: Request) -> str:
    """Return the option that sets the limit: ``memory``, else the device with its capacity."""
    if request.memory is not None:
        return request.interface.name_of("memory")
    return f"{request.interface.name_of('device')} {request.description.name}"


def remedy(request: Request, more: str = "more devices") -> str:
    """Return the words on how to make plans fit the limit: with ``more`` devices or memory."""
    limit = "more memory"
    if request.memory is None:
        limit = f"{request.interface.name_of('memory')} with another limit"
    return f"expected {more} or {limit}"


def _more_devices(request: Request, limit_bytes: int, lean: Point) -> str:
    """Return the words on more devices, with the number on which the tensors would fit.

    That takes for granted that all tensors can be split further.
    """
    name, beside = request.interface.name_of("devices"), lean.process_bytes - lean.memory_bytes
    count = request.devices
    while lean.memory_bytes * request.devices / count > limit_bytes - beside:
        count *= 2
        if count > MAX_DEVICES:
            return f"more {name}"
    return f"more {name} (at least {count})"


def nothing_fits(
    request: Request, limit_bytes: int, need: int, bound: str = "", *, lean: Point | None = None
) -> DoesNotFitError:
    """Return the error for a memory limit below ``need`` bytes; see :func:`lacking`.

    ``lean`` is the leanest point, if there is one.
    """
    devices, rest = request.devices, request.rest_bytes
    expected = remedy(request)
    if lean is not None and not request.groups:
        expected = remedy(request, _more_devices(request, limit_bytes, lean))
    if rest >= limit_bytes:
        expected = f"a process takes {format_bytes(rest)} without any model, expected more memory"
    error = DoesNotFitError(
        f"{limit_name(request)}: nothing fits {format_bytes(limit_bytes)} on {devices} "
        f"device{'' if devices == 1 else 's'}, {lacking(limit_bytes, need, bound)}; "
        f"{expected}"
    )
    error.lacks_bytes = need - limit_bytes
    return error


def lacking(limit_bytes: int, need: int, bound: str = "") -> str:
    """Return the words on the missing memory if the leanest plan needs ``need`` bytes.

    ``bound`` is "at least " or "at most " if it may need others.
    """
    return (
        f"the leanest plan needs {bound}{format_bytes(need)} ({need} bytes), "
        f"{format_bytes(need - limit_bytes)} more"
    )
