"""The comparison of search methods: a table, JSON and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensoropt.compiler.report.machine import csv_text, json_text
from tensoropt.compiler.report.table import render
from tensoropt.compiler.search.frontier.points import as_dict, mesh_name
from tensoropt.compiler.support.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tensoropt.compiler.comparison.compare import Compared

__all__ = ["Comparison", "comparison_csv", "comparison_json", "comparison_table"]


@dataclass(frozen=True)
class Comparison:
    """Results of several methods on one model and device, in the order of the request."""

    model: str
    device: str
    devices: int
    rows: Sequence[Compared]


def comparison_table(comparison: Comparison, *, colour: bool = False) -> str:
    """Return a row per method: mesh, time, memory, search time, and ratio to the optimum."""
    title = f"{comparison.model} on {comparison.devices} x {comparison.device}: fastest, per device"
    header = ["method", "mesh", "time", "memory", "search", "ratio", ""]
    return render(title, header, [_cells(row) for row in comparison.rows], colour)


def comparison_json(comparison: Comparison) -> str:
    """Return one JSON object.

    ``"point"`` is null if a method refused the model, else ``"refused"`` is null.
    """
    rows = [
        {
            "method": row.method,
            "point": as_dict(row.point) if row.point else None,
            "search_s": row.seconds,
            "ratio": row.ratio,
            "refused": row.refused or None,
        }
        for row in comparison.rows
    ]
    return json_text(comparison, {"devices": comparison.devices, "methods": rows})


def comparison_csv(comparison: Comparison) -> str:
    """Return CSV with a header line; the cells of a method that refused the model are empty."""
    header = [
        "method",
        "mesh",
        "time_s",
        "process_bytes",
        "memory_bytes",
        "search_s",
        "ratio",
        "refused",
    ]
    return csv_text(header, [_plain_cells(row) for row in comparison.rows])


def _cells(row: Compared) -> list[str]:
    seconds = format_seconds(row.seconds)
    if row.point is None or row.ratio is None:
        return [row.method, "-", "-", "-", seconds, "-", f"refused: {row.refused}"]
    point = row.point
    figures = [format_seconds(point.time_s), format_bytes(point.process_bytes), seconds]
    return [row.method, mesh_name(point.mesh), *figures, f"{row.ratio:.3f}", ""]


def _plain_cells(row: Compared) -> list[object]:
    if row.point is None:
        return [row.method, "", "", "", "", row.seconds, "", row.refused]
    point = row.point
    sizes = point.process_bytes, point.memory_bytes
    costs = mesh_name(point.mesh), point.time_s, *sizes
    return [row.method, *costs, row.seconds, row.ratio, ""]
