"""Splits of the models of PaSE's Table II in the fastest plans, next to the table's strategies.

    python bench/search/table_two.py [--write]

Table II of PaSE (arXiv 2407.04001) reports the strategies found for training on 32 GTX 1080 Ti, 4
nodes of 8: for each layer, the number of parts of each dimension of the iteration space. This
script searches the least time of one *inference* step on every mesh of 32 of these devices with up
to three axes, and reads the splits of the ops of the same layers from the fastest plan.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from search_graphs import model_graph
from sections import write_section

from tensoropt.compiler.comparison.data_parallel import data_parallel_choice
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.layout.mesh import factorisations
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.program.evaluate import Evaluator
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.frontier.points import mesh_name
from tensoropt.compiler.search.frontier.search import FrontierPoint, distinct_meshes, frontier_point
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_seconds
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = [
    "FLAT_SCORES",
    "LOOKUP",
    "MODELS",
    "PRODUCT",
    "SCORES",
    "VALUES",
    "Group",
    "Model",
    "Plan",
    "chosen",
    "cuts",
    "fastest_plan",
    "table",
]

DEVICES = 32
GraphOf = Callable[..., Graph]
"""Builds a graph from the name of a model and its sizes."""

_MOST_AXES = 3

Place = tuple[int, int]
"""A dimension of operand 0 or 1, or of the result (-1), counted from either end."""

_CONV = {"b": (-1, 0), "c": (1, 1), "h": (-1, 2), "w": (-1, 3), "n": (-1, 1), "r": (1, 2)}
_CONV["s"] = (1, 3)
_FC = {"b": (-1, 0), "n": (-1, 1), "c": (0, 1)}
LOOKUP = {"b": (1, 0), "s": (1, 1), "d": (-1, -1), "v": (0, 0)}
PRODUCT = {"b": (-1, 0), "s": (-1, 1), "d": (0, -1), "e": (-1, -1)}
_SEQUENCE_FIRST = {"b": (-1, 1), "s": (-1, 0), "d": (0, -1), "e": (-1, -1)}
_STEP = {"b": (-1, 0), "d": (0, -1), "e": (-1, -1)}
_TURNED_LOOKUP = {"b": (1, 1), "s": (1, 0), "d": (-1, -1), "v": (0, 0)}
_TURNED_SCORES = {"b": (-1, 1), "s": (-1, 0), "d": (0, -1), "v": (-1, -1)}
FLAT_SCORES = {"b": (-1, 0), "d": (0, -1), "v": (-1, -1)}
SCORES = {"b": (-1, 0), "s": (-1, 2), "h": (-1, 1), "k": (0, -1)}
VALUES = {"b": (-1, 0), "s": (-1, 2), "h": (-1, 1), "k": (-1, -1)}


@dataclass(frozen=True)
class Group:
    """Layers of Table II with their reported strategy, and a pattern for the names of our ops.

    ``dims`` maps the letters of our splits to dimensions of the op's tensors.
    """

    layers: str
    reported: str
    ops: str = ""
    kind: str = ""
    dims: Mapping[str, Place] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """A model of the catalogue at PaSE's sizes, and its layers."""

    title: str
    name: str
    sizes: Mapping[str, int]
    groups: Sequence[Group]


_WHOLE = "(32, 1, 1, 1, 1, 1, 1)"
_EMBEDDING = "bsdv (1, 1, 1, {})"

MODELS = (
    Model(
        "AlexNet",
        "alexnet",
        {"batch": 128},
        (
            Group("Conv 1-4", f"bchwnrs {_WHOLE}", r"conv[1-4]/conv", "Conv", _CONV),
            Group("Conv 5", "bchwnrs (16, 2, 1, 1, 1, 1, 1)", r"conv5/conv", "Conv", _CONV),
            Group("FC 1, FC 3", "bnc (1, 4, 8)", r"classifier[02]/gemm", "Gemm", _FC),
            Group("FC 2", "bnc (1, 8, 4)", r"classifier1/gemm", "Gemm", _FC),
            Group("Softmax", "bn (1, 4)"),
        ),
    ),
    Model(
        "InceptionV3",
        "inception_v3",
        {"batch": 128},
        (
            Group("stem", "", r"conv\d[ab]/conv", "Conv", _CONV),
            Group("Modules A-D", f"bchwnrs {_WHOLE}", r"mixed(5.|6.|7a)/.*conv", "Conv", _CONV),
            Group(
                "Module E", "bchwnrs (16, 1, 1, 1, 2, 1, 1)", r"mixed7[bc]/.*conv", "Conv", _CONV
            ),
            Group("FC", "bnc (1, 2, 16)", r"classifier0/gemm", "Gemm", _FC),
            Group("Softmax", "bn (1, 2)"),
        ),
    ),
    Model(
        "RNNLM",
        "lstm_unrolled",
        {"batch": 64, "width": 2048, "vocabulary": 100_000, "sequence": 32},
        (
            Group("Embedding", _EMBEDDING.format(32), r"tokens/gather", "Gather", _TURNED_LOOKUP),
            Group(
                "LSTM", "lbsde (2, 4, 1, 2, 2)", r"layer./input/matmul", "inputs", _SEQUENCE_FIRST
            ),
            Group("", "", r"layer./step\d+/matmul", "steps", _STEP),
            Group("FC", "bsvd (1, 1, 32, 1)", r"out/matmul", "MatMul", _TURNED_SCORES),
            Group("Softmax", "bsv (1, 1, 32)"),
        ),
    ),
    Model(
        "Transformer",
        "transformer_base",
        {"batch": 64, "sequence": 256, "vocabulary": 50_000},
        (
            Group("Embedding", _EMBEDDING.format(16), r"(tokens|target)/gather", "Gather", LOOKUP),
            Group(
                "Multihead attn",
                "bshck (16, 1, 2, 1, 1)",
                r".*(self|cross)/[qkv]/matmul",
                "q, k, v",
                PRODUCT,
            ),
            Group("", "", r".*(self|cross)/matmul", "scores", SCORES),
            Group("", "", r".*(self|cross)/matmul_1", "values", VALUES),
            Group("", "", r".*(self|cross)/out/matmul", "out", PRODUCT),
            Group("Feed forward", "bsde (16, 1, 1, 2)", r".*mlp/up/matmul", "up", PRODUCT),
            Group("", "", r".*mlp/down/matmul", "down", PRODUCT),
            Group("FC", "bsvd (1, 1, 16, 1)", r"unembed/gemm", "Gemm", FLAT_SCORES),
            Group("Softmax", "bsv (1, 1, 16)"),
        ),
    ),
)

