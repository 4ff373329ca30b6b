"""Data of an HTML report, as its page reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensoropt.compiler.program.timeline import COPIES
from tensoropt.compiler.report.expected import expected_line
from tensoropt.compiler.report.explanation import (
    Change,
    Explanation,
    Neighbour,
    Tensor,
    TimelineEntry,
)
from tensoropt.compiler.report.frontier import FrontierReport
from tensoropt.compiler.report.html.blocks import graph_data
from tensoropt.compiler.report.html.layouts import layout_words
from tensoropt.compiler.report.html.strings import Strings, rounded
from tensoropt.compiler.report.memory import BESIDE, memory_name
from tensoropt.compiler.report.table import counted
from tensoropt.compiler.search.frontier.points import (
    ABOVE_CAPACITY,
    Point,
    mesh_name,
    names_of,
    recompute_of,
    split_name,
)
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.support.version import TOOL
from tensoropt.runtime.plan.pins import pins_lines

__all__ = ["report_data"]

_CHANGES, _LAYERS = 12, 3  # listed for each point, and layers named for each change
_ENTRIES = 12_000  # of the timeline
_ROWS = 60  # of a table
_KINDS = ("overhead", "op", "collective", "copy")


def report_data(
    frontier: FrontierReport,
    picked: FrontierPoint,
    explanation: Explanation,
    changes: Mapping[int, Neighbour],
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the data of the page: plain numbers, texts, lists and dictionaries.

    ``changes`` are the differences of points from ``picked``, by index; a point may have none.
    """
    strings = Strings()
    graph = graph_data(explanation, picked, strings)
    timeline = _timeline(explanation, strings)
    return {
        "head": _head(explanation, notes),
        "frontier": _frontier(frontier, picked, changes),
        "graph": graph,
        "timeline": timeline,
        "stages": _stages(explanation),
        "costly": [vars(row) for row in explanation.costly],
        "collectives": _collectives(explanation),
        "alive": _tensors(explanation.memory.alive, explanation),
        "kept": _tensors(explanation.memory.kept, explanation),
        "copies": sorted(COPIES),
        "strings": strings.texts,
    }


def _head(explanation: Explanation, notes: Sequence[str]) -> dict[str, Any]:
    named = f" ({', '.join(explanation.marks)})" if explanation.marks else ""
    again = f", recomputing {explanation.recompute}" if explanation.recompute else ""
    where, of, staged = f"mesh {mesh_name(explanation.mesh)}", "", explanation.staged
    if staged is not None:
        where = f"{len(staged.stages)} stages of {where}, schedule {staged.schedule}"
        of = ", but graph and step have all layers on one stage"
    if explanation.replicas:
        where = f"{len(explanation.replicas)} replicas of {where}"
        of = ", but graph and step have all micro-batches on the slowest replica"
    share = explanation.communication_s / explanation.time_s if explanation.time_s else 0.0
    beside, hidden = explanation.memory.beside_bytes, explanation.hidden_s
    error = expected_line(explanation.expected_error, explanation.device, explanation.part_shares)
    return {
        "model": explanation.model,
        "line": f"Point {explanation.index}{named} of {explanation.points} on "
        f"{explanation.devices} x {explanation.device}, {where}{again}. "
        f"All figures are predicted, of one rank and one step{of}; {error}.",
        "tiles": [
            ["s", rounded(explanation.time_s), "a step"],
            ["s", rounded(explanation.compute_s), "compute"],
            ["s", rounded(explanation.communication_s), f"communication, {share:.0%}"],
            *([["s", rounded(hidden), "hidden behind compute"]] if hidden else []),
            ["B", explanation.process_bytes, f"{memory_name(whole=beside > 0)} per device"],
            *_parts(explanation),
            *([["B", beside, BESIDE]] if beside else []),
        ],
        "notes": [*pins_lines(explanation.pins), *notes],
        "foot": f"{TOOL}. This file loads nothing from anywhere.",
    }


def _parts(explanation: Explanation) -> list[list[Any]]:
    """Return the tiles on the memory of a rank; with stages, of the fullest, and of a stream."""
    staged, memory = explanation.staged, explanation.memory
    if staged is None:
        static = [["B", size, kind] for kind, size in memory.static_parts.items()]
        return [*static, ["B", memory.transient_bytes, "transient"]]
    fullest = staged.fullest
    stream = (("latency", staged.latency_s), ("between results", staged.interval_s))
    return [
        *(["s", rounded(time_s), name] for name, time_s in stream if time_s is not None),
        ["B", fullest.static_bytes, "static, of the fullest stage"],
        ["B", fullest.kept_bytes, "in flight"],
    ]


def _stages(explanation: Explanation) -> dict[str, Any] | None:
    staged = explanation.staged
    if staged is None:
        return None
    return {
        "rows": [vars(row) for row in staged.stages],
        "tasks": [
            [t.stage, t.work, t.micro_batch, t.chunk, rounded(t.start_s), rounded(t.end_s)]
            for t in staged.tasks
        ],
        "works": staged.works,
        "end_s": rounded(staged.end_s),
        "about": staged.about,
    }


