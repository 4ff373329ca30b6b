"""Costing an assignment: what is shared is asked for once, and the rest is quick."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from graphs.gpt import Gpt

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.evaluate import Evaluator
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.program.timeline import timeline_of
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.runtime.layout.mesh import Mesh


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> MeshTables:
    model = Gpt(layers=40, width=64, heads=4, vocabulary=256)
    module = driver.load(model.build("gpt").save(tmp_path_factory.mktemp("gpt")), {})
    driver.advance(module, "rules")
    return MeshTables(read_graph(module), Mesh((2, 2)), load_device("cpu"))


def choices(tables: MeshTables, seed: int) -> npt.NDArray[np.int32]:
    sizes = [len(tables.options[index]) for index in tables.variables]
    return np.random.default_rng(seed).integers(0, sizes).astype(np.int32)


def cpu_s(work: Callable[[], object]) -> float:
    """Return the least processor time of a hundred runs."""
    times = []
    for _ in range(100):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def test_costing_takes_about_as_long_as_listing_what_nodes_read(tables: MeshTables) -> None:
    evaluator, picked = Evaluator(tables), choices(tables, 0)
    evaluator.evaluate(picked)

    def listed() -> object:
        return [(node.name, value) for node in tables.graph.nodes for value in node.operands]

    assert cpu_s(lambda: evaluator.evaluate(picked)) < 1.5 * cpu_s(listed)


def test_equal_layers_are_asked_for_once(
    tables: MeshTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = Evaluator(tables)
    asked = []
    costing = evaluator._costing
    own = costing.strategy
    monkeypatch.setattr(
        costing, "strategy", lambda node, picked: asked.append(node) or own(node, picked)
    )
    first = evaluator.evaluate(np.zeros(len(tables.variables), np.int32))
    assert 0 < len(asked) < len(tables.variables) / 10
    asked.clear()
    assert evaluator.evaluate(np.zeros(len(tables.variables), np.int32)) == first
    assert not asked


@pytest.mark.parametrize("seed", range(3))
def test_the_record_of_a_walk_adds_up_to_its_cost(tables: MeshTables, seed: int) -> None:
    evaluator, picked = Evaluator(tables), choices(tables, seed)
    cost, timeline = evaluator.emitted(picked), timeline_of(evaluator, picked.tolist())
    assert timeline.cost == cost
    assert sum(step.time_s for step in timeline.steps) == pytest.approx(cost.time_s, rel=1e-9)
    assert sum(alive.bytes for alive in timeline.peak) == cost.transient_bytes
    assert sum(kept.bytes for kept in timeline.kept) == cost.static_bytes


def test_an_assignment_of_another_program_is_refused(tables: MeshTables) -> None:
    with pytest.raises(ValueError, match="a number for each node that chooses"):
        Evaluator(tables).evaluate([0])


@pytest.mark.parametrize("seed", range(3))
def test_what_is_sent_as_one_takes_no_longer_and_no_more_memory(
    tables: MeshTables, seed: int
) -> None:
    evaluator, picked = Evaluator(tables), choices(tables, seed)
    alone, cost = evaluator.evaluate(picked), evaluator.emitted(picked)
    record = evaluator.record(picked)
    assert cost.communication_s <= alone.communication_s
    assert cost.transient_bytes == record.alive_bytes().max() <= alone.transient_bytes
    assert (cost.compute_s, cost.static_bytes) == (alone.compute_s, alone.static_bytes)