_TEXT = f"""
## Splits of the fastest plans, compared with PaSE's Table II

`python bench/search/table_two.py --write`. Left are the splits in Table II of PaSE (arXiv
2407.04001) for 32 GTX 1080 Ti (4 nodes of 8): the number of parts of each dimension of a layer.
Right are the ops of the same layers in the plan of least predicted time here, over all meshes of
32 with up to {_MOST_AXES} axes, for the device description `gtx1080ti`; letters without a count
are whole.

These are different problems, so agreement proves nothing about either. PaSE plans *training*: if
only the batch is split, every step all-reduces the gradients of all weights, which its splits of
FC, LSTM and embedding layers avoid. Ours is one *inference* step, in which replicated weights
cost memory but no time. PaSE has 32 equal devices with one bandwidth; we have 4 nodes of 8, with
latencies. Its LSTM is one vertex that can also be split between layers (l); ours is unrolled.

Letters: b batch, s sequence, h height (of attention: heads), w width, c in-channels, n
out-channels, r and s filter, d inputs, e outputs, v vocabulary, k channels of a head. Sizes are
from PaSE's code, except the sequence of the RNNLM (32 steps, not 256) and the classes.
Our graphs end with the scores, without the softmax of the loss.
"""


@dataclass(frozen=True)
class Plan:
    """The plan of least time, the least time of data parallelism, and the omitted meshes."""

    point: FrontierPoint
    batch_s: float
    refused: Sequence[str]


def fastest_plan(graph: Graph) -> Plan:
    """Search every mesh; meshes with tables that do not fit into memory are recorded as refused."""
    device = load_device("gtx1080ti")
    meshes = list(factorisations(DEVICES, _MOST_AXES))
    points, plain, refused = [], [], []
    for mesh in distinct_meshes(meshes, device):
        tables = mesh_tables(graph, mesh, device)
        evaluator = Evaluator(tables)
        try:
            choice = tables.decode(solve_min_time(tables.problem).assignment)
            points.append(frontier_point(tables, choice))
        except UserError:
            refused.append(str(mesh))
            continue
        batch = tables.decode(data_parallel_choice(tables.problem, tables))
        plain.append(evaluator.evaluate(batch.tolist()).time_s)
    best = min(points, key=lambda point: (point.time_s, len(point.mesh)))
    return Plan(best, min(plain), refused)


def cuts(node: Op, strategy: Strategy, mesh: Sequence[int], dims: Mapping[str, Place]) -> str:
    """Return the letters of the dimensions that an op splits, each with the number of parts."""
    found = []
    for letter, (tensor, dim) in dims.items():
        held = node.rule.results[0] if tensor < 0 else node.rule.operands[tensor]
        factor = held[dim]
        parts = 1
        for axis in () if factor is None else strategy.axes_of(factor):
            parts *= mesh[axis]
        found += [f"{letter} {parts}"] if parts > 1 else []
    return ", ".join(found) or "whole"


def chosen(group: Group, graph: Graph, plan: FrontierPoint) -> str:
    """Return the splits of the ops of a group, the most common first, with their numbers of ops."""
    counts: Counter[str] = Counter()
    for index, strategy in plan.strategies.items():
        node = graph.nodes[index]
        if isinstance(node, Op) and re.fullmatch(group.ops, node.name):
            counts[cuts(node, strategy, plan.mesh, group.dims)] += 1
    total = counts.total()
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{text} ({n} of {total})" for text, n in counts.most_common())


def _rows(model: Model, graph_of: GraphOf) -> Iterator[str]:
    graph = graph_of(model.name, **model.sizes)
    plan = fastest_plan(graph)
    mesh = mesh_name(plan.point.mesh)
    times = f"{format_seconds(plan.point.time_s)}, only the batch {format_seconds(plan.batch_s)}"
    if plan.refused:
        times += f"; without {', '.join(plan.refused)}, too large to search"
    yield f"| **{model.title}** | | mesh {mesh} | {times} |"
    for group in model.groups:
        cut = chosen(group, graph, plan.point) if group.ops else "-"
        yield f"| {group.layers} | {group.reported} | {group.kind or '-'} | {cut} |"


def table(
    models: Sequence[Model] = MODELS, graph_of: GraphOf = model_graph, step: str = "inference"
) -> str:
    """Return the table in Markdown; ``step`` names the kind of step in ``graph_of``'s graphs."""
    lines = [f"| layers | PaSE, training | ops | ours, {step} |", "|---|---|---|---|"]
    for model in models:
        lines += _rows(model, graph_of)
    return "\n".join(lines)


def main() -> None:
    """Print the table, and write it with --write."""
    parser = Parser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    given = parser.parse()
    text = table()
    print(text)
    if given.write:
        write_section("table_two", f"{_TEXT}\n{text}")


if __name__ == "__main__":
    sys.exit(run_command(main))
