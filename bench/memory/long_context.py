"""The longest context that fits into the memory of the devices, with and without long attention.

    python bench/memory/long_context.py                     LLaMA 3 8B on 8 H100
    python bench/memory/long_context.py --write             into docs/benchmarks.md too

A step trains one sequence with AdamW in bfloat16 and recomputes its blocks; a prefill computes one
sequence in float16. With ONNX Runtime's attention, GroupQueryAttention, a prefill returns caches
too; its kernel makes no scores. Contexts are doubled until no plan fits, and then the middle is
tried. Searched are meshes of up to two axes. Weights are holes in files; no tensor is ever
allocated. The columns are plans with the scores of a whole attention, with attention in blocks that
splits heads or gathers keys, and with rings too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.catalog import MODELS
from graphs.prompt import Prompt
from search_graphs import training_spec
from sections import write_section

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.layout.mesh import factorisations
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.points import fastest, leanest
from tensoropt.compiler.search.frontier.search import FrontierPoint, SearchOptions, search_graphs
from tensoropt.compiler.search.frontier.steps import read_graphs
from tensoropt.compiler.sharding.ops import blocked_attention, runtime_attention
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.dialects.mlir import ir
from tensoropt.passes import block_attention
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.support.flags import Parser, run_command

_WAYS = ("whole scores", "blocks", "blocks and rings")
_STEP, _PREFILL, _OPERATOR = "training step", "prefill", "prefill with GroupQueryAttention"
_FIRST = 2048
_AXES = 2

_TEXT = """
## Longest context

`python bench/memory/long_context.py --write`: the longest context of {model} that fits on {devices}
{device}, with its time and memory per device. A training step is AdamW in bfloat16 on one sequence,
with blocks recomputed; a prefill is one sequence in float16. With GroupQueryAttention it returns
caches, and no rank has the scores of a whole attention.

{table}
"""


@contextmanager
def _limited(way: str) -> Iterator[None]:
    """Leave out the strategies that ``way`` does not have."""
    with ExitStack() as stack:
        if way == _WAYS[0]:
            stack.enter_context(mock.patch.object(block_attention, "_attention_of", _no_attention))
        if way != _WAYS[2]:
            stack.enter_context(mock.patch.object(blocked_attention, "_is_square", _is_not_square))
            stack.enter_context(
                mock.patch.object(runtime_attention, "grouped_extents", _no_extents)
            )
        rule_for.cache_clear()
        yield
    rule_for.cache_clear()


def _no_attention(op: ir.Operation) -> None:
    del op


def _no_extents(info: object, *factors: int) -> None:
    del info, factors


def _is_not_square(info: object) -> bool:
    del info
    return False


def _points(given: argparse.Namespace, context: int, case: str) -> Sequence[FrontierPoint]:
    """Return the points within the capacity of the devices."""
    sizes = {"sequence": context, "batch": 1, "layers": given.layers}
    model: Any = replace(MODELS[given.model], **sizes)  # type: ignore[type-var]
    if case == _OPERATOR:
        model = Prompt(**vars(model))
    trains = case == _STEP
    if trains:
        model = replace(model, dtype="float32")
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        module = driver.load(model.build(given.model).save(Path(folder)), {})
        driver.run_phase(module, "prepare", training=trains)
    if trains:
        spec = training_spec(precision="bfloat16", recompute="blocks")
        driver.train(module, BuildTrainingStepPass.from_spec(spec))
    else:
        driver.advance(module, "rules")
    meshes = list(factorisations(given.devices, _AXES))
    options = SearchOptions(epsilon=0.05, time_limit_s=given.limit, points=10)
    found = search_graphs(read_graphs(module), meshes, load_device(given.device), options).points
    return [point for point in found if not point.is_above_capacity]


def _longest(given: argparse.Namespace, case: str) -> tuple[int, Sequence[FrontierPoint]]:
    """Return the longest context that fits, and its points."""
    context, best = _FIRST, (0, list[FrontierPoint]())
    while points := _points(given, context, case):
        best = context, points
        print(f"  {context}: {_described(points)}", flush=True)
        context *= 2
    middle = best[0] * 3 // 2
    points = _points(given, middle, case) if best[0] else []
    return (middle, points) if points else best


def _described(points: Sequence[FrontierPoint]) -> str:
    ends = fastest(points), leanest(points)
    texts = (f"{format_seconds(p.time_s)}, {format_bytes(p.memory_bytes)}" for p in ends)
    return " to ".join(texts)


def main() -> None:
    """Print the table, and write it with --write."""
    given = _parser().parse()
    lines = [f"| | {' | '.join(_WAYS)} |", "|---" * (len(_WAYS) + 1) + "|"]
    for name in given.cases:
        cells = []
        for way in _WAYS:
            if name == _OPERATOR and way == _WAYS[0]:
                cells.append("no scores")
                continue
            print(f"{name}, {way}", flush=True)
            with _limited(way):
                context, points = _longest(given, name)
            cells.append(f"{context:,}: {_described(points)}" if points else "none")
            print(cells[-1], flush=True)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    text = _TEXT.format(**vars(given), table="\n".join(lines))
    print(text.strip())
    if given.write:
        write_section("long_context", text)


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("--model", choices=["llama3_8b", "llama3_70b"], default="llama3_8b")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--device", default="h100", help="type of the devices, as in tensoropt-opt")
    cases = [_STEP, _PREFILL, _OPERATOR]
    parser.add_argument("--cases", nargs="+", choices=cases, default=cases, help="rows")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of each search")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
