"""Tables with pins against every assignment of those without, checked by its layouts alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.program.pins import PinsError, culprits
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.search.engine.ft import solve_min_time
from tensoropt.compiler.search.frontier.binding import pinned
from tensoropt.compiler.search.frontier.pins import read_pin
from tensoropt.compiler.search.problem.problem import NothingAllowedError
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.runtime.layout.mesh import Mesh

DEVICE = load_device("cpu")
MESHES = (Mesh((2,)), Mesh((4, 2)))

Layouts = dict[str, tuple[str, ...]]
"""Of tensors by name, as text."""

Says = tuple[str, list[tuple[str, int | None]]]
"""A tensor, and what each axis does to it; no axis for all."""

Every = Callable[[Mesh], tuple[list[Layouts], list[float]]]


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """``y = Relu(x w)`` of 8x16 and 16x8: ``w`` has no strategies of its own."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="mm"),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]
    shapes = {"x": [8, 16], "y": [8, 8]}
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [16, 8], [0.5] * 128)
    built = helper.make_graph(nodes, "model", ends[:1], ends[1:], [weight])
    opsets = [helper.make_opsetid("", 20)]
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(helper.make_model(built, opset_imports=opsets, ir_version=10), path)
    module = driver.load(path, {})
    driver.advance(module, "rules")
    return read_graph(module)


@pytest.fixture(scope="session")
def every(graph: Graph) -> Every:
    """What there is without pins on a mesh, worked out once."""
    return cache(lambda mesh: _every(graph, mesh))


def _every(graph: Graph, mesh: Mesh) -> tuple[list[Layouts], list[float]]:
    """Return the layouts and the seconds of each assignment without pins."""
    tables = MeshTables(graph, mesh, DEVICE)
    x, mm, relu, y = (tables.options[index] for index in tables.variables)
    rows = list(itertools.product(*(range(len(own)) for own in (x, mm, relu, y))))
    lies = [
        {
            "x": tuple(x[a].results[0].texts),
            "w": tuple("R" if "P" in t else t for t in mm[b].operands[1].texts),
            "h": tuple(mm[b].results[0].texts),
            "y": tuple(y[d].operands[0].texts),
        }
        for a, b, _, d in rows
    ]
    return lies, tables.problem.costs(np.array(rows, dtype=np.int32))[0].tolist()


def _holds(says: Says, layouts: Layouts, *, forbids: bool) -> bool:
    """Say whether layouts are as a pin says, or not where it forbids; by the notation alone."""
    tensor, terms = says
    lies = layouts[tensor]
    if terms[0][1] is None:
        placement = terms[0][0]
        some = any if forbids and placement != "R" else all
        is_so = some(own == placement for own in lies)
    else:
        padded = dict(enumerate(lies))
        is_so = all(padded.get(axis, "R") == placement for placement, axis in terms)
    return is_so != forbids


def _text(says: Says) -> str:
    tensor, terms = says
    return f"{tensor}=" + ",".join(t if axis is None else f"{t}@{'xyz'[axis]}" for t, axis in terms)


def _least(graph: Graph, mesh: Mesh, pins: list[tuple[Says, bool]]) -> float:
    """Return the least seconds with pins, as the tables have it; infinite for no plan."""
    read = [read_pin(_text(says), forbids=forbids) for says, forbids in pins]
    narrowed = pinned(graph, read, {"h": ("mm", 0)})
    try:
        return solve_min_time(MeshTables(narrowed, mesh, DEVICE).problem).time
    except (PinsError, NothingAllowedError):
        return math.inf


PLACED = st.sampled_from(("R", "S(0)", "S(1)", "P(sum)"))
ONE = st.lists(st.tuples(PLACED, st.none()), min_size=1, max_size=1)
SEVERAL = st.lists(
    st.tuples(PLACED, st.integers(0, 2)), min_size=1, max_size=2, unique_by=lambda term: term[1]
)
SAYS = st.tuples(st.sampled_from(("x", "w", "h", "y")), st.one_of(ONE, SEVERAL))


@given(st.sampled_from(MESHES), st.lists(st.tuples(SAYS, st.booleans()), max_size=3))
@examples(30)
def test_the_optimum_is_that_of_all_assignments_that_are_as_pinned(
    graph: Graph, every: Every, mesh: Mesh, pins: list[tuple[Says, bool]]
) -> None:
    lies, seconds = every(mesh)
    kept = [
        time
        for layouts, time in zip(lies, seconds, strict=True)
        if all(_holds(says, layouts, forbids=forbids) for says, forbids in pins)
    ]
    assert _least(graph, mesh, pins) == pytest.approx(min(kept, default=math.inf))


@given(st.sampled_from(MESHES), st.sampled_from(("x", "w", "h", "y")))
@examples(12)
def test_pins_that_the_optimum_has_cost_nothing(
    graph: Graph, every: Every, mesh: Mesh, tensor: str
) -> None:
    lies, seconds = every(mesh)
    best = min(range(len(seconds)), key=seconds.__getitem__)
    says = tensor, [(placement, axis) for axis, placement in enumerate(lies[best][tensor])]
    assert _least(graph, mesh, [(says, False)]) == pytest.approx(seconds[best])


@given(st.sets(st.integers(0, 6)), st.lists(st.sets(st.integers(0, 6), min_size=1), min_size=1))
@examples(30)
def test_culprits_are_to_blame_together_and_none_too_many(
    others: set[int], conflicts: list[set[int]]
) -> None:
    def fails(kept: list[int]) -> bool:
        return any(conflict <= set(kept) for conflict in conflicts)

    found = culprits(sorted(others.union(*conflicts)), fails)
    assert fails(found)
    assert not any(fails([one for one in found if one != item]) for item in found)
