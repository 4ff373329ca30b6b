"""Differences between two plans: layouts, predicted costs and collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tensoropt.runtime.inspection.graphs import Collective
from tensoropt.runtime.inspection.summary import TRAINING_OPTIONS, collectives_of, layout_text
from tensoropt.runtime.plan.pins import pins_cost_text, pins_text
from tensoropt.runtime.plan.plan import Plan

__all__ = ["Changed", "Count", "Difference", "diff"]

_SETTINGS = ("tool", "device", "search")


@dataclass(frozen=True)
class Changed:
    """A value that differs; None if only one of the plans has it."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Count:
    """Collectives of one kind over ``ranks`` ranks: number and bytes sent by rank 0.

    Both are (before, after). ``bytes`` leave out tensors of symbolic sizes.
    """

    kind: str
    ranks: int
    count: tuple[int, int]
    bytes: tuple[int, int]


@dataclass(frozen=True)
class Difference:
    """All differences between two plans; empty lists if they are equal.

    ``model`` is set if the models differ, ``mesh`` if the meshes differ: layouts then have
    placements for other axes. ``settings`` are the device, the search and its pins, the tool, and
    the training options. ``strategies`` are by node, with layouts as text.
    """

    before: str
    after: str
    model: Changed | None
    mesh: Changed | None
    settings: tuple[Changed, ...]
    costs: tuple[Changed, ...]
    inputs: tuple[Changed, ...]
    outputs: tuple[Changed, ...]
    parameters: tuple[Changed, ...]
    strategies: tuple[Changed, ...]
    collectives: tuple[Count, ...]
    ops: Mapping[str, str]

    @property
    def is_empty(self) -> bool:
        """True if the plans are equal."""
        layouts = (self.inputs, self.outputs, self.parameters, self.strategies)
        lists = (self.settings, self.costs, *layouts, self.collectives)
        return not (self.model or self.mesh or any(lists))

    def to_json(self) -> dict[str, Any]:
        """Return the fields for the JSON encoder; ``same`` is set if there is no difference."""
        fields = asdict(self)
        fields.pop("ops")
        return {"schema": 1, "same": self.is_empty, **fields}


def diff(before: Plan, after: Plan) -> Difference:
    """Return the differences from ``before`` to ``after``; raises `UserError` for a bad graph.

    Linear in the size of both plans.
    """
    a: Any = before.document
    b: Any = after.document
    return Difference(
        str(before.folder),
        str(after.folder),
        _model(before, after),
        _change("mesh", list(before.mesh), list(after.mesh)),
        _settings(a, b),
        _values("", _figures(a), _figures(b)),
        _layouts(a["inputs"], b["inputs"]),
        _layouts(a["outputs"], b["outputs"]),
        _layouts(_persistent(a), _persistent(b)),
        _strategies(a["strategies"], b["strategies"]),
        _collectives(collectives_of(before), collectives_of(after)),
        {row["node"]: row["op"] for row in (*b["strategies"], *a["strategies"])},
    )


def _figures(plan: Any) -> Mapping[str, Any]:
    """Return the predicted costs, without the expected error, which belongs to the device."""
    return {name: own for name, own in plan["predicted"].items() if name != "expected_error"}


def _model(before: Plan, after: Plan) -> Changed | None:
    if before.model_sha256 == after.model_sha256:
        return None
    texts = (f"{plan.model_name} (sha256 {plan.model_sha256[:12]})" for plan in (before, after))
    return Changed("model", *texts)


def _change(name: str, before: Any, after: Any) -> Changed | None:
    return Changed(name, before, after) if before != after else None


def _settings(a: Any, b: Any) -> tuple[Changed, ...]:
    found = [_change(name, a[name], b[name]) for name in _SETTINGS]
    found.append(_change("dims", a.get("dims"), b.get("dims")))
    own = [(row.get("training") or {}) for row in (a, b)]
    found += [_change(f"training.{n}", own[0].get(n), own[1].get(n)) for n in TRAINING_OPTIONS]
    pins = [row.get("pins") for row in (a, b)]
    found.append(_change("pins", *(None if one is None else pins_text(one) for one in pins)))
    costs = (None if one is None else pins_cost_text(one["cost"]) for one in pins)
    found.append(_change("pins cost", *costs))
    return tuple(one for one in found if one is not None)


def _values(prefix: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Changed, ...]:
    """Return the values that differ, also in nested mappings."""
    found: list[Changed] = []
    for name in dict.fromkeys((*a, *b)):
        one, other = a.get(name), b.get(name)
        if isinstance(one, dict) or isinstance(other, dict):
            found += _values(f"{prefix}{name}.", one or {}, other or {})
        elif one != other:
            found.append(Changed(f"{prefix}{name}", one, other))
    return tuple(found)


def _persistent(document: Any) -> list[Any]:
    """Return the weights and the state of a training step."""
    training = document.get("training") or {}
    return [*document["parameters"], *training.get("state", ())]


def _layouts(a: Sequence[Any], b: Sequence[Any]) -> tuple[Changed, ...]:
    one, other = ({row["name"]: layout_text(row["layout"]) for row in rows} for rows in (a, b))
    return _by_name(one, other)


def _strategies(a: Sequence[Any], b: Sequence[Any]) -> tuple[Changed, ...]:
    one, other = (
        {row["node"]: _way(row) for row in rows if row["op"] != "Constant"} for rows in (a, b)
    )
    return _by_name(one, other)


def _way(row: Any) -> str:
    sides = (
        ", ".join(layout_text(layout) if layout else "-" for layout in row[side])
        for side in ("operands", "results")
    )
    return " -> ".join(sides)


def _by_name(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[Changed, ...]:
    names = dict.fromkeys((*a, *b))
    return tuple(Changed(n, a.get(n), b.get(n)) for n in names if a.get(n) != b.get(n))


def _collectives(a: Sequence[Collective], b: Sequence[Collective]) -> tuple[Count, ...]:
    counts: tuple[Counter[tuple[str, int]], ...] = (Counter(), Counter())
    sizes: tuple[Counter[tuple[str, int]], ...] = (Counter(), Counter())
    for own, count, size in zip((a, b), counts, sizes, strict=True):
        for one in own:
            count[one.kind, len(one.group)] += 1
            size[one.kind, len(one.group)] += one.bytes or 0
    return tuple(
        Count(*key, (counts[0][key], counts[1][key]), (sizes[0][key], sizes[1][key]))
        for key in sorted({*counts[0], *counts[1]})
        if (counts[0][key], sizes[0][key]) != (counts[1][key], sizes[1][key])
    )
