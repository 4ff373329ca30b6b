"""Summary of a plan, from plan.json and the graphs of its ranks, without running them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tensoropt.runtime.inspection.graphs import Collective, read_graph
from tensoropt.runtime.plan.costs import NodeCost, read_costs
from tensoropt.runtime.plan.entries import DimEntry, PinsEntry, StrategyEntry, TensorEntry
from tensoropt.runtime.plan.graphs import UPDATE
from tensoropt.runtime.plan.layers import row_layers
from tensoropt.runtime.plan.plan import Plan, tensor_of
from tensoropt.runtime.support.dtypes import dtype_of
from tensoropt.runtime.support.errors import UserError

__all__ = ["TRAINING_OPTIONS", "Folded", "Sent", "Summary", "Way", "layout_text", "summarise"]

TRAINING_OPTIONS = (
    "loss", "optimizer", "micro_batches", "clip_norm", "precision", "recompute", "start",
)  # fmt: skip
"""The entries of a plan's training part that are shown as its options."""

_LATER = re.compile(r"\.(grad|update|again)(\.|_|$)")
"""Matches names of a training step's nodes after its forward pass."""
_PRODUCTS = "MatMul Gemm FusedMatMul FusedGemm Einsum MatMulNBits MatMulInteger QLinearMatMul"
_OTHERS = "Conv ConvTranspose ConvInteger QLinearConv Gather LSTM GRU RNN"
_MAIN = frozenset(f"{_PRODUCTS} {_OTHERS}".split())


@dataclass(frozen=True)
class Way:
    """The layouts of operands and results that ``count`` ops of a layer share.

    ``node`` is the first of these ops; ``main`` is set for products, look-ups and attention.
    """

    op: str
    node: str
    count: int
    operands: tuple[str, ...]
    results: tuple[str, ...]
    main: bool


@dataclass(frozen=True)
class Folded:
    """Layers with equal ops and layouts, described once: ``names``, and ``ways`` of their ops.

    ``time_s`` is their predicted total time, if the plan has costs.
    """

    names: tuple[str, ...]
    ways: tuple[Way, ...]
    time_s: float | None = None


@dataclass(frozen=True)
class Sent:
    """Equal collectives in rank 0's graphs; ``bytes`` is the operand of one on one rank.

    ``bytes`` is None if a size is symbolic.
    """

    kind: str
    ranks: int
    bytes: int | None
    count: int
    node: str


