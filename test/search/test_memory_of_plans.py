"""The search minimises the memory that programs have: beside it, every plan of small models.

``make truth-search`` has thousands of such models.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import zoo
from on_tensors import ON_TENSORS
from small_models import (
    best,
    every_cost,
    missed,
    odd_module,
    only,
    random_module,
    shared_weight_module,
    small_tables,
    tables_of,
)
from small_steps import random_step

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.cost.memory import program_memory
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.evaluate import evaluator_of
from tensoropt.compiler.program.graph import Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.frontier.lessons import Lessons, overhead_s
from tensoropt.compiler.search.frontier.search import SearchOptions, frontier_point, search_tables
from tensoropt.compiler.search.problem.bounds import least_bytes
from tensoropt.compiler.search.problem.cost_tables import Assignment
from tensoropt.compiler.search.problem.cuts import Cuts
from tensoropt.compiler.search.problem.problem import NothingAllowedError, TablePoint
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.search.problem.training_tables import TrainingTables
from tensoropt.dialects import onnx
from tensoropt.dialects.elements import type_bytes
from tensoropt.dialects.mlir import ir
from tensoropt.passes.insert_reshards import InsertReshardsPass
from tensoropt.passes.optimize_reshards import OptimizeReshardsPass
from tensoropt.passes.partition import PartitionPass
from tensoropt.passes.search_strategies import annotate
from tensoropt.runtime.layout.mesh import Mesh

TABLES = small_tables(range(60), most_plans=600)
LEARNS = 1  # a seed whose tables have to learn
SUMS = (422, 586, 605)  # whose tables learn sums as those of large ones do
THREE = (518, 1318, 1410)  # of few plans, and a tensor with three uses


def _found(tables: MeshTables, memory_bytes: int | None = None) -> list[tuple[float, int]]:
    result = search_tables([tables], SearchOptions(memory_bytes=memory_bytes))
    assert result.epsilon == 0
    return [(point.time_s, point.memory_bytes) for point in result.points]


@pytest.mark.parametrize("seed", TABLES)
def test_the_frontier_is_that_of_all_programs(seed: int) -> None:
    wanted, found = best(every_cost(TABLES[seed]).values()), best(_found(TABLES[seed]))
    assert [memory for _, memory in found] == [memory for _, memory in wanted]
    assert [time for time, _ in found] == pytest.approx([time for time, _ in wanted], rel=1e-9)


@pytest.mark.parametrize("seed", THREE)
def test_tables_charge_the_time_of_programs(seed: int) -> None:
    (tables,) = small_tables([seed]).values()
    every = every_cost(tables)
    for plan in random.Random(seed).sample(sorted(every), 40):
        fastest, *_ = solve_frontier(only(tables.problem, plan)).points
        assert fastest.time + overhead_s(tables) == pytest.approx(every[plan][0], rel=1e-9)


@pytest.mark.parametrize("seed", THREE)
def test_a_tensor_with_three_uses_hides_no_plan(seed: int) -> None:
    tables = small_tables([seed])[seed]
    every = every_cost(tables)
    assert len(every) > 100
    assert not missed(tables, every)


def test_a_weight_is_stored_in_a_layout_that_its_readers_take() -> None:
    """A whole weight costs the same, and each rank would cut its part out of it."""
    tables = tables_of(shared_weight_module(), Mesh((2,)))
    graph, problem = tables.graph, tables.problem
    (weight,) = (v for v, held in enumerate(graph.values) if v in graph.storage.constants)
    maker, result = graph.values[weight].producer, graph.values[weight].index
    at, others = tables.variables.index(maker), 0
    for point in solve_frontier(problem).points:
        chosen = tables.decode(point.assignment)
        read = {
            tables.options[node][chosen[tables.variables.index(node)]].operands[operand]
            for value, node, operand in graph.edges()
            if value == weight
        }
        for number, option in enumerate(tables.options[maker]):
            assignment = point.assignment.copy()
            assignment[at] = number
            other = problem.cost(assignment)
            assert other.memory >= point.memory
            if option.results[result] not in read and math.isfinite(other.time):
                assert other.memory > point.memory
                others += 1
    assert others


def test_a_weight_counts_as_it_is_read() -> None:
    tables = tables_of(shared_weight_module(), Mesh((2,)))
    every = every_cost(tables)
    assert len(every) > 100
    assert not missed(tables, every)


@pytest.mark.parametrize("seed", [*TABLES][::5])
def test_no_plan_that_fits_a_limit_is_missed(seed: int) -> None:
    tables, costs = TABLES[seed], every_cost(TABLES[seed]).values()
    memories = sorted({memory for _, memory in best(costs)})
    for limit in {
        *memories,
        memories[0] + 1,
        *(sum(pair) // 2 for pair in itertools.pairwise(memories)),
    }:
        least = min(time for time, memory in costs if memory <= limit)
        found = [time for time, memory in _found(tables, limit) if memory <= limit]
        assert min(found) == pytest.approx(least, rel=1e-9)


def test_sizes_alone_ask_for_no_more_than_a_plan_takes() -> None:
    """Parts with padding are smaller than what equal parts of the tensor could be."""
    tables = tables_of(odd_module(), Mesh((4,)))
    least = min(memory for _, memory in every_cost(tables).values())
    assert 0 < least_bytes(tables.graph, 4) <= least < 3 * 63 * 4


def _has(tables: MeshTables, name: str) -> bool:
    return any(isinstance(node, Op) and node.info.name == name for node in tables.graph.nodes)


# A softmax over a dimension that is split is several operations, with tensors of their own.
@pytest.mark.parametrize("seed", [s for s, own in TABLES.items() if not _has(own, "Softmax")][::2])
def test_a_plan_costs_the_memory_of_its_program(seed: int) -> None:
    tables = TABLES[seed]
    every = every_cost(tables)
    for plan in random.Random(seed).sample(sorted(every), min(4, len(every))):
        _costs_what_its_program_does(tables, np.array(plan, dtype=np.int32))


def _costs_what_its_program_does(tables: MeshTables, plan: Assignment) -> Counter[str]:
    """Hold a plan's memory against its program; return how often that has each operator."""
    graph = tables.graph
    module = ir.Module.parse(str(graph.module), graph.module.context)
    annotate(module, frontier_point(tables, plan), "cpu")
    for step in (InsertReshardsPass(), OptimizeReshardsPass(), PartitionPass()):
        step.run(module)
    memory, cost = program_memory(module), evaluator_of(tables).evaluate(plan)
    assert memory.transient_bytes == cost.transient_bytes
    # What makes partial sums of a whole tensor has a flag and a zero.
    more = memory.static_bytes - cost.static_bytes - _ends_bytes(module)
    assert 0 <= more <= 5 * len(graph.nodes)
    return Counter(op.name for op in onnx.walk(onnx.function(module)))


