"""Measure the splits of the keys of attention: ``python bench/search/attention_splits.py``.

The model is a training step of a GPT with 12 layers of width 768. For each mesh and each set of
splits: the strategies of an attention, the entries of all tables, the seconds of tables and of a
search with bound 5%, both of processor time, and the fastest and the leanest plan by the tables.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.gpt import Gpt
from graphs.trained import LOSS

from tensoropt.compiler.api.model import Model
from tensoropt.compiler.api.training import Training, step_of
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.mesh import factorisations
from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.problem.cost_tables import Memo
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.compiler.sharding.ops.attention_parts import KEYS
from tensoropt.dialects.onnx import ATTENTION, ATTENTIONS
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import Parser, run_command

_SETS = ("rows", "keys", "ring")
"""Splits of the sequence: of rows, also of keys, also of both together."""
_HEAD = "splits   mesh  options    entries tables s search s    fastest s leanest bytes"
_EPSILON, _LIMIT_S = 0.05, 300.0


def narrowed(rule: Rule, splits: str) -> Rule:
    """Return the rule of an attention with only some splits of the sequence."""
    if splits == "ring":
        return rule
    rule = replace(rule, joint=())
    if splits == "keys":
        return rule
    factors = list(rule.factors)
    factors[KEYS] = replace(factors[KEYS], can_split=False)
    return replace(rule, factors=tuple(factors))


def _restrict(graph: Graph, splits: str) -> None:
    rules = dict[int, Rule]()  # equal ops keep one object
    for node in graph.nodes:
        if isinstance(node, Op) and node.info.name in ATTENTIONS:
            node.rule = rules.setdefault(id(node.rule), narrowed(node.rule, splits))


def _attention_options(tables: MeshTables) -> int:
    return next(
        len(tables.options[index])
        for index, node in enumerate(tables.graph.nodes)
        if isinstance(node, Op) and node.info.name == ATTENTION
    )


def _row(splits: str, graph: Graph, mesh: Mesh, device: Device) -> str:
    started = time.process_time()
    tables = mesh_tables(graph, mesh, device, Memo(mesh, device))
    problem = tables.problem
    made = time.process_time()
    found = solve_frontier(problem, epsilon=_EPSILON, time_limit_s=_LIMIT_S)
    tables_s, search_s = made - started, time.process_time() - made
    entries = sum(math.prod(own.time_s.shape) for own in (*problem.nodes, *problem.edges))
    fastest_s = min(point.time for point in found.points)
    leanest_bytes = min(point.memory for point in found.points)
    return (
        f"{splits:6} {mesh!s:>6} {_attention_options(tables):8} {entries:10} {tables_s:8.2f} "
        f"{search_s:8.2f} {fastest_s:12.6g} {leanest_bytes:13.7g}"
    )


def _rows(given: argparse.Namespace) -> Iterator[str]:
    request = Request(devices=given.devices, device=given.device)
    step = step_of(Training(loss=LOSS, recompute="none"), request)
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        model = Gpt(
            layers=given.layers, width=768, heads=12, vocabulary=50304, sequence=given.tokens,
            batch=given.batch, dtype="float32",
        )  # fmt: skip
        path = model.build("gpt").save(Path(folder))
        for splits in _SETS:
            (graph,) = Model(path, {}).program(step).graphs.values()
            _restrict(graph, splits)
            for mesh in factorisations(given.devices):
                yield _row(splits, graph, mesh, request.description)


def main() -> int:
    """Print a row per mesh and set of splits."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=1024, help="of a text")
    parser.add_argument("--batch", type=int, default=8)
    print(_HEAD, flush=True)
    for row in _rows(parser.parse_args()):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
