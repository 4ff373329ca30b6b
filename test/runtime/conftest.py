"""A small model and its plans, written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from callers import Caller
from handmade import Perceptron, collective, message, model_of, tensor, value_info, write_plan
from onnx import helper


@pytest.fixture(scope="session")
def perceptron(tmp_path_factory: pytest.TempPathFactory) -> Perceptron:
    return Perceptron(tmp_path_factory.mktemp("perceptron"))


@pytest.fixture
def plan(perceptron: Perceptron, tmp_path: Path) -> Path:
    """A plan of two ranks that a test may spoil."""
    return perceptron.plan(tmp_path / "plan")


@pytest.fixture
def hanging(perceptron: Perceptron, tmp_path: Path) -> Path:
    """Rank 0 waits for a collective that rank 1 does not have, and rank 1 for the end."""
    reduce = collective("AllReduce", "x", "y", 0, group=[0, 1], reduction="sum")
    nodes = [reduce, helper.make_node("Identity", ["x"], ["y"])]
    ends = [value_info("x", "float32", [2])], [value_info("y", "float32", [2])]
    graphs = [model_of([node], *ends) for node in nodes]
    x, y = tensor("x", [2], ["R"]), tensor("y", [2], ["R"])
    return write_plan(tmp_path / "hanging", perceptron.model, (2,), graphs, [x], [y])


@pytest.fixture
def hanging_later(perceptron: Perceptron, tmp_path: Path) -> Path:
    """The same, but rank 0 only starts the collective, and then waits for it."""
    ends = [value_info("x", "float32", [2])], [value_info("y", "float32", [2])]
    given = ["handle", "sum"]
    start = ["t0", "x"], ["t1", *given]
    nodes = [
        message("AllReduceStart", *start, group=[0, 1], reduction="sum"),
        message("AllReduceWait", given, ["y"]),
    ]
    graphs = [model_of(one, *ends) for one in (nodes, [helper.make_node("Abs", ["x"], ["y"])])]
    x, y = tensor("x", [2], ["R"]), tensor("y", [2], ["R"])
    return write_plan(tmp_path / "hanging_later", perceptron.model, (2,), graphs, [x], [y])


@pytest.fixture
def call() -> Iterator[Callable[[int], Caller]]:
    """What calls at a port."""
    callers: list[Caller] = []

    def call(port: int) -> Caller:
        callers.append(Caller(port))
        return callers[-1]

    yield call
    for caller in callers:
        caller.hang_up()
