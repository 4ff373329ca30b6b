"""A device description with measured tables: a base from data sheets, kernels and collectives."""

from __future__ import annotations

import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.compiler.calibrate.description import collective_lines, figure_lines, number_text
from tensoropt.compiler.calibrate.fit import (
    FittedCollective,
    fit_collectives,
    relative_errors,
    times_of,
)
from tensoropt.compiler.calibrate.samples import fastest
from tensoropt.compiler.calibrate.tables.grid import factors_of, fit_grid
from tensoropt.compiler.calibrate.tables.rows import Floats, KernelRows, Tables
from tensoropt.compiler.cost.device import Device, description_text, load_device
from tensoropt.compiler.cost.expected_error import FigureError
from tensoropt.compiler.cost.kernel import FAMILIES, PARTS
from tensoropt.compiler.cost.size_table import SizeTable
from tensoropt.compiler.support.errors import UserError

__all__ = [
    "MARK",
    "FittedTables",
    "collective_misses",
    "describe_tables",
    "fit_tables",
    "kernel_lines",
    "kernel_misses",
]

MARK = "# Fitted to measurements by tensoropt-profile --from-tables."
"""First line of the fitted part of a description; the rest is written by hand."""

_COLUMNS = (32, 256, 1024, 4096, 16384, 65536)
_PAIRS = (1, 4, 16, 64, 256, 1024, 8192)
_HEAD_SIZES = (64, 128, 256)
_KNOTS: dict[str, tuple[tuple[float, ...], ...]] = {
    "products": ((1, 2, 8, 16, 64, 128, 256, 512, 1024, 4096, 32768), _COLUMNS, _COLUMNS),
    "prefill": (
        (1, 8, 64, 512, 4096),
        (1, 8, 32, 48, 128),
        (1, 16, 64, 256, 1024, 8192),
        _HEAD_SIZES,
    ),
    # Kernels change at 32 heads per key head.
    "decoding": (
        _PAIRS,
        (1, 2, 4, 8, 16, 32, 48, 128),
        (1, 16, 64, 256, 1024, 4096, 16384, 131072),
        _HEAD_SIZES,
    ),
    "experts": (
        (0.01, 0.25, 1, 4, 16, 64, 256, 2048),
        (1024, 4096, 8192),
        (64, 512, 4096, 16384),
        (1, 8, 32, 256),
    ),
}
"""Sizes of the grid of each family."""
_FEWEST = 2000  # rows for the whole grid; fewer have the ends and the middle of each axis
_LEFT_OUT = 4  # every fourth row is left out of a fit, to measure its error


@dataclass(frozen=True)
class FittedTables:
    """Tables of kernels by family and type, curves of collectives, errors of rows left out."""

    source: str
    kernels: Mapping[tuple[str, str], SizeTable]
    collectives: Sequence[FittedCollective]
    errors: Mapping[str, FigureError]

    def toml(self) -> str:
        """Return the fitted part of a description."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield MARK
        yield f"# Source: {self.source}."
        for part, figure in self.errors.items():
            yield f"\n[expected_error.parts.{part}] # |predicted / measured - 1| of rows left out"
            yield from figure_lines(figure)
        for (family, dtype), table in self.kernels.items():
            yield from kernel_lines(family, dtype, table)
        yield from collective_lines(self.collectives)


def kernel_lines(family: str, dtype: str, table: SizeTable) -> Iterator[str]:
    """Yield the lines of a table of kernels."""
    yield f"\n[kernel.{family}.{dtype}] # time over the roofline, the last size fastest"
    for axis, knots in zip(FAMILIES[family], table.knots, strict=True):
        yield f"{axis} = [{', '.join(f'{knot:g}' for knot in knots)}]"
    yield "factors = ["
    text = ", ".join(number_text(factor) for factor in table.factors)
    yield from textwrap.wrap(f"{text},", 100, initial_indent="  ", subsequent_indent="  ")
    yield "]"


def describe_tables(tables: Tables, base: str, name: str | None) -> tuple[FittedTables, str]:
    """Return the fit of tables to a base, a name or a file, and the text of the description.

    The text is the base's own up to its fitted part, under ``name`` if one is given. Raises
    :class:`UserError` if the base has measurements of another kind.
    """
    device, text = load_device(base), description_text(base)
    if device.machine is not None:
        raise UserError(
            f"--base {base}: expected a description from data sheets or tables, got: one that was "
            f"measured on {device.machine}"
        )
    head = text.partition(MARK)[0].rstrip()
    if name is not None:
        head = re.sub(r"(?m)^name *=.*$", lambda _: f"name = {json.dumps(name)}", head, count=1)
    fitted = fit_tables(tables, device)
    return fitted, f"{head}\n\n{fitted.toml()}"


def fit_tables(tables: Tables, base: Device) -> FittedTables:
    """Return the fit of tables to the peaks, the bandwidth and the launches of a base."""
    fitted = {key: _fit(rows, key, base) for key, rows in tables.kernels.items()}
    misses: dict[str, list[Floats]] = defaultdict(list)
    for (family, _), own in kernel_misses(tables, base).items():
        misses[PARTS[family]].append(own)
    misses["collectives"].append(collective_misses(tables))
    errors = {part: _figure(np.concatenate(own)) for part, own in misses.items() if len(own[0])}
    return FittedTables(tables.source, fitted, fit_collectives(tables.collectives), errors)


def kernel_misses(tables: Tables, base: Device) -> dict[tuple[str, str], Floats]:
    """Return the errors of kernels that a fit to the others predicts, by family and type."""
    found = {}
    for key, rows in tables.kernels.items():
        kept = np.arange(len(rows)) % _LEFT_OUT != 0
        part, rest = _fit(rows.pick(kept), key, base), rows.pick(~kept)
        predicted_s = factors_of(part, rest.sizes) * rest.roofline_s(key[1], base)
        found[key] = relative_errors(predicted_s, rest.time_s)
    return found


def _fit(rows: KernelRows, key: tuple[str, str], base: Device) -> SizeTable:
    family, dtype = key
    knots = _KNOTS[family]
    if len(rows) < _FEWEST:
        knots = tuple((own[0], own[len(own) // 2], own[-1]) for own in knots)
    return fit_grid(rows.sizes, rows.time_s / rows.roofline_s(dtype, base), knots)


def collective_misses(tables: Tables) -> Floats:
    """Return the errors of every third size, predicted by curves through the others."""
    samples = fastest(tables.collectives, lambda own: own.key)
    left_out = set(sorted(own.key for own in samples)[1::3])
    kept = [own for own in samples if own.key not in left_out]
    curves = {(own.kind, own.ranks): own.curve for own in fit_collectives(kept)}
    rest = [s for s in samples if s.key in left_out and (s.kind, s.ranks) in curves]
    predicted_s = [times_of(curves[s.kind, s.ranks], np.array([float(s.bytes)])) for s in rest]
    measured_s = np.array([s.time_s for s in rest])
    return relative_errors(np.concatenate([np.zeros(0), *predicted_s]), measured_s)


def _figure(misses: Floats) -> FigureError:
    return FigureError(float(np.mean(misses)), float(np.percentile(misses, 90)), len(misses))