@dataclass(frozen=True)
class Summary:
    """Summary of a plan. Tensors are rows of plan.json; bytes are per rank.

    ``marks`` are the marks of the chosen point. ``replicas`` is the entry of plan.json, if any.
    """

    folder: str
    tool: str
    model: str
    model_sha256: str
    device: str
    mesh: tuple[int, ...]
    ranks: int
    search: str
    points: int
    chosen: int | None
    predicted: Mapping[str, Any]
    training: Mapping[str, Any] | None
    dims: Mapping[str, DimEntry]
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    parameters: tuple[TensorEntry, ...]
    layers: tuple[Folded, ...]
    collectives: tuple[Sent, ...]
    files: int
    files_bytes: int
    pins: PinsEntry | None = None
    marks: tuple[str, ...] = ()
    replicas: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all fields for the JSON encoder."""
        return {"schema": 1, **asdict(self)}


def summarise(plan: Plan) -> Summary:
    """Return the summary of ``plan``; raises `UserError` if a graph of rank 0 cannot be read."""
    document: Any = plan.document
    training, options, state = document.get("training"), None, list[Any]()
    if training is not None:
        options = {name: training[name] for name in TRAINING_OPTIONS}
        state = [row for row in training["state"] if row["kind"] in ("parameter", "buffer")]
    paths = [plan.file_path(name) for name in plan.files]
    return Summary(
        str(plan.folder),
        document["tool"],
        plan.model_name,
        plan.model_sha256,
        document["device"],
        plan.mesh,
        plan.ranks,
        document["search"]["name"],
        len(document["frontier"]),
        document["chosen"],
        document["predicted"],
        options,
        document.get("dims", {}),
        tuple(document["inputs"]),
        tuple(document["outputs"]),
        tuple([*document["parameters"], *state]),
        tuple(_layers(document["strategies"], read_costs(plan))),
        tuple(_count_sent(collectives_of(plan))),
        len(paths),
        sum(path.stat().st_size for path in paths if path.is_file()),
        document.get("pins"),
        _marks(document["frontier"], document["chosen"]),
        document.get("replicas"),
    )


def _marks(points: Sequence[Mapping[str, Any]], chosen: int | None) -> tuple[str, ...]:
    """Return the marks of the chosen point; older plans have none."""
    found = (point for point in points if point["index"] == chosen)
    return tuple(mark for point in found for mark in point.get("marks", ()))


def collectives_of(plan: Plan) -> list[Collective]:
    """Return the collectives of rank 0, in the order of its graphs."""
    graphs = (read_graph(plan.file_path(path.name), 0) for path in _graphs_of(plan))
    return [one for graph in graphs for one in graph.collectives]


def _graphs_of(plan: Plan) -> list[Path]:
    """Return the graphs of rank 0, in an order in which they can run."""
    if plan.staged is not None:
        return [plan.graph(0, name) for name in plan.staged.graphs[0]]
    return [plan.graph(0)] + ([plan.graph(0, UPDATE)] if "training" in plan.document else [])


def layout_text(layout: Sequence[str]) -> str:
    """Return a layout for display: S(1) on one axis, [S(0), R] on two, R if replicated."""
    return layout[0] if len(layout) == 1 or {*layout} == {"R"} else f"[{', '.join(layout)}]"


def part_bytes(entry: TensorEntry, mesh: Sequence[int]) -> int | None:
    """Return the bytes of one rank's part of a tensor; None if a size is symbolic."""
    if any(isinstance(size, str) for size in entry["shape"]):
        return None
    try:
        tensor = tensor_of(entry, tuple(mesh))
        return math.prod(tensor.local_shape()) * dtype_of(tensor.dtype).itemsize
    except (UserError, AttributeError):
        return None


def _count_sent(collectives: Sequence[Collective]) -> list[Sent]:
    counts = Counter((one.kind, len(one.group), one.bytes) for one in collectives)
    first: dict[object, str] = {}
    for one in collectives:
        first.setdefault((one.kind, len(one.group), one.bytes), one.node)
    return [Sent(*key, count, first[key]) for key, count in counts.items()]


def _layers(rows: Sequence[StrategyEntry], costs: Mapping[str, NodeCost] | None) -> list[Folded]:
    """Return the layers of the forward pass, equal layers once; the rest of the step last."""
    rows = [row for row in rows if row["op"] != "Constant"]
    later = [row for row in rows if _LATER.search(row["node"])]
    forward = [row for row in rows if not _LATER.search(row["node"])]
    members: dict[str, list[StrategyEntry]] = {}
    for name, row in zip(_layer_names(forward, costs), forward, strict=True):
        members.setdefault(name, []).append(row)
    groups: dict[object, list[str]] = {}
    for name, own in members.items():
        key = tuple((row["op"], str(row["operands"]), str(row["results"])) for row in own)
        groups.setdefault(key, []).append(name)
    folded = []
    for names in groups.values():
        time_s = None
        if costs:
            time_s = sum(cost.time_s for cost in costs.values() if cost.layer in names)
        folded.append(Folded(tuple(names), _ways(members[names[0]]), time_s))
    return [*folded, Folded(("backward and update",), _ways(later))] if later else folded


def _layer_names(
    rows: Sequence[StrategyEntry], costs: Mapping[str, NodeCost] | None
) -> Sequence[str]:
    """Return the layer of each row from the costs; a row without costs joins the row before it."""
    if not costs:
        return row_layers(rows)
    found, last = [], "start"
    for row in rows:
        last = costs[row["node"]].layer if row["node"] in costs else last
        found.append(last)
    return found


def _ways(rows: Sequence[StrategyEntry]) -> tuple[Way, ...]:
    ways: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for row in rows:
        layouts = (_texts(row["operands"]), _texts(row["results"]))
        ways.setdefault((row["op"], *layouts), []).append(row["node"])
    return tuple(
        Way(op, nodes[0], len(nodes), operands, results, op in _MAIN or op.endswith("Attention"))
        for (op, operands, results), nodes in ways.items()
    )


def _texts(layouts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(layout_text(layout) if layout else "-" for layout in layouts)
