"""HTML of points and frontiers for notebooks: tables and a plot, without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.report.memory import BESIDE, beside_bytes
from tensoropt.compiler.report.plot import frontier_svg
from tensoropt.compiler.report.table import frontier_rows
from tensoropt.compiler.search.frontier.points import (
    Point,
    mesh_name,
    micro_batches_of,
    recompute_of,
)
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.runtime.api.html import facts_html, table_html

__all__ = ["frontier_html", "point_html"]


def frontier_html(report: FrontierReport, notes: Sequence[str]) -> str:
    """Return the plot of a frontier, and the table of its points."""
    picture = frontier_svg(report) if report.points else ""
    return f"<div>{picture}{table_html(*frontier_rows(report))}{_lines(notes)}</div>"


def point_html(title: str, point: Point, notes: Sequence[str]) -> str:
    """Return a table with the mesh, the times and the memory of a point."""
    way, beside = recompute_of(point), beside_bytes(point)
    batches = micro_batches_of(point)
    facts = [
        ("mesh", mesh_name(point.mesh)),
        *([] if way is None else [("recompute", way)]),
        *([("micro-batches", str(batches))] if batches and batches > 1 else []),
        ("time of a step", format_seconds(point.time_s)),
        ("compute", format_seconds(point.compute_s)),
        ("communication", format_seconds(point.communication_s)),
        ("memory per device", format_bytes(point.process_bytes)),
        ("static", format_bytes(point.static_bytes)),
        ("transient", format_bytes(point.transient_bytes)),
        *([(BESIDE, format_bytes(beside))] if beside else []),
    ]
    return f"<div>{facts_html(title, facts)}{_lines(notes)}</div>"


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)
