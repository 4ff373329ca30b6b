"""Text output of ``tensoropt-plan``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from tensoropt.runtime.inspection.differences import Changed, Difference
from tensoropt.runtime.inspection.summary import Folded, Sent, Summary, Way, layout_text, part_bytes
from tensoropt.runtime.plan.dims import sizes_in_words
from tensoropt.runtime.plan.entries import TensorEntry
from tensoropt.runtime.plan.pins import pins_lines
from tensoropt.runtime.support.expected import ExpectedErrorEntry, margin
from tensoropt.runtime.support.tables import columns, size_text

__all__ = ["difference_text", "summary_text"]

_TENSORS, _NODES = 12, 20
_FIGURES: tuple[Literal["time", "memory"], ...] = ("time", "memory")
_COSTS = {"process_bytes": "memory", "memory_bytes": "memory of tensors"}
"""Display names of figures of plan.json."""
_TIMES = ("time_s", "compute_s", "communication_s")


def summary_text(summary: Summary) -> str:
    """Return the text of a summary, equal layers once."""
    return "\n".join(_summary(summary)) + "\n"


def _summary(plan: Summary) -> Iterator[str]:
    mesh, stages = "x".join(map(str, plan.mesh)), plan.ranks // math.prod(plan.mesh)
    kind = "stages" if plan.replicas is None else "replicas"
    where = f"mesh {mesh}" if stages == 1 else f"{stages} {kind}, each on mesh {mesh}"
    yield f"{plan.folder}: {plan.model} on {plan.ranks} x {plan.device}, {where}"
    if plan.replicas is not None:
        yield _replicas(plan.replicas)
    marks = f" ({', '.join(plan.marks)})" if plan.marks else ""
    point = f", point {plan.chosen} of {plan.points}{marks}" if plan.chosen is not None else ""
    yield f"made by {plan.tool}, search {plan.search}{point}"
    yield f"model sha256 {plan.model_sha256}"
    yield from pins_lines(plan.pins)
    yield from _predicted(plan.predicted)
    if plan.training is not None:
        yield _training(plan.training)
    for name, own in plan.dims.items():
        sizes = sizes_in_words(range(own["first"], own["last"] + 1, own["step"]))
        yield f"dimension {name}: {sizes}"
    yield f"files: {plan.files} of {size_text(plan.files_bytes)} in all"
    for kind, rows in (("inputs", plan.inputs), ("outputs", plan.outputs)):
        yield f"{kind}: {len(rows)}"
        yield from _tensors(rows, plan.mesh)
    yield f"weights: {len(plan.parameters)}, the largest first"
    yield from _tensors(sorted(plan.parameters, key=lambda row: -_size(row, plan.mesh)), plan.mesh)
    yield "layers, by the layouts that ops read and leave"
    for layer in plan.layers:
        yield from _layer(layer)
    yield from _collectives(plan.collectives)


def _predicted(costs: Mapping[str, Any]) -> Iterator[str]:
    times = [f"{name.removesuffix('_s')} {_time(costs[name])}" for name in _TIMES]
    if costs.get("hidden_s", 0):
        times.append(f"of which {_time(costs['hidden_s'])} hidden")
    error: ExpectedErrorEntry | None = costs["expected_error"]
    time, memory = (margin(error and error[name]) for name in _FIGURES)
    yield f"predicted: {times[0]}{time} a step ({', '.join(times[1:])})"
    if "interval_s" in costs:
        latency, interval = (_time(costs[name]) for name in ("latency_s", "interval_s"))
        yield f"predicted: latency {latency}{time}, a result every {interval}{time}"
    yield _memory(costs, memory)


def _memory(costs: Mapping[str, Any], error: str) -> str:
    """Return the predicted memory and its parts: of a process, or of tensors if that is all."""
    tensors = costs["memory_bytes"]
    whole = costs.get("process_bytes", tensors)
    parts = [f"{name} {size_text(costs[f'{name}_bytes'])}" for name in ("static", "transient")]
    if whole > tensors:
        parts.append(f"beside tensors {size_text(whole - tensors)}")
    name = "process memory" if whole > tensors else "tensor memory"
    return f"predicted: {name} {size_text(whole)}{error} a rank ({', '.join(parts)})"


def _replicas(entry: Mapping[str, Any]) -> str:
    pairs = zip(entry["devices"], entry["micro_batches"], strict=True)
    rows = ", ".join(
        f"{number} on {device}: {count}" for number, (device, count) in enumerate(pairs)
    )
    return f"replicas take parts of {sum(entry['micro_batches'])} micro-batches, {rows}"


def _training(training: Mapping[str, Any]) -> str:
    loss, optimizer, batches = training["loss"], training["optimizer"], training["micro_batches"]
    several = "" if batches == 1 else f"{batches} micro-batches, "
    return (
        f"training: loss {loss['kind']} of {loss['output']}, {optimizer['name']}, "
        f"{several}{training['precision']}, "
        f"recomputes {training['recompute']}, starts from {training['start']}"
    )


def _time(time_s: float) -> str:
    if time_s >= 1:
        return f"{time_s:.4g} s"
    return f"{time_s * 1e3:.4g} ms" if time_s >= 1e-3 else f"{time_s * 1e6:.4g} us"


def _size(row: TensorEntry, mesh: Sequence[int]) -> int:
    return part_bytes(row, mesh) or 0


def _tensors(rows: Sequence[TensorEntry], mesh: Sequence[int]) -> Iterator[str]:
    cells = [
        [
            f"  {row['name']}",
            row["dtype"],
            "x".join(map(str, row["shape"])) or "scalar",
            layout_text(row["layout"]),
            f"{size_text(part_bytes(row, mesh))} a rank",
        ]
        for row in rows[:_TENSORS]
    ]
    yield from columns(cells) if cells else ()
    if len(rows) > _TENSORS:
        rest = sum(_size(row, mesh) for row in rows[_TENSORS:])
        yield f"  and {len(rows) - _TENSORS} more of {size_text(rest)} a rank"


def _layer(layer: Folded) -> Iterator[str]:
    names, count = layer.names, len(layer.names)
    title = " and ".join(names) if count <= 2 else f"{names[0]} to {names[-1]}"
    several = f", {count} alike" if count > 1 else ""
    ops = sum(way.count for way in layer.ways)
    time = "" if layer.time_s is None else f", {_time(layer.time_s / count)}"
    each = " each" if time and count > 1 else ""
    yield f"  {title}{several}: {ops} op{'s' if ops != 1 else ''}{time}{each}"
    yield from (f"    {_way(way)}" for way in layer.ways if way.main)
    others = sum(way.count for way in layer.ways if not way.main)
    if others and others < ops:
        yield f"    {others} other op{'s' if others != 1 else ''}"


def _way(way: Way) -> str:
    times = f"{way.count} x " if way.count > 1 else ""
    more = f" and {way.count - 1} more" if way.count > 1 else ""
    layouts = f"{', '.join(way.operands)} -> {', '.join(way.results)}"
    return f"{times}{way.op} {way.node}{more}: {layouts}"


def _collectives(rows: Sequence[Sent]) -> Iterator[str]:
    if not rows:
        yield "collectives of rank 0: none"
        return
    count, total = sum(r.count for r in rows), sum((r.bytes or 0) * r.count for r in rows)
    yield f"collectives of rank 0: {count}, which put in {size_text(total)}"
    cells = [
        [f"  {row.count} x {row.kind}", f"{row.ranks} ranks", size_text(row.bytes), row.node]
        for row in rows
    ]
    yield from columns([["  kind", "of", "bytes each", "first node"], *cells])


def difference_text(difference: Difference) -> str:
    """Return the differences, one per line, or one line if there are none."""
    lines = list(_difference(difference))
    return "\n".join(lines or ["the plans are equal"]) + "\n"


def _difference(found: Difference) -> Iterator[str]:
    if found.is_empty:
        return
    yield f"- {found.before}"
    yield f"+ {found.after}"
    if found.model is not None:
        yield f"different models: {found.model.before} -> {found.model.after}"
    if found.mesh is not None:
        meshes = ("x".join(map(str, mesh)) for mesh in (found.mesh.before, found.mesh.after))
        yield f"mesh: {' -> '.join(meshes)}; layouts have a placement per axis of their own mesh"
    yield from (
        f"{row.name}: {_value(row.before)} -> {_value(row.after)}" for row in found.settings
    )
    yield from (_cost(row) for row in found.costs)
    for name in ("inputs", "outputs", "parameters"):
        yield from _changes(name, getattr(found, name))
    yield from _strategies(found)
    for row in found.collectives:
        sizes = " -> ".join(map(size_text, row.bytes))
        yield f"{row.kind} of {row.ranks} ranks: {row.count[0]} -> {row.count[1]}, {sizes} put in"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {own}" for key, own in value.items() if own is not None)
    return "none" if value is None else str(value)


def _cost(row: Changed) -> str:
    form = _time if row.name.endswith("_s") else size_text
    name = _COSTS.get(row.name) or row.name.removesuffix("_s").removesuffix("_bytes")
    if row.before is None or row.after is None:
        texts = ["none" if one is None else form(one) for one in (row.before, row.after)]
        return f"predicted {name}: {' -> '.join(texts)}"
    change = f" ({(row.after - row.before) / row.before:+.1%})" if row.before else ""
    return f"predicted {name}: {form(row.before)} -> {form(row.after)}{change}"


def _changes(name: str, rows: Sequence[Changed]) -> Iterator[str]:
    if rows:
        yield f"{name}: {len(rows)} changed"
    groups: dict[tuple[Any, Any], list[str]] = {}
    for row in rows:
        groups.setdefault((row.before, row.after), []).append(row.name)
    for (before, after), names in list(groups.items())[:_NODES]:
        yield f"  {_names_text(names)}: {_value(before)} => {_value(after)}"


def _strategies(found: Difference) -> Iterator[str]:
    if not found.strategies:
        return
    yield f"ops: {len(found.strategies)} changed"
    members: dict[tuple[str, Any, Any], list[str]] = {}
    for row in found.strategies:
        members.setdefault((found.ops[row.name], row.before, row.after), []).append(row.name)
    groups = sorted(members.items(), key=lambda group: -len(group[1]))
    for (op, before, after), names in groups[:_NODES]:
        yield f"  {op} {_names_text(names)}: {_value(before)} => {_value(after)}"
    if len(groups) > _NODES:
        yield f"  and {sum(len(names) for _, names in groups[_NODES:])} more"


def _names_text(names: Sequence[str]) -> str:
    shown = ", ".join(names[:2])
    return f"{shown} and {len(names) - 2} more" if len(names) > 2 else shown