def _frontier(
    frontier: FrontierReport, picked: Point, changes: Mapping[int, Neighbour]
) -> dict[str, Any]:
    named = names_of(frontier.points)
    rows = [
        _point(point, [*named.get(point.index, ()), *(["pick"] if point is picked else [])])
        for point in frontier.shown
    ]
    for row in rows:
        if row["index"] in changes:
            row.update(_changed(changes[row["index"]]))
    return {
        "points": rows,
        "picked": picked.index,
        "about": counted(frontier),
        "uncompared": "the model and the frontier are too large to compare all points",
    }


def _point(point: Point, names: Sequence[str]) -> dict[str, Any]:
    return {
        "index": point.index,
        "mesh": split_name(point),
        "recompute": recompute_of(point),
        "time_s": rounded(point.time_s),
        "compute_s": rounded(point.compute_s),
        "communication_s": rounded(point.communication_s),
        "process_bytes": point.process_bytes,
        "static_bytes": point.static_bytes,
        "transient_bytes": point.transient_bytes,
        "names": names,
        "marks": [*names, *([ABOVE_CAPACITY] if point.is_above_capacity else [])],
    }


def _changed(neighbour: Neighbour) -> dict[str, Any]:
    """Return the differences of a point; equal changes in several layers share a row."""
    same: dict[tuple[str, str, str], list[Change]] = {}
    for change in neighbour.changes:
        same.setdefault((change.op, change.before, change.after), []).append(change)
    rows = sorted((_change(group) for group in same.values()), key=lambda row: -row["count"])
    left_out = sum(row["count"] for row in rows[_CHANGES:])
    return {"changes": rows[:_CHANGES], "left_out": left_out, "others": neighbour.others}


def _change(group: Sequence[Change]) -> dict[str, Any]:
    first, layers = group[0], list(dict.fromkeys(change.layer for change in group))
    listed = ", ".join(layers[:_LAYERS])
    more = len(layers) - len(layers[:_LAYERS])
    return {
        "layer": f"{listed} and {more} more" if more else listed,
        "count": sum(change.count for change in group),
        "op": first.op,
        "before": first.before,
        "after": first.after,
    }


def _timeline(explanation: Explanation, strings: Strings) -> dict[str, Any]:
    entries = explanation.timeline
    size = -(-len(entries) // _ENTRIES) or 1
    pieces = [entries[at : at + size] for at in range(0, len(entries), size)]
    at = explanation.memory.at
    overlaps = "collectives overlap" if explanation.hidden_s else "nothing overlaps"
    about = f"{len(entries):,} steps of one rank, predicted; {overlaps}"
    joined = f"; every {size} consecutive steps are drawn as one" if size > 1 else ""
    return {
        "rows": [_entry(piece, strings) for piece in pieces],
        "total_s": rounded(max((entry.end_s for entry in entries), default=0.0)),
        "beside_bytes": explanation.memory.beside_bytes,
        "static_bytes": explanation.memory.static_bytes,
        "peak": None if at is None else at // size,
        "about": about + joined + ". Drag over it to zoom.",
    }


def _entry(piece: Sequence[TimelineEntry], strings: Strings) -> list[Any]:
    """Return the row of an entry, or of several entries, labelled with the longest."""
    longest = max(piece, key=lambda entry: entry.time_s)
    row = [
        _KINDS.index(longest.kind),
        *map(strings, (longest.name, longest.op, longest.layer, longest.phase)),
        rounded(piece[0].start_s),
        rounded(sum(entry.time_s for entry in piece)),
        max(entry.memory_bytes for entry in piece),
        longest.bytes,
        strings(",".join(longest.axes)),
        strings(longest.text),
    ]
    return [*row, len(piece)] if len(piece) > 1 else row


def _collectives(explanation: Explanation) -> dict[str, Any]:
    """Return a row per kind of collective in equal layers, with its count; the costliest first."""
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    for layer in explanation.layers:
        for moved in layer.communication:
            key = (layer.title, moved.kind, moved.axes, moved.bytes)
            fresh = {
                "kind": moved.kind,
                "axes": ",".join(moved.axes),
                "bytes": moved.bytes,
                "time_s": rounded(moved.time_s),
                "count": 0,
                "layers": layer.title,
                "why": moved.why,
            }
            rows.setdefault(key, fresh)["count"] += layer.count
    found = sorted(rows.values(), key=lambda row: -row["time_s"] * row["count"])
    return {"rows": found[:_ROWS], "left_out": len(found) - len(found[:_ROWS])}


def _tensors(tensors: Sequence[Tensor], explanation: Explanation) -> dict[str, Any]:
    listed = [
        {
            "bytes": tensor.bytes,
            "name": tensor.name,
            "kind": tensor.kind,
            "layer": tensor.layer,
            "layout": layout_words(tensor.layout, explanation.axes, explanation.mesh),
        }
        for tensor in tensors[:_ROWS]
    ]
    return {
        "rows": listed,
        "bytes": sum(tensor.bytes for tensor in tensors),
        "left_out": len(tensors) - len(listed),
    }
