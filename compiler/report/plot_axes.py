"""Axes of plots: units and limits that suit the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensoropt.compiler.support.units import BYTES, SECONDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "Scale", "begin", "byte_scale", "needs_logarithm", "second_scale"]

COLOURS = ("#0b6bcb", "#d9622b", "#2b8a57", "#8250df", "#c2a20a", "#17a2b8", "#b0307a", "#6b7280")
"""Distinguishable with colour blindness; further meshes reuse colours with other markers."""

_FROM_ZERO = 0.4  # largest least/most for an axis from zero, which leaves the rest to the figures
_LOGARITHM = 40.0  # least most/least for a logarithmic axis


@dataclass(frozen=True)
class Scale:
    """A unit, and its size in seconds or bytes."""

    one: float
    unit: str

    def convert(self, values: Iterable[float]) -> list[float]:
        """Return seconds or bytes in this unit."""
        return [value / self.one for value in values]


def second_scale(times_s: Iterable[float]) -> Scale:
    """Return the largest unit in which the longest of ``times_s`` is at least 1."""
    return _scale(SECONDS, max(times_s, default=0.0))


def byte_scale(sizes: Iterable[float]) -> Scale:
    """Return the largest unit in which the largest of ``sizes``, in bytes, is at least 1."""
    return _scale(BYTES, max(sizes, default=0.0))


def _scale(units: Sequence[tuple[float, str]], largest: float) -> Scale:
    return Scale(*next((unit for unit in units if largest >= unit[0]), units[-1]))


def needs_logarithm(values: Sequence[float]) -> bool:
    """Return whether the least of ``values`` would be next to zero on a linear axis."""
    return bool(values) and min(values) > 0 and max(values) >= _LOGARITHM * min(values)


def begin(axes: Axes, which: str, values: Sequence[float]) -> None:
    """Start axis ``which``, x or y, at zero unless that would crowd the figures."""
    if needs_logarithm(values):
        _logarithmic(axes, which)
    elif values and _reaches_zero(min(values), max(values)):
        getattr(axes, f"set_{which}lim")(0, max(values) * 1.08)
    else:
        getattr(axes, f"set_{which}margin")(0.12)


def _reaches_zero(least: float, most: float) -> bool:
    """Return whether an axis from zero leaves enough room to the figures, or has one figure."""
    return most > 0 and (0 <= least <= _FROM_ZERO * most or least == most)


def _logarithmic(axes: Axes, which: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
