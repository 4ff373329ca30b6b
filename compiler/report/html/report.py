"""HTML report of a frontier and of the picked plan, in one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tensoropt.compiler.report.explain.explain import differences, explain
from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.report.html.data import report_data
from tensoropt.compiler.report.html.page import page_of
from tensoropt.compiler.search.frontier.points import names_of
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.files import replacing
from tensoropt.runtime.plan.entries import PinsEntry

__all__ = ["check_report_path", "report_page", "write_report"]

_COMPARED = 150_000  # operations of all points that are compared with the picked point


def check_report_path(path: Path) -> None:
    """Raise :class:`UserError` unless ``path`` can be written and ends in .html or .htm."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--report: expected a file ending in .html, got: '{path}'")
    if not path.parent.is_dir():
        raise UserError(f"--report {path}: expected an existing folder, got: '{path.parent}'")
    if path.is_dir():
        raise UserError(f"--report {path}: expected a file, got: a folder")


def write_report(
    frontier: FrontierReport,
    points: Sequence[FrontierPoint],
    picked: FrontierPoint,
    path: Path,
    notes: Sequence[str] = (),
    pins: PinsEntry | None = None,
) -> None:
    """Write :func:`report_page` to ``path``, whole or not at all."""
    check_report_path(path)
    page = report_page(frontier, points, picked, notes, pins)
    with replacing(path) as aside:
        aside.write_text(page, encoding="utf-8")


def report_page(
    frontier: FrontierReport,
    points: Sequence[FrontierPoint],
    picked: FrontierPoint,
    notes: Sequence[str] = (),
    pins: PinsEntry | None = None,
) -> str:
    """Return the page on ``points``, all points of ``frontier``, and the ``picked`` point.

    ``pins`` are the pins of the search. The same frontier has the same text.
    """
    given = frontier.model, frontier.device, pins, frontier.error
    explanation = explain(picked, points, *given)
    changes = differences(picked, _compared(points, picked))
    whole = replace(frontier, points=points, chosen=picked, narrowed=False)
    texts = [note.removeprefix("note: ") for note in notes]
    data = report_data(whole, picked, explanation, changes, texts)
    return page_of(data, f"{frontier.model} on {frontier.devices} x {frontier.device}")


def _compared(points: Sequence[FrontierPoint], picked: FrontierPoint) -> list[FrontierPoint]:
    """Return the points to compare with the picked point.

    If they are too many, these are the named points, the picked point's neighbours, and an even
    sample of the rest.
    """
    most = max(8, _COMPARED // max(len(picked.tables.graph.nodes), 1))
    named = names_of(points)
    near = {picked.index - 1, picked.index + 1}
    first = [point for point in points if point.index in named or point.index in near]
    step = -(-len(points) // most)
    rest = [point for point in points[::step] if point not in first]
    return [point for point in [*first, *rest] if point is not picked]
