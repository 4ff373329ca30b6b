"""``--debug``: which value inside a plan differs first from what one device computes, and where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from handmade import Perceptron, edit, sha256
from onnx import numpy_helper

from tensoropt.runtime.check.values import inner_values, row_of
from tensoropt.runtime.cli.run import main
from tensoropt.runtime.plan.costs import read_costs
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError

S0, S1, P = ["R", "S(0)"], ["R", "S(1)"], ["R", "P(sum)"]
ROWS = [
    {"node": "fc1", "op": "MatMul", "operands": [["R", "R"], S1], "results": [S1]},
    {"node": "act", "op": "Relu", "operands": [S1], "results": [S1]},
    {"node": "fc2", "op": "MatMul", "operands": [S1, S0], "results": [P]},
]

COSTS = {"schema": 1, "layers": ["a", "b"], "nodes": {"fc1": [0, 2e-3, 1e-3], "fc2": [1, 4e-3, 0]}}

Spoil = Callable[[onnx.GraphProto], None]


def named(path: Path, spoil: Spoil | None = None) -> None:
    """Give the nodes of a graph the names of the rows, and maybe spoil it."""
    model = onnx.load(path)
    for node, row in zip(model.graph.node, ROWS, strict=False):
        node.name = row["node"]
    if spoil is not None:
        spoil(model.graph)
    onnx.save(model, path)


@pytest.fixture
def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Spoil | None], Any]:
    """Run the plan of two ranks, the second of which may be spoiled; return what was printed."""

    def run(spoil: Spoil | None, *flags: str) -> tuple[int, str]:
        perceptron = Perceptron(tmp_path)
        named(perceptron.model)
        plan = perceptron.plan(tmp_path / "plan")
        for rank in range(2):
            named(plan / f"rank{rank}.onnx", spoil if rank else None)

        (plan / "costs.json").write_text(json.dumps(COSTS))

        def change(content: dict[str, Any]) -> None:
            content["strategies"] = ROWS
            content["files"]["costs.json"] = ""
            content["model"]["sha256"] = sha256(perceptron.model)
            content["files"] = {name: sha256(plan / name) for name in content["files"]}

        edit(plan, change)
        capsys.readouterr()
        status = main([str(plan), "--check", str(perceptron.model), "--debug", *flags])
        return status, capsys.readouterr().out

    return run


def test_a_right_plan_differs_nowhere(checked) -> None:
    status, text = checked(None)
    assert status == 0
    lines = text.splitlines()
    at = lines.index("3 of 3 values inside were compared: none differs")
    assert lines[at + 1].split() == ["layer", "measured", "predicted"]
    rows = [line.split() for line in lines[at + 2 : at + 4]]
    assert [(name, predicted) for name, _, _, predicted, _ in rows] == [
        ("a", "3.000"),
        ("b", "4.000"),
    ]
    assert float(rows[0][1]) > 0


def weight(graph: onnx.GraphProto) -> None:
    """Change one number of the rank's columns of w1."""
    (own,) = (tensor for tensor in graph.initializer if tensor.name == "w1")
    array = numpy_helper.to_array(own).copy()
    array[2, 1] += 3
    own.CopyFrom(numpy_helper.from_array(array, "w1"))


def test_a_wrong_weight_is_found_where_it_is_read(checked) -> None:
    status, text = checked(weight, "--format", "json")
    assert status == 1
    first = json.loads(text)["first"]
    assert (first["node"], first["op"], first["tensor"]) == ("fc1", "MatMul", "h")
    assert (first["layout"], first["ranks"], first["shape"]) == (S1, [1], [4, 8])
    assert first["index"][1] == 5  # column 1 of those from 4 on
    assert abs(float(first["got"]) - float(first["expected"])) == pytest.approx(
        first["absolute"], rel=1e-3
    )


def test_an_op_that_was_changed_is_found(checked) -> None:
    def other(graph: onnx.GraphProto) -> None:
        graph.node[1].op_type = "Abs"

    _, text = checked(other)
    lines = text.splitlines()
    at = lines.index("first difference: 'a' of Relu node 'act', on rank 1")
    assert lines[at + 1] == "  layout R, S(1) of 4x8; 1 values before it agree, of 3 inside"
    assert ": expected 0.0, got: " in lines[at + 2]


def test_values_are_matched_by_names_that_are_theirs_alone(tmp_path: Path) -> None:
    perceptron = Perceptron(tmp_path)
    named(perceptron.model)
    graph = onnx.load(perceptron.model).graph
    assert [value.name for value in inner_values(graph, graph, ROWS)] == ["h", "a", "y"]
    graph.node[1].name = "fc1"
    assert [value.name for value in inner_values(graph, graph, ROWS)] == ["y"]


def test_steps_belong_to_the_op_they_are_steps_of() -> None:
    rows = {"fc", "fc.2", "/a/b.0/c"}
    for name, row in (
        ("fc", "fc"),
        ("fc.AllReduce", "fc"),
        ("fc.AllReduce_1", "fc"),
        ("fc.2.Mul", "fc.2"),
        ("/a/b.0/c.Slice", "/a/b.0/c"),
        ("/a/b.0/d", None),
        ("other", None),
    ):
        assert row_of(name, rows) == row


@pytest.mark.parametrize(
    "text", ["[]", '{"schema": 2}', '{"schema": 1, "layers": [], "nodes": {"a": [0, 1, 1]}}', "{"]
)
def test_costs_that_are_none(plan: Path, text: str) -> None:
    assert read_costs(Plan.load(plan)) is None
    (plan / "costs.json").write_text(text)
    edit(plan, lambda content: content["files"].update({"costs.json": sha256(plan / "costs.json")}))
    with pytest.raises(UserError, match=r"costs.json: "):
        read_costs(Plan.load(plan))


def test_without_a_check_there_is_nothing_to_follow(plan: Path, capsys) -> None:
    assert main([str(plan), "--debug"]) == 1
    assert capsys.readouterr().err == (
        "error: --debug follows the check of one plan, expected --check MODEL and one PLAN\n"
    )
