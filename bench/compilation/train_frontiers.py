"""Compile training steps to a frontier on 64 devices, and look at how the points train.

    python bench/compilation/train_frontiers.py                             PaSE's models and GPT-3 175B
    python bench/compilation/train_frontiers.py alexnet --devices 8 --device gtx1080ti
    python bench/compilation/train_frontiers.py --write                     into docs/benchmarks.md too

The step is that of AdamW on a cross entropy, over the whole batch. Sizes are those of Table II of
PaSE (see `table_two.py`), GPT-3 175B has its own; weights are holes, no tensor is ever made. One
mesh, as square as it goes. With ``--table-two``, or ``--write``, the fastest steps on 32 GTX 1080
Ti are searched too, on all meshes, and printed beside that table.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from search import table_two
from search.table_two import chosen
from search_graphs import prepared, training_graph, training_spec
from sections import write_section

from compilation.compile_time import square, warm_up
from compilation.train_layers import GROUPS, PASE
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.layout.layout import Layout
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.points import fastest, knee, leanest, recompute_of
from tensoropt.compiler.search.frontier.search import (
    FrontierPoint,
    FrontierResult,
    SearchOptions,
    search_tables,
)
from tensoropt.compiler.search.frontier.steps import read_graphs, search_steps
from tensoropt.compiler.search.problem.graph import Graph
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.passes.build_training_step import BuildTrainingStepPass

__all__ = [
    "SIZES",
    "Compiled",
    "compile_step",
    "cuts_table",
    "frontier_table",
    "phases_table",
    "state_cuts",
]

T = TypeVar("T")
Say = Callable[[str], None]
_PICKS: Mapping[str, Callable[[Sequence[FrontierPoint]], FrontierPoint]] = {
    "fastest": fastest,
    "knee": knee,
    "leanest": leanest,
}

SIZES: dict[str, dict[str, Any]] = {
    **{model.name: dict(model.sizes) for model in PASE},
    "gpt3_175b": {"batch": 64, "dtype": "float32"},
}
"""The models, and what differs from the catalogue."""

_STEP: Mapping[str, Mapping[str, Any]] = {"gpt3_175b": {"precision": "bfloat16"}}

_TEXT = """
## Training steps

`python bench/compilation/train_frontiers.py --write`: the step that trains a model with AdamW, from the ONNX
file of its forward pass to the frontier on {devices} {device} as {mesh}. PaSE's models have the
sizes of its Table II, GPT-3 175B a batch of 64 sequences of 2048, computed in bfloat16 on float32
parameters. Processor seconds of each phase: `prepare` reads and prepares the forward graph, `steps`
builds gradients and update for each different way to recompute activations, `tables` and `search`
are of all of these together, with the costing of up to {points} points each as the graphs they lead
to. Nodes and variables of the search are those of the step with the fastest point.

{phases}

The points: predicted time of a step and memory of a device, which activations are recomputed, and
into how many parts the parameters and the moments of the optimizer are cut on average, by bytes: 1
is a copy on every device, as many as devices is what ZeRO's third stage does by hand.

{frontiers}

How layers are cut in these points; letters as beside PaSE's Table II, the most common first.

{cuts}
"""

_TABLE_TEXT = f"""
## How the fastest training steps split, beside PaSE's Table II

`python bench/compilation/train_frontiers.py --write`: as the table of inference above, for the same problem as
PaSE's: a training step (AdamW here) on {table_two.DEVICES} GTX 1080 Ti. Left what PaSE reports,
right the forward ops behind the same layers in the plan of least predicted time, of all meshes of
{table_two.DEVICES} with up to three axes; the gradient of an op is cut as the op is.

