"""A device description with measured tables: a base from data sheets, products and collectives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes  # noqa: F401  (registers bfloat16 and float8 with numpy)
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
from tensoropt.compiler.calibrate.tables.rows import Floats, ProductRows, Tables
from tensoropt.compiler.cost.device import Device, description_text, load_device
from tensoropt.compiler.cost.expected_error import FigureError
from tensoropt.compiler.cost.products import AXES
from tensoropt.compiler.cost.size_table import SizeTable
from tensoropt.compiler.support.errors import UserError

__all__ = [
    "MARK",
    "FittedTables",
    "collective_misses",
    "describe_tables",
    "fit_tables",
    "misses_by_dtype",
    "roofline_s",
]

MARK = "# Fitted to measurements by tensoropt-profile --from-tables."
"""First line of the fitted part of a description; the rest is written by hand."""

_ROWS = (1, 2, 8, 16, 64, 128, 256, 512, 1024, 4096, 32768)
_COLUMNS = (32, 256, 1024, 4096, 16384, 65536)
_KNOTS = (_ROWS, _COLUMNS, _COLUMNS)
_FEWEST = 2000  # rows for the whole grid; fewer have the ends and the middle of each axis
_LEFT_OUT = 4  # every fourth row is left out of a fit, to measure its error


@dataclass(frozen=True)
class FittedTables:
    """Tables of products by type, curves of collectives, and the errors of rows left out."""

    source: str
    products: Mapping[str, SizeTable]
    collectives: Sequence[FittedCollective]
    errors: Mapping[str, FigureError]

    def toml(self) -> str:
        """Return the fitted part of a description."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield MARK
        yield f"# Source: {self.source}."
        for family, figure in self.errors.items():
            yield f"\n[expected_error.{family}] # |predicted / measured - 1| of rows left out"
            yield from figure_lines(figure)
        for dtype, table in self.products.items():
            yield f"\n[product.{dtype}] # time over the roofline at the peak, the depth fastest"
            for axis, knots in zip(AXES, table.knots, strict=True):
                yield f"{axis} = [{', '.join(f'{knot:g}' for knot in knots)}]"
            yield "factors = ["
            each = len(table.knots[-1])
            for start in range(0, len(table.factors), each):
                row = table.factors[start : start + each]
                yield f"  {', '.join(number_text(factor) for factor in row)},"
            yield "]"
        yield from collective_lines(self.collectives)


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
    fitted = {dtype: _fit(rows, dtype, base) for dtype, rows in tables.products.items()}
    misses = {
        "products": np.concatenate([np.zeros(0), *misses_by_dtype(tables, base).values()]),
        "collectives": collective_misses(tables),
    }
    errors = {family: _figure(own) for family, own in misses.items() if len(own)}
    return FittedTables(tables.source, fitted, fit_collectives(tables.collectives), errors)


def misses_by_dtype(tables: Tables, base: Device) -> dict[str, Floats]:
    """Return the errors of products that a fit to the others predicts, by type."""
    found = {}
    for dtype, rows in tables.products.items():
        kept = np.arange(len(rows)) % _LEFT_OUT != 0
        part, rest = _fit(rows.pick(kept), dtype, base), rows.pick(~kept)
        predicted_s = factors_of(part, rest.sizes) * roofline_s(rest.sizes, dtype, base)
        found[dtype] = relative_errors(predicted_s, rest.time_s)
    return found


def roofline_s(sizes: Floats, dtype: str, base: Device) -> Floats:
    """Return the roofline of each product, launch included, at the peak of its type."""
    rows, columns, depth = sizes.T
    item = np.dtype(dtype).itemsize
    # A product of 8 bits returns 16.
    moved = item * (rows * depth + depth * columns) + max(item, 2) * rows * columns
    flops_s = 2.0 * rows * columns * depth / base.peak_flop_per_s(dtype)
    memory_s = moved / base.memory_bandwidth_bytes_per_s
    found: Floats = base.launch_overhead_s + np.maximum(flops_s, memory_s)
    return found


def _fit(rows: ProductRows, dtype: str, base: Device) -> SizeTable:
    few = tuple((own[0], own[len(own) // 2], own[-1]) for own in _KNOTS)
    knots = _KNOTS if len(rows) >= _FEWEST else few
    return fit_grid(rows.sizes, rows.time_s / roofline_s(rows.sizes, dtype, base), knots)


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
