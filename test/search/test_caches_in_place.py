"""Caches that attention updates in place: programs, points and tables count them once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from on_tensors import ON_TENSORS
from onnx import TensorProto, helper, numpy_helper
from small_models import only

from tensoropt.compiler.cost.memory import program_memory
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.evaluate import Evaluator, ProgramCost
from tensoropt.compiler.program.graph import Op, Result
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.program.timeline import Step, timeline_of
from tensoropt.compiler.search.engine.ft import solve_frontier
from tensoropt.compiler.search.frontier.lessons import overhead_s
from tensoropt.compiler.search.frontier.search import frontier_point
from tensoropt.compiler.search.problem.cost_tables import Assignment
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.dialects.mlir import ir
from tensoropt.passes.insert_reshards import InsertReshardsPass
from tensoropt.passes.optimize_reshards import OptimizeReshardsPass
from tensoropt.passes.partition import PartitionPass
from tensoropt.passes.search_strategies import annotate
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

BATCH, HEADS, SIZE, TOKENS = 2, 4, 8, 512
CACHE = 4 * BATCH * HEADS * SIZE * TOKENS
"""Bytes of the keys or the values."""
BANDWIDTH = ON_TENSORS.memory_bandwidth_bytes_per_s
PASTS = ("past_key_values.0.key", "past_key_values.0.value")


def tables_of(folder: Path, total: int) -> MeshTables:
    """Return the tables of attention on two ranks, after which a cache has ``total`` tokens."""
    value, kind = helper.make_tensor_value_info, TensorProto.FLOAT
    rows, old = (BATCH, 1, HEADS * SIZE), (BATCH, HEADS, TOKENS, SIZE)
    given = [value(name, kind, rows) for name in ("q", "k", "v")]
    given += [value(name, kind, old) for name in PASTS]
    given.append(value("lengths", TensorProto.INT32, [BATCH]))
    presents = [name.replace("past_key_values", "present") for name in PASTS]
    made = [value("y", kind, rows)]
    made += [value(name, kind, (*old[:2], total, SIZE)) for name in presents]
    node = helper.make_node(
        "GroupQueryAttention",
        [*(one.name for one in given), "total"],
        ["y", *presents],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=HEADS,
    )
    known = numpy_helper.from_array(np.array(total, np.int32), "total")
    graph = helper.make_graph([node], "g", given, made, [known])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), folder / "m.onnx")
    module = driver.load(folder / "m.onnx", {})
    driver.advance(module, "rules")
    return MeshTables(read_graph(module), Mesh((2,)), ON_TENSORS)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> MeshTables:
    return tables_of(tmp_path_factory.mktemp("in_place"), TOKENS)


def plans(tables: MeshTables, count: int) -> list[Assignment]:
    """Return plans in which caches come back as they went in, most of them with reshards."""
    random, found = np.random.default_rng(0), []
    counts = [len(tables.options[node]) for node in tables.variables]
    position = {node: place for place, node in enumerate(tables.variables)}
    for _ in range(count):
        plan = random.integers(counts).astype(np.int32)
        for index, node in enumerate(tables.graph.nodes):
            if isinstance(node, Result) and node.takes_over is not None:
                given = tables.options[node.takes_over][plan[position[node.takes_over]]]
                wanted = [option.operands[0] for option in tables.options[index]]
                plan[position[index]] = wanted.index(given.results[0])
        found.append(plan)
    return found


def test_a_program_has_the_memory_of_its_plan(tables: MeshTables) -> None:
    evaluator = Evaluator(tables)
    for plan in plans(tables, 12):
        module = ir.Module.parse(str(tables.graph.module), tables.graph.module.context)
        annotate(module, frontier_point(tables, plan), "cpu")
        for step in (InsertReshardsPass(), OptimizeReshardsPass(), PartitionPass()):
            step.run(module)
        memory, cost = program_memory(module), evaluator.evaluate(plan)
        assert memory.transient_bytes == cost.transient_bytes
        assert memory.static_bytes - cost.static_bytes < 500  # indices of slices


def test_tables_charge_the_time_of_programs(tables: MeshTables) -> None:
    """With a reshard of a cache, attention writes a whole one, and that is paid for."""
    evaluator, graph = Evaluator(tables), tables.graph
    (index,) = [
        n for n, node in enumerate(graph.nodes) if isinstance(node, Op) and node.info.in_place
    ]
    moved = set[int]()
    for plan in plans(tables, 40):
        fastest, *_ = solve_frontier(only(tables.problem, (*plan.tolist(),))).points
        cost, timeline = evaluator.evaluate(plan), timeline_of(evaluator, plan.tolist())
        assert fastest.time + overhead_s(tables) == pytest.approx(cost.time_s, rel=1e-9)
        picked = dict(zip(tables.variables, plan.tolist(), strict=True))
        strategy = tables.options[index][picked[index]]
        apart = [
            apart_s
            for operand, apart_s in tables.apart_s(graph.nodes[index], strategy)
            if _lies(tables, picked, graph.nodes[index].operands[operand])
            != strategy.operands[operand]
        ]
        (own_s,) = [step.time_s for step in timeline.steps if step.node == index and _is_op(step)]
        in_place_s = tables.op_time_s(graph.nodes[index], strategy)
        assert own_s == pytest.approx(in_place_s + sum(apart), rel=1e-9)
        assert all(0.45 * CACHE < s * BANDWIDTH < 1.2 * CACHE for s in apart)
        moved.add(len(apart))
    assert {1, 2} <= moved


def _lies(tables: MeshTables, picked: dict[int, int], value: int | None) -> Layout:
    assert value is not None
    held = tables.graph.values[value]
    return tables.options[held.producer][picked[held.producer]].results[held.index]


def _is_op(step: Step) -> bool:
    return step.kind == "op"


def test_a_step_copies_no_cache(tables: MeshTables, tmp_path: Path) -> None:
    """Compared with caches that grow, which ONNX Runtime has to make anew in each step."""
    in_place, grown = (_fastest(own) for own in (tables, tables_of(tmp_path, TOKENS + 1)))
    assert in_place.static_bytes == grown.static_bytes == CACHE + 4  # half of both, and the total
    assert grown.transient_bytes > CACHE > 20 * in_place.transient_bytes
    assert grown.time_s - in_place.time_s == pytest.approx(CACHE / BANDWIDTH, rel=0.1)


def _fastest(tables: MeshTables) -> ProgramCost:
    fastest, *_ = solve_frontier(tables.problem).points
    return Evaluator(tables).evaluate(tables.decode(fastest.assignment))