What still differs: PaSE's devices are a flat {table_two.DEVICES} with one bandwidth and no latency,
ours are 4 nodes of 8. Its LSTM is one vertex, ours is the products of its inputs and those of its
steps. Where its layers are cut by nothing but the batch, it keeps all weights on every device; here
gradients and moments may be cut then too.
"""


@dataclass
class Compiled:
    """One compilation, with processor seconds per phase."""

    name: str
    graphs: Mapping[str, Graph]
    result: FrontierResult
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def picks(self) -> dict[str, FrontierPoint]:
        return {name: pick(self.result.points) for name, pick in _PICKS.items()}


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, phase: str, make: Callable[[], T]) -> T:
        started = time.process_time()
        made = make()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.process_time() - started
        return made


def compile_step(
    name: str, sizes: Mapping[str, Any], mesh: Mesh, device: Device, options: SearchOptions
) -> Compiled:
    """Compile the training step of a model of the catalogue, with some of its sizes changed.

    The frontier is that of all ways to recompute activations together.
    """
    clock = _Clock()

    def search(graph: Graph, limit_s: float | None, say: Say) -> FrontierResult:
        tables = mesh_tables(graph, mesh, device)
        clock.timed("tables", lambda: tables.problem)
        own = replace(options, time_limit_s=limit_s)
        return clock.timed("search", lambda: search_tables([tables], 1, own))

    module = clock.timed("prepare", lambda: prepared(name, sizes))
    spec = training_spec(**_STEP.get(name, {}))
    step = BuildTrainingStepPass.of(spec, "auto")
    clock.timed("steps", lambda: driver.train(module, step))
    graphs = clock.timed("steps", lambda: read_graphs(module))
    limit_s = options.time_limit_s
    result = search_steps(graphs, search, _silent, [mesh.shape], limit_s)
    return Compiled(name, graphs, result, {**clock.seconds, "whole": sum(clock.seconds.values())})


def _silent(text: str) -> None:
    """Say nothing."""


def state_cuts(point: FrontierPoint) -> dict[str, float]:
    """Return, of parameters and of moments, all bytes over those that one device holds."""
    graph = point.tables.graph
    whole: dict[str, int] = {}
    held: dict[str, float] = {}
    for index, node in enumerate(graph.nodes):
        if node.state is None or node.state == "buffer" or index not in point.strategies:
            continue
        kind = "parameters" if node.state == "parameter" else "moments"
        info = graph.values[node.results[0]].info
        assert info is not None
        size = info.memory_bytes
        whole[kind] = whole.get(kind, 0) + size
        ways = _ways(point.strategies[index].results[0], point.mesh)
        held[kind] = held.get(kind, 0.0) + size / ways
    return {kind: whole[kind] / held[kind] for kind in whole}


def _ways(layout: Layout, mesh: Sequence[int]) -> int:
    """Return into how many parts a layout cuts."""
    return math.prod(n for n, p in zip(mesh, layout.placements, strict=True) if not p.is_replicate)


def phases_table(compiled: Sequence[Compiled]) -> str:
    """Return the seconds of each phase in Markdown."""
    phases = list(compiled[0].seconds)
    lines = [_line("model", "steps", "nodes", "variables", *phases, "points", "epsilon")]
    lines.append("|---" * lines[0].count(" | ") + "|---|")
    for held in compiled:
        tables = held.picks["fastest"].tables
        nodes = sum(node.kind == "op" for node in tables.graph.nodes)
        counts = len(held.graphs), nodes, len(tables.problem.nodes)
        times = [f"{held.seconds[phase]:.2f}" for phase in phases]
        epsilon = held.result.epsilon
        reached = "none" if epsilon is None else f"{epsilon:.1%}"
        points = len(held.result.points)
        lines.append(_line(held.name, *counts, *times, points, reached))
    return "\n".join(lines)


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def frontier_table(compiled: Sequence[Compiled]) -> str:
    """Return the fastest, knee and leanest points in Markdown."""
    heads = ("time", "compute", "communication", "memory", "recomputed", "parameters", "moments")
    lines = [_line("model", "point", *heads), "|---" * (len(heads) + 2) + "|"]
    for held in compiled:
        for name, point in held.picks.items():
            times = (point.time_s, point.compute_s, point.communication_s)
            cuts = state_cuts(point)
            shown = (f"{cuts.get(kind, 1):.1f}" for kind in ("parameters", "moments"))
            memory, again = format_bytes(point.memory_bytes), recompute_of(point)
            line = (*map(format_seconds, times), memory, again, *shown)
            lines.append(_line(held.name, name, *line))
    return "\n".join(lines)


def cuts_table(compiled: Sequence[Compiled]) -> str:
    lines = [_line("model", "layers", *_PICKS), "|---" * (len(_PICKS) + 2) + "|"]
    for held in compiled:
        for group in GROUPS[held.name]:
            if group.ops:
                cuts = [chosen(group, point.tables.graph, point) for point in held.picks.values()]
                layers = ", ".join(filter(None, [group.layers, group.kind]))
                lines.append(_line(held.name, layers, *cuts))
    return "\n".join(lines)


def _all_compiled(given: argparse.Namespace) -> Iterator[Compiled]:
    device, mesh = load_device(given.device), square(given.devices)
    options = SearchOptions("ft", 0, given.epsilon, given.limit, given.points)
    for name in given.models or SIZES:
        yield compile_step(name, SIZES[name], mesh, device, options)


def main() -> None:
    """Print the tables, and write them where asked."""
    given = _parser().parse_args()
    warm_up(given.device)
    compiled = []
    for held in _all_compiled(given):
        compiled.append(held)
        print(phases_table([held]).splitlines()[-1], flush=True)
    parts = {
        "phases": phases_table(compiled),
        "frontiers": frontier_table(compiled),
        "cuts": cuts_table(compiled),
        "mesh": square(given.devices),
    }
    text = _TEXT.format(**vars(given), **parts)
    print(text.strip())
    if given.write:
        write_section("training", text)
    if given.table_two or given.write:
        two = f"{_TABLE_TEXT}\n{table_two.table(PASE, training_graph, 'training')}"
        print(two)
        if given.write:
            write_section("training_table_two", two)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", choices=[*SIZES, []], help="default all")
    parser.add_argument("--devices", type=int, default=64)
    parser.add_argument("--device", default="h200", help="what they are, as in tensoropt-opt")
    parser.add_argument("--epsilon", type=float, default=0.05)
    parser.add_argument("--points", type=int, default=50, help="that are costed")
    parser.add_argument("--limit", type=float, default=480.0, help="seconds of each model")
    parser.add_argument("--table-two", action="store_true", help="and beside PaSE's Table II")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser


if __name__ == "__main__":
    main()
