"""Reports for machines: JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Protocol

from tensoropt.compiler.exporter.standard.cache_effect import Effect
from tensoropt.compiler.report.frontier import FrontierReport, ScalingReport
from tensoropt.compiler.search.frontier.points import (
    FIELDS,
    Point,
    as_dict,
    describe_points,
    marks,
    mesh_name,
    micro_batches_of,
    recompute_of,
)

__all__ = [
    "csv_text",
    "described",
    "frontier_csv",
    "frontier_json",
    "json_text",
    "profile_csv",
    "profile_json",
]

SCHEMA = 1


class Report(Protocol):
    """The fields at the start of every report."""

    @property
    def model(self) -> str: ...
    @property
    def device(self) -> str: ...


def frontier_json(frontier: FrontierReport) -> str:
    """Return the frontier as one JSON object, with a line end; no bound is null.

    ``stopped`` is null if the search was complete, else "time", "memory" or "tables". ``axes`` is
    the number of axes up to which the bound covers all meshes, null if no mesh is missing.
    ``above_capacity`` counts the points above the capacity of the device, which come last. Points
    of several forms of a model have its name; ``effects`` of 8-bit caches are by model. ``added``
    has the options that the search chose by itself, if nothing fits without them.
    """
    rows = {row["index"]: row for row in describe_points(frontier.points)}
    points = [{**rows[p.index], **_form(frontier, p.index)} for p in frontier.shown]
    time_epsilon = frontier.time_epsilon
    if time_epsilon is not None and not math.isfinite(time_epsilon):
        time_epsilon = None  # JSON has no infinity
    bounds = {
        "epsilon": frontier.epsilon,
        "time_epsilon": time_epsilon,
        "axes": frontier.axes,
    }
    left_out = [{"mesh": list(left.mesh), "reason": left.reason} for left in frontier.left_out]
    ended = {"interrupted": frontier.interrupted, "stopped": frontier.stopped}
    chosen = None if frontier.chosen is None else frontier.chosen.index
    above = {"above_capacity": len(frontier.overfull)}
    found = {"left_out": left_out, **above, "chosen": chosen, **described(frontier.effects)}
    found |= {"added": dict(frontier.added)} if frontier.added else {}
    found["points"] = points
    return json_text(frontier, {**_error(frontier), **bounds, **ended, **found})


def described(effects: Mapping[str, Effect]) -> dict[str, object]:
    """Return the effects of 8-bit caches in the form of the JSON reports, none for none."""
    found = {model: asdict(effect) for model, effect in effects.items()}
    return {"effects": found} if found else {}


def _form(frontier: FrontierReport, index: int) -> dict[str, str]:
    """Return the column with the model of a point, if there are several."""
    return {"model": frontier.forms[index]} if frontier.forms else {}


def profile_json(profile: ScalingReport) -> str:
    """Return the profile as one JSON object; ``"point"`` is null if no point fits."""
    rows = [{"devices": n, "point": as_dict(p) if p else None} for n, p in profile.rows]
    return json_text(profile, {**_error(profile), "profile": rows})


def _error(report: FrontierReport | ScalingReport) -> dict[str, object]:
    """Return the expected error of the figures; null if the device has not been measured."""
    return {"expected_error": None if report.error is None else asdict(report.error)}


def frontier_csv(frontier: FrontierReport) -> str:
    """Return the frontier as CSV with a header line; a mesh is written ``2x4``.

    Points of training steps have columns for recomputation and micro-batches. The last column has
    the marks of a point, such as ``fastest knee`` or ``above capacity``.
    """
    trains = any(recompute_of(point) is not None for point in frontier.shown)
    own = {"recompute": recompute_of, "micro_batches": micro_batches_of} if trains else {}
    named = {index: " ".join(names) for index, names in marks(frontier.points).items()}
    rows = [
        [
            p.index,
            *_form(frontier, p.index).values(),
            *(of(p) for of in own.values()),
            *_cells(p),
            named.get(p.index, ""),
        ]
        for p in frontier.shown
    ]
    model = ["model"] if frontier.forms else []
    return csv_text(["index", *model, *own, "mesh", *FIELDS, "marks"], rows)


def profile_csv(profile: ScalingReport) -> str:
    """Return the profile as CSV with a header line; cells are empty if no point fits."""
    empty = [""] * (1 + len(FIELDS))
    rows = [[n, *(_cells(point) if point else empty)] for n, point in profile.rows]
    return csv_text(["devices", "mesh", *FIELDS], rows)


def json_text(report: Report, content: Mapping[str, object]) -> str:
    """Return a report as JSON: its schema, model and device, then ``content``."""
    head = {"schema": SCHEMA, "model": report.model, "device": report.device}
    return json.dumps({**head, **content}, indent=2) + "\n"


def _cells(point: Point) -> list[object]:
    return [mesh_name(point.mesh), *(getattr(point, name) for name in FIELDS)]


def csv_text(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows as CSV under a header line."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()
