"""Axes of pictures: units that suit the figures, and where an axis begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "Scale", "begin", "byte_scale", "needs_logarithm", "second_scale"]

COLOURS = ("#0b6bcb", "#d9622b", "#2b8a57", "#8250df", "#c2a20a", "#17a2b8", "#b0307a", "#6b7280")
"""Told apart by people who see few colours too; more meshes than these differ in their markers."""

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
_FROM_ZERO = 0.4  # with zero the figures must keep at least the rest of the axis
_LOGARITHM = 40.0


@dataclass(frozen=True)
class Scale:
    """A unit, and how many seconds or bytes one of it is."""

    one: float
    unit: str

    def of(self, values: Iterable[float]) -> list[float]:
        """Return seconds or bytes in this unit."""
        return [value / self.one for value in values]


def second_scale(times_s: Iterable[float]) -> Scale:
    """Return the unit in which the longest of ``times_s`` is one or more."""
    return _scale(_SECONDS, max(times_s, default=0.0))


def byte_scale(sizes: Iterable[float]) -> Scale:
    """Return the unit in which the largest of ``sizes``, in bytes, is one or more."""
    return _scale(_BYTES, max(sizes, default=0.0))


def _scale(units: Sequence[tuple[float, str]], largest: float) -> Scale:
    return Scale(*next((unit for unit in units if largest >= unit[0]), units[-1]))


def needs_logarithm(values: Sequence[float]) -> bool:
    """Say whether the least of ``values`` would lie on the foot of a linear axis."""
    return bool(values) and min(values) > 0 and max(values) >= _LOGARITHM * min(values)


def begin(axes: Axes, which: str, values: Sequence[float]) -> None:
    """Let axis ``which``, x or y, begin at zero where the figures do not get too close by that."""
    if needs_logarithm(values):
        _logarithmic(axes, which)
    elif values and _reaches_zero(min(values), max(values)):
        getattr(axes, f"set_{which}lim")(0, max(values) * 1.08)
    else:
        getattr(axes, f"set_{which}margin")(0.12)


def _reaches_zero(least: float, most: float) -> bool:
    """Say whether an axis from zero leaves enough of itself to the figures, or to a single one."""
    return most > 0 and (0 <= least <= _FROM_ZERO * most or least == most)


def _logarithmic(axes: Axes, which: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
