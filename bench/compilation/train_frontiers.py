"""Compile training steps to a frontier on 64 devices, and describe its points.

    python bench/compilation/train_frontiers.py            PaSE's models and GPT-3 175B
    python bench/compilation/train_frontiers.py alexnet --devices 8 --device gtx1080ti
    python bench/compilation/train_frontiers.py --write    into docs/benchmarks.md too

The step is AdamW on a cross entropy, over the whole batch. PaSE's models have the sizes of its
Table II (see bench/search/table_two.py), GPT-3 175B its own. Weights are holes in files; no tensor
is ever allocated. There is one mesh, as square as possible. With ``--table-two``, or ``--write``,
the fastest steps on 32 GTX 1080 Ti are searched too, on all meshes, and printed next to that table.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from search import table_two
from search.table_two import chosen
from search_graphs import prepare_model, training_graph, training_spec
from sections import write_section

from compilation.compile_time import square, warm_up
from compilation.train_layers import GROUPS, PASE
from tensoropt.compiler.cost.device import Device, load_device
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.graph import Argument, Graph, Op
from tensoropt.compiler.search.frontier.candidate import Candidate
from tensoropt.compiler.search.frontier.points import fastest, knee, leanest, recompute_of
from tensoropt.compiler.search.frontier.search import (
    FrontierPoint,
    FrontierResult,
    SearchOptions,
    search_candidates,
)
from tensoropt.compiler.search.frontier.steps import read_graphs
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import Parser, run_command

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
"""The models, and their sizes that differ from the catalogue."""

_STEP: Mapping[str, Mapping[str, Any]] = {"gpt3_175b": {"precision": "bfloat16"}}

_TEXT = """
## Training steps

`python bench/compilation/train_frontiers.py --write`: the step that trains a model with AdamW, from
the ONNX file of its forward pass to the frontier on {devices} {device} as {mesh}. PaSE's models
have the sizes of its Table II, GPT-3 175B a batch of 64 sequences of 2048, computed in bfloat16 on
float32 parameters. Processor seconds of each phase: `prepare` reads and prepares the forward graph,
`steps` builds gradients and update for each different recompute mode, `tables` and `search` cover
all modes together, with the costing of up to {points} points each as the graphs that they lead to.
Nodes and variables of the search are of the step with the fastest point.

{phases}

The points: predicted time of a step and memory of a device, the recomputed activations, and the
average number of parts, by bytes, of the parameters and of the moments of the optimizer: 1 is a
copy on every device; the number of devices corresponds to ZeRO's third stage.

{frontiers}

The splits of layers in these points, with the letters of PaSE's Table II, the most common first.

{cuts}
"""

_TABLE_TEXT = f"""
## Splits of the fastest training steps, compared with PaSE's Table II

`python bench/compilation/train_frontiers.py --write`: as the table of inference above, for PaSE's
own problem: a training step (AdamW here) on {table_two.DEVICES} GTX 1080 Ti. Left are PaSE's
splits, right the forward ops of the same layers in the plan of least predicted time, over all
meshes of {table_two.DEVICES} with up to three axes; the gradient of an op is split like the op.

Differences remain: PaSE's devices are a flat {table_two.DEVICES} with one bandwidth and no latency,
ours are 4 nodes of 8. Its LSTM is one vertex, ours is the products of the inputs and of the steps.
If only the batch of its layers is split, PaSE replicates all weights; here gradients and moments
may still be split.
"""


@dataclass
class Compiled:
    """A compilation, with processor seconds per phase."""

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
    """Compile the training step of a catalogue model with ``sizes`` replaced.

    The frontier covers all recompute alternatives together.
    """
    clock = _Clock()
    module = clock.timed("prepare", lambda: prepare_model(name, sizes))
    spec = training_spec(**_STEP.get(name, {}))
    step = BuildTrainingStepPass.from_spec(spec, "auto")
    clock.timed("steps", lambda: driver.train(module, step))
    graphs = clock.timed("steps", lambda: read_graphs(module))

    def tables(graph: Graph) -> MeshTables:
        made = mesh_tables(graph, mesh, device)
        assert made.problem is not None
        return made

    candidates = [
        Candidate(mesh, partial(clock.timed, "tables", partial(tables, graph)), alternative)
        for alternative, graph in graphs.items()
    ]
    started = time.process_time()
    result = search_candidates(candidates, options)
    clock.seconds["search"] = time.process_time() - started - clock.seconds["tables"]
    return Compiled(name, graphs, result, {**clock.seconds, "whole": sum(clock.seconds.values())})


def state_cuts(point: FrontierPoint) -> dict[str, float]:
    """Return the average number of parts of parameters and of moments, by bytes."""
    graph = point.tables.graph
    whole: dict[str, int] = {}
    held: dict[str, float] = {}
    for index, node in enumerate(graph.nodes):
        is_state = isinstance(node, Argument) and node.state not in (None, "buffer")
        if not is_state or index not in point.strategies:
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
    """Return the number of parts of a layout."""
    return math.prod(n for n, p in zip(mesh, layout.placements, strict=True) if not p.is_replicate)


def phases_table(compiled: Sequence[Compiled]) -> str:
    """Return the seconds of each phase in Markdown."""
    phases = list(compiled[0].seconds)
    lines = [_line("model", "steps", "nodes", "variables", *phases, "points", "epsilon")]
    lines.append("|---" * lines[0].count(" | ") + "|---|")
    for held in compiled:
        tables = held.picks["fastest"].tables
        nodes = sum(isinstance(node, Op) for node in tables.graph.nodes)
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
    options = SearchOptions(epsilon=given.epsilon, time_limit_s=given.limit, points=given.points)
    for name in given.models or SIZES:
        yield compile_step(name, SIZES[name], mesh, device, options)


def main() -> None:
    """Print the tables, and write them with --write."""
    given = _parser().parse()
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


def _parser() -> Parser:
    parser = Parser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*SIZES, []], help="default all")
    parser.add_argument("--devices", type=int, default=64)
    parser.add_argument("--device", default="h200", help="type of the devices, as in tensoropt-opt")
    parser.add_argument("--epsilon", type=float, default=0.05)
    parser.add_argument("--points", type=int, default=50, help="number of points that are costed")
    parser.add_argument("--limit", type=float, default=480.0, help="seconds of each model")
    parser.add_argument("--table-two", action="store_true", help="compare with PaSE's Table II too")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md too")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
