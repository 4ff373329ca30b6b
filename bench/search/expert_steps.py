"""Hand-written plans for a training step, next to the plans that a search finds.

    python bench/search/expert_steps.py MODEL.onnx --loss LOSS --devices 64 --device h100
    python bench/search/expert_steps.py --search-time 100 --plot docs/frontier.svg

Enumerates the combinations that people write by hand: data times tensor parallelism (Megatron-LM's
splits of products, attention and embeddings; arXiv 1909.08053), a ZeRO stage (arXiv 1910.02054) and
a recompute policy. Sequence parallelism (arXiv 2205.05198) is covered: between the operations that
Megatron splits, the layouts of the fastest plan are taken, so each combination is at least as fast
as by hand. Every plan is costed as a program, as the points of a search are.

Prints the undominated combinations, then the frontier of a default search. The last line has the
largest factor by which a combination is faster than the fastest found plan with no more memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphs.catalog import MODELS
from graphs.trained import LOSS

from tensoropt.compiler.api.model import Model
from tensoropt.compiler.api.training import Training, step_of
from tensoropt.compiler.comparison.megatron import model_factors
from tensoropt.compiler.planning.objectives import search
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.program.batch import follow_batch
from tensoropt.compiler.program.evaluate import evaluator_of
from tensoropt.compiler.program.graph import Argument, Graph, Op
from tensoropt.compiler.report.frontier import FrontierReport, Reference
from tensoropt.compiler.report.plot import plot_frontier
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.frontier.search import FrontierPoint, unbeaten
from tensoropt.compiler.search.frontier.steps import Graphs
from tensoropt.compiler.search.problem.cost_tables import Flags, Memo
from tensoropt.compiler.search.problem.problem import NodeTable, Problem
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.search.problem.training_tables import mesh_tables
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.flags import Parser, run_command

ZERO_STAGES = {0: "everything whole", 2: "gradients and moments split", 3: "parameters split too"}
"""Stage 1 is stage 2 here: a gradient is as split as its moments."""
DATA, TENSOR = 0, 1  # mesh axes


@dataclass(frozen=True)
class Combination:
    """A hand-written plan and its cost."""

    data: int
    tensor: int
    zero: int
    recompute: str
    time_s: float
    memory_bytes: int

    def __str__(self) -> str:
        name = f"data {self.data:>3} x tensor {self.tensor:>3}, ZeRO {self.zero}, {self.recompute}"
        return f"{name:48} {format_seconds(self.time_s):>9} {format_bytes(self.memory_bytes):>10}"


def combinations(graphs: Graphs, request: Request) -> Iterator[Combination]:
    """Yield all combinations that have a plan: for each mesh, recompute policy and ZeRO stage."""
    device, count = request.description, request.devices
    for tensor in (n for n in range(1, count + 1) if count % n == 0):
        mesh = Mesh((count // tensor, tensor))
        memo = Memo(mesh, device)
        for alternative, graph in graphs.items():
            tables = mesh_tables(graph, mesh, device, memo)
            wishes = _wishes(graph)
            for stage in ZERO_STAGES:
                cost = _cost(tables, wishes, stage)
                if cost is not None:
                    yield Combination(*mesh.shape, stage, alternative.recompute, *cost)


def _cost(tables: MeshTables, wishes: _Wishes, stage: int) -> tuple[float, int] | None:
    """Return the seconds and bytes of the fastest plan of one combination, None without one."""
    masks = {**_op_masks(tables, wishes), **_state_masks(tables, stage)}
    try:
        point = solve_min_time(_narrowed(tables.problem, tables.on_variables(masks)))
    except UserError:
        return None
    cost = evaluator_of(tables).emitted(tables.decode(point.assignment))
    return cost.time_s, cost.memory_bytes


_Wishes = Mapping[int, tuple[int | None, int | None]]
"""By op: the factors that the data axis and the tensor axis split."""


def _wishes(graph: Graph) -> _Wishes:
    batch, model = follow_batch(graph).factors, model_factors(graph)
    return {
        i: (batch.get(i), model.get(i))
        for i, node in enumerate(graph.nodes)
        if isinstance(node, Op) and node.follows is None and node.is_forward
        if i in batch or i in model
    }


def _op_masks(tables: MeshTables, wishes: _Wishes) -> dict[int, Flags]:
    """Return the options of each op that split as Megatron does, as far as its rule offers it."""
    masks = {}
    for index, (data, tensor) in wishes.items():
        roles = [option.roles for option in tables.options[index]]
        by_data = np.array([data is None or own[DATA] == data for own in roles])
        by_tensor = np.array([tensor is None or own[TENSOR] == tensor for own in roles])
        for mask in (by_data & by_tensor, by_tensor, by_data):
            if mask.any():
                masks[index] = mask
                break
    return masks


def _state_masks(tables: MeshTables, stage: int) -> dict[int, Flags]:
    """Return the layouts of parameters and moments under a ZeRO ``stage`` over the data axis."""
    masks = {}
    for index, node in enumerate(tables.graph.nodes):
        if not isinstance(node, Argument) or node.state in (None, "buffer"):
            continue
        is_split = stage >= (3 if node.state == "parameter" else 2)
        placements = [own.results[0].placements[DATA] for own in tables.options[index]]
        mask = np.array([placement.is_split == is_split for placement in placements])
        masks[index] = mask if mask.any() else np.ones(len(mask), np.bool_)
    return masks


def _narrowed(problem: Problem, masks: Mapping[int, Flags]) -> Problem:
    """Return ``problem`` with only the options that ``masks`` allow, per node."""
    known: dict[tuple[int, bytes], NodeTable] = {}

    def narrowed(number: int, node: NodeTable) -> NodeTable:
        mask = masks.get(number)
        if mask is None or not mask.any():
            return node
        key = id(node), mask.tobytes()
        if key not in known:
            time_s = np.where(mask, node.time_s, np.inf)
            known[key] = NodeTable(time_s, node.static_bytes, node.transient_bytes)
        return known[key]

    return Problem([narrowed(n, node) for n, node in enumerate(problem.nodes)], problem.edges)


def worst_ratio(experts: Sequence[Combination], points: Sequence[FrontierPoint]) -> float:
    """Return the largest ratio of a found plan's time to an expert plan's time.

    Each plan of an expert is compared with the fastest found plan that needs no more memory.
    """

    def ratio(expert: Combination) -> float:
        fits = [p.time_s for p in points if p.memory_bytes <= expert.memory_bytes]
        return min(fits, default=float("inf")) / expert.time_s

    return max(map(ratio, experts))


def _llama(folder: Path) -> Path:
    """Write Llama 3 8B into ``folder``; its weights are holes in a file."""
    model = replace(MODELS["llama3_8b"], batch=64, sequence=2048, dtype="bfloat16")  # type: ignore[type-var]
    return model.build("llama3_8b").save(folder)


def _name_references(found: Sequence[Combination]) -> list[Reference]:
    """Return the combinations that people know by name, each the fastest of its kind."""
    kinds: dict[str, Callable[[Combination], bool]] = {
        "ZeRO-3": lambda own: own.tensor == 1 and own.zero == 3,
        "ZeRO-3, recomputed": lambda own: own.tensor == 1 and _is_leanest(own),
        "Megatron 8 x 8": lambda own: own.tensor == 8 and own.zero == 0,
        "Megatron 8 x 8, ZeRO-1": lambda own: own.tensor == 8 and own.zero == 2,
        "Megatron 8 x 8, ZeRO-3, recomputed": lambda own: own.tensor == 8 and _is_leanest(own),
    }
    named = []
    for label, is_kind in kinds.items():
        best = min(filter(is_kind, found), key=lambda own: own.time_s, default=None)
        if best is not None:
            named.append(Reference(label, best.time_s, best.memory_bytes))
    return named


def _is_leanest(own: Combination) -> bool:
    return own.zero == 3 and own.recompute == "blocks"


def main() -> int:
    """Print both frontiers and how they compare."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "model", type=Path, nargs="?", help="default: Llama 3 8B, 64 texts of 2,048 tokens"
    )
    parser.add_argument("--loss", default=LOSS, help="as for tensoropt-opt (%(default)s)")
    parser.add_argument("--devices", type=int, default=64)
    parser.add_argument("--device", default="h100")
    parser.add_argument("--search-time", type=float, help="seconds of the search")
    parser.add_argument("--plot", type=Path, help="draw the frontier and named combinations")
    arguments = parser.parse_args()
    request = Request(
        devices=arguments.devices, device=arguments.device, search_time=arguments.search_time
    )
    step = step_of(Training(loss=arguments.loss), request)
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as folder:
        path = arguments.model or _llama(Path(folder))
        graphs = Model(path, {}).program(step).graphs
    found = list(combinations(graphs, request))
    experts = unbeaten(found, lambda own: (own.time_s, own.memory_bytes))
    print(f"{len(found)} combinations by hand, {len(experts)} undominated:")
    print(*experts, sep="\n")
    _, result = search(graphs, request)
    bound = "" if result.epsilon is None else f", within {result.epsilon:.2%}"
    print(f"a default search: {len(result.points)} points{bound}:")
    for point in result.points:
        mesh = "x".join(map(str, point.mesh))
        place = f"{mesh}, {getattr(point, 'recompute', 'none')}"
        cost = f"{format_seconds(point.time_s):>9} {format_bytes(point.memory_bytes):>10}"
        print(f"{place:48} {cost}")
    ratio = worst_ratio(experts, result.points)
    print(f"found / by hand, time at equal memory: at most {ratio:.3f}")
    if arguments.plot:
        report = FrontierReport(
            path.stem,
            arguments.device,
            arguments.devices,
            result.points,
            references=_name_references(found),
        )
        plot_frontier(report, arguments.plot)
    fastest = min(own.time_s for own in found)
    print(f"fastest found / fastest by hand: {result.points[0].time_s / fastest:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