def _ends_bytes(module: ir.Module) -> int:
    """Return what says how far tensors are padded and cropped: a few numbers for each way."""
    ops = [op for op in onnx.walk(onnx.function(module)) if op.name in ("onnx.Pad", "onnx.Slice")]
    ends = {str(own.owner.attributes["value"]): own for op in ops for own in op.operands[1:]}
    return sum(type_bytes(own.type) for own in ends.values())


def test_padding_costs_the_memory_of_its_program() -> None:
    """Of sizes that do not divide: what is padded, cropped and filled."""
    found = Counter[str]()
    for seed in (6, 14):
        tables = tables_of(random_module(seed), Mesh((3,)))
        found += _of_random_plans(tables, [len(tables.options[node]) for node in tables.variables])
    assert found["onnx.Pad"] > 5 and found["onnx.Slice"] > 5 and found["filled"] > 2


def test_padding_in_a_training_step_costs_the_memory_of_its_program() -> None:
    found = Counter[str]()
    for seed, ranks in ((14, 3), (25, 4)):
        tables = TrainingTables(read_graph(random_step(seed)), Mesh((ranks,)), ON_TENSORS)
        found += _of_random_plans(tables, [len(tables.kind(own).picks) for own in tables.clusters])
    assert found["onnx.Pad"] > 5 and found["onnx.Slice"] > 5 and found["filled"] > 5


