"""Reports for machines: JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from tensoropt.compiler.report.frontier import Frontier, Profile
from tensoropt.compiler.report.points import FIELDS, Point, as_dict

__all__ = ["frontier_csv", "frontier_json", "profile_csv", "profile_json"]

SCHEMA = 1


def frontier_json(frontier: Frontier) -> str:
    """Return the frontier as one JSON object, with a line end."""
    points = [as_dict(point) for point in frontier.shown]
    return _json(frontier, {"epsilon": frontier.epsilon, "points": points})


def profile_json(profile: Profile) -> str:
    """Return the profile as one JSON object; ``"point"`` is null where nothing fits."""
    rows = [{"devices": n, "point": as_dict(p) if p else None} for n, p in profile.rows]
    return _json(profile, {"profile": rows})


def frontier_csv(frontier: Frontier) -> str:
    """Return the frontier as CSV with a header line; a mesh is written ``2x4``."""
    rows = [[point.index, *_cells(point)] for point in frontier.shown]
    return _csv(["index", "mesh", *FIELDS], rows)


def profile_csv(profile: Profile) -> str:
    """Return the profile as CSV with a header line; cells are empty where nothing fits."""
    empty = [""] * (1 + len(FIELDS))
    rows = [[n, *(_cells(point) if point else empty)] for n, point in profile.rows]
    return _csv(["devices", "mesh", *FIELDS], rows)


def _json(report: Frontier | Profile, content: dict[str, Any]) -> str:
    head = {"schema": SCHEMA, "model": report.model, "device": report.device}
    return json.dumps({**head, **content}, indent=2) + "\n"


def _cells(point: Point) -> list[Any]:
    return ["x".join(map(str, point.mesh)), *(getattr(point, name) for name in FIELDS)]


def _csv(header: list[str], rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()