def _of_random_plans(tables: MeshTables, counts: Sequence[int]) -> Counter[str]:
    """Hold plans against their programs, of so many options for each node of the problem."""
    rng, found = np.random.default_rng(0), Counter[str]()
    for _ in range(6):
        plan = tables.decode(rng.integers(counts).astype(np.int32))
        found += _costs_what_its_program_does(tables, plan)
        for index, picked in zip(tables.variables, plan.tolist(), strict=True):
            node = tables.graph.nodes[index]
            found["filled"] += len(tables.fills(node, tables.options[index][picked]))
    return found


def test_what_is_learnt_is_true_of_every_plan() -> None:
    tables = TABLES[LEARNS]
    cuts, every = Cuts(tables), every_cost(tables)
    count, learnt = len(tables.variables), True
    while learnt:
        points = solve_frontier(cuts.added_to(tables.problem)).points
        short = [p for p in points if every[(*map(int, p.assignment[:count]),)][1] > p.memory]
        learnt = any([cuts.learn(point) for point in short])
    assert len(cuts)
    for plan, (_, memory) in every.items():
        charged = solve_frontier(only(cuts.added_to(tables.problem), plan)).points
        assert min(point.memory for point in charged) <= memory


def _as_large(seed: int) -> MeshTables:
    (tables,) = small_tables([seed], most_plans=600).values()
    return _LargeTables(tables.graph, tables.mesh, tables.device)


class _LargeTables(MeshTables):
    """Tables of a small model as those of large ones are: they learn sums alone."""

    @property
    def is_small(self) -> bool:
        return False


def _learnt(tables: MeshTables) -> tuple[Lessons, list[TablePoint]]:
    lessons = Lessons(tables)
    points = solve_frontier(lessons.problem).points
    while lessons.learn(points):
        points = solve_frontier(lessons.problem).points
    return lessons, points


def test_sums_are_true_of_every_plan() -> None:
    learnt = 0
    models = TABLES | small_tables(SUMS, most_plans=600)
    for seed, own in models.items():
        tables, every = _as_large(seed), every_cost(own).values()
        lessons, points = _learnt(tables)
        learnt += len(lessons)
        times = np.array([point.time for point in points]) + overhead_s(tables)
        memory = np.array([point.memory for point in points])
        for time_s, size in every:
            within = (times <= time_s * (1 + 1e-9)) & (memory <= size + 1)
            assert within.any(), (seed, time_s, size)
    assert learnt > 3


def test_a_weight_of_two_readers_counts_as_they_read_it() -> None:
    """Whatever lies between them; how it is stored takes nothing."""
    own = tables_of(shared_weight_module(), Mesh((4,)))
    tables = _LargeTables(own.graph, own.mesh, own.device)
    programs = dict[tuple[int, ...], int]()
    charged = dict[tuple[int, ...], float]()
    stored = [own.graph.nodes[node].constant for node in own.variables]
    for plan, (_, memory) in every_cost(own).items():
        free = tuple(at for at, constant in zip(plan, stored, strict=True) if not constant)
        programs[free] = memory
        with contextlib.suppress(NothingAllowedError):  # it cannot be cut for both
            least = min(p.memory for p in solve_frontier(only(tables.problem, plan)).points)
            charged[free] = min(charged.get(free, math.inf), least)
    assert len(programs) > 200
    assert charged == pytest.approx(programs, abs=1)


def test_two_tensors_that_wait_count_together() -> None:
    module = driver.load(zoo.transformer_path("vit_tiny"), {})
    driver.advance(module, "rules")
    tables = MeshTables(read_graph(module), Mesh((4,)), load_device("h200"))
    lessons, points = _learnt(tables)
    paid = [lessons.cost(tables.decode(point.assignment))[0] for point in points]
    apart = [cost.memory_bytes / point.memory for cost, point in zip(paid, points, strict=True)]
    assert max(apart) < 1.02  # 1.05 with one tensor that waits
