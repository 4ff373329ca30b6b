"""Pins on the command line: what they do, what they cost, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, parser

from tensoropt.compiler.comparison.registry import METHODS
from tensoropt.compiler.search.frontier.pins import read_pin
from tensoropt.compiler.support.errors import UserError


@pytest.fixture(scope="session")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One weight of 16x16 that two products read, as it is stored."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="second"),
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [16, 16], [0.25] * 256)
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, 16]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "tied", value[:1], value[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path_factory.mktemp("models") / "tied.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores of an attention of 2 heads, whose queries and keys one product makes."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["qk"], name="both"),
        helper.make_node("Split", ["qk"], ["q", "k"], name="cut", axis=2, num_outputs=2),
        helper.make_node("Reshape", ["q", "heads"], ["q4"], name="q_heads"),
        helper.make_node("Reshape", ["k", "heads"], ["k4"], name="k_heads"),
        helper.make_node("Transpose", ["q4"], ["qt"], name="q_turned", perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["k4"], ["kt"], name="k_turned", perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["qt", "kt"], ["y"], name="scores"),
    ]
    constants = [
        helper.make_tensor("w", TensorProto.FLOAT, [16, 32], [0.25] * 512),
        helper.make_tensor("heads", TensorProto.INT64, [4], [1, 4, 2, 8]),
    ]
    ends = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("x", [1, 4, 16]), ("y", [1, 2, 4, 4]))
    )
    graph = helper.make_graph(nodes, "packed", *ends, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path_factory.mktemp("models") / "packed.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def planned(opt, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Write a plan and return its document, with the layout of each tensor by name."""

    def run(*argv: str | Path) -> dict[str, Any]:
        folder = tmp_path / "plan"
        outcome = opt(*argv, "-o", folder)
        assert outcome.status == 0, outcome.err
        document: dict[str, Any] = json.loads((folder / "plan.json").read_text())
        rows = [*document["inputs"], *document["parameters"], *document["outputs"]]
        document["layouts"] = {row["name"]: row["layout"] for row in rows}
        document["nodes"] = {row["node"]: row for row in document["strategies"]}
        return document

    return run


@pytest.mark.parametrize(
    ("pin", "name", "layout"),
    [
        ("w1=S(0)@x", "w1", ["S(0)"]),
        ("w1=S(1)", "w1", ["S(1)"]),
        ("w*=S(1)@0", "w2", ["S(1)"]),
        ("x=[S(0)]", "x", ["S(0)"]),
        ("y=S(1)@x", "y", ["S(1)"]),
    ],
)
def test_a_tensor_lies_as_it_is_pinned(
    planned, mlp: Path, pin: str, name: str, layout: list[str]
) -> None:
    assert planned(mlp, "--mesh", "2", "--pin", pin)["layouts"][name] == layout


@pytest.mark.parametrize(
    ("pin", "node", "operands", "results"),
    [
        ("node:first=column@x", "first", [["R"], ["S(1)"]], [["S(1)"]]),
        ("node:second=row", "second", [["S(1)"], ["S(0)"]], [["P(sum)"]]),
        ("node:*=batch", "relu", [["S(0)"]], [["S(0)"]]),
        ("node:*=replicate", "first", [["R"], ["R"]], [["R"]]),
        ("node:first=k", "first", [["R"], ["S(1)"]], [["S(1)"]]),
        ("node:first=[S(1)] * -> [P(sum)]", "first", [["S(1)"], ["S(0)"]], [["P(sum)"]]),
        ("h=S(1)@x", "first", [["R"], ["S(1)"]], [["S(1)"]]),  # a tensor between nodes
    ],
)
def test_a_node_does_as_it_is_pinned(
    planned, mlp: Path, pin: str, node: str, operands: list[list[str]], results: list[list[str]]
) -> None:
    row = planned(mlp, "--mesh", "2", "--pin", pin)["nodes"][node]
    assert (row["operands"], row["results"]) == (operands, results)


def test_heads_go_through_packed_projections(planned, packed: Path) -> None:
    nodes = planned(packed, "--mesh", "2", "--pin", "node:*=heads")["nodes"]
    assert nodes["both"]["operands"] == [["R"], ["S(1 of 2)"]]
    assert nodes["cut"]["operands"] == [["S(2 of 2)"]]
    assert nodes["cut"]["results"] == [["S(2)"], ["S(2)"]]
    assert nodes["scores"]["operands"] == [["S(1)"], ["S(1)"]]


def test_heads_of_queries_that_share_one_head_of_keys(planned, tmp_path: Path) -> None:
    """Multi-query attention: the keys are whole on each rank."""
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[1, 4, 16] x, float[16, 16] w, float[16, 8] u) => (float[1, 2, 4, 4] y)
        <int64[4] two = {1, 4, 2, 8}, int64[4] one = {1, 4, 1, 8}> {
            [queries] q = MatMul (x, w)
            [keys] k = MatMul (x, u)
            q4 = Reshape (q, two)
            k4 = Reshape (k, one)
            qt = Transpose <perm = [0, 2, 1, 3]> (q4)
            kt = Transpose <perm = [0, 2, 3, 1]> (k4)
            [scores] y = MatMul (qt, kt)
        }"""
    )
    for name, shape in (("w", [16, 16]), ("u", [16, 8])):
        values = [0.25] * (shape[0] * shape[1])
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, shape, values))
    onnx.save(model, tmp_path / "m.onnx")
    nodes = planned(tmp_path / "m.onnx", "--mesh", "2", "--pin", "node:scores=heads")["nodes"]
    assert nodes["scores"]["operands"] == [["S(1)"], ["R"]]


def test_what_is_forbidden_is_not_done(planned, mlp: Path) -> None:
    document = planned(mlp, "--mesh", "2", "--forbid", "w1=R", "--forbid", "node:first=row")
    assert document["layouts"]["w1"] == ["S(1)"]


def test_every_search_heeds_pins(planned, mlp: Path) -> None:
    for search in sorted(METHODS):
        document = planned(mlp, "--mesh", "2", "--search", search, "--pin", "w1=S(1)@x")
        assert document["layouts"]["w1"] == ["S(1)"], search


def test_pins_say_what_they_cost(opt, mlp: Path) -> None:
    nothing = opt(mlp, "--mesh", "2", "--device", "v100", "--pin", "node:*=replicate@x")
    assert nothing.status == 0
    assert "pins cost: " in nothing.err
    assert "memory at the leanest" in nothing.err


def test_a_plan_keeps_its_pins_and_what_they_cost(planned, opt, mlp: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.toml"
    rows.write_text('[forbid]\n"w2" = "R"\n')
    flags = (
        mlp,
        "--mesh",
        "2",
        "--device",
        "v100",
        "--pin",
        "node:first=replicate@x",
        "--pins",
        rows,
    )
    pins = planned(*flags)["pins"]
    cost = pins.pop("cost")
    assert pins == {"pin": ["node:first=replicate@x"], "forbid": ["w2=R"], "annotations": None}
    assert cost["memory"] > 0 <= cost["time"]
    explained = opt(*flags, "--explain")
    assert "pins: --pin 'node:first=replicate@x' --forbid 'w2=R'\n" in explained.out
    said = next(row for row in explained.err.splitlines() if row.startswith("pins cost: "))
    assert said in explained.out.splitlines()


def test_a_free_plan_and_one_of_edited_strategies_have_no_pins(
    planned, mlp: Path, tmp_path: Path
) -> None:
    assert "pins" not in planned(mlp, "--mesh", "2")
    document = planned(mlp, "--mesh", "2", "--pin", "w1=S(0)@x")
    kept = tmp_path / "kept.json"
    kept.write_text(
        json.dumps({k: v for k, v in document.items() if k not in ("layouts", "nodes")})
    )
    assert "pins" not in planned(mlp, "--strategies", kept)


def test_pins_go_through_the_text_of_a_search(opt, mlp: Path, tmp_path: Path) -> None:
    text, plan = tmp_path / "searched.mlir", tmp_path / "plan"
    flags = ("--mesh", "2", "--pin", "w1=S(0)@x")
    assert opt(mlp, *flags, "--emit", "search", "-o", text).status == 0
    assert opt(text, "--weights", mlp, "-o", plan).status == 0
    assert json.loads((plan / "plan.json").read_text())["pins"]["pin"] == ["w1=S(0)@x"]


def test_pins_that_the_free_optimum_has_cost_nothing(opt, mlp: Path, planned) -> None:
    free = planned(mlp, "--mesh", "2")["nodes"]["first"]
    sides = (" ".join(f"[{', '.join(x)}]" for x in free[side]) for side in ("operands", "results"))
    pinned = opt(mlp, "--mesh", "2", "--pin", f"node:first={' -> '.join(sides)}")
    assert "time at the fastest" not in pinned.err
    assert "pins cost: " in pinned.err


def test_axes_that_are_named_are_told_apart(opt, mlp: Path) -> None:
    """Without pins 2x4 stands for 4x2; the batch of 8 is split by 4 on one of them alone."""
    flags = ("--devices", "8", "--pareto", "--format", "json")
    shapes = json.loads(opt(mlp, *flags, "--pin", "x=S(0)@y,R@x").out)
    meshes = {tuple(point["mesh"]) for point in shapes["points"]}
    assert (8,) not in meshes  # it has no axis y


def test_meshes_without_the_axis_are_left_out(opt, mlp: Path) -> None:
    outcome = opt(mlp, "--devices", "4", "--pin", "x=S(0)@y")
    assert outcome.status == 0
    assert "mesh 4: left out, --pin 'x=S(0)@y': expected a mesh with an axis y" in outcome.err


def test_a_file_of_pins(planned, mlp: Path, tmp_path: Path) -> None:
    path = tmp_path / "pins.toml"
    path.write_text('[pin]\n"w1" = "S(1)@x"\n[forbid]\n"x" = ["S(0)", "S(1)"]\n')
    layouts = planned(mlp, "--mesh", "2", "--pins", path)["layouts"]
    assert (layouts["w1"], layouts["x"]) == (["S(1)"], ["R"])


def test_a_parameter_that_is_trained_is_pinned(planned, deep: Path) -> None:
    train = ("--train", "--loss", "mse:y,t", "--optimizer", "sgd", "--recompute", "none")
    document = planned(
        deep, *train, "--mesh", "2", "--pin", "w1=S(1)@x", "--pin", "node:second=row"
    )
    lies = {row["name"]: row["layout"] for row in document["training"]["state"]}
    assert lies["w1"] == ["S(1)"]
    assert document["nodes"]["second"]["results"] == [["P(sum)"]]


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ("ww1=R", "--pin 'ww1=R': matches no tensor of the model, did you mean 'w1'?"),
        ("first=R", "matches no tensor of the model, did you mean 'node:first'?"),
        ("node:frist=row", "matches no node of the model, did you mean 'first'?"),
        ("node:relu=row", "the node has no row, expected batch, "),
        ("node:first=bath", "the node has no bath, expected batch, "),
        ("w1=S(2)@x", "--pin 'w1=S(2)@x': expected a dimension below 2, got: S(2)"),
        ("w1=P(sum)@x", "no strategy of 'first' is like that, expected "),
        ("w1=S(0)@q", "unknown mesh axis, expected x, y, z or a number from 0, got: 'q'"),
        ("w1=Q", "placement: expected R, S(<dim>) or P(sum|max|min), got: 'Q'"),
        ("w1=S(0),R@x", "expected an axis for each of several, as in S(0)@x,R@y"),
        ("w1=S(0)@x,R@x", "says two things of one axis, expected one"),
        ("w1=S(0)@y", "expected a mesh with an axis y, got: 2"),
        ("w1=[R, R]", "expected a mesh of 2 axes, got: 2"),
        ("w1", "expected TENSOR=PLACEMENT or node:NODE=KIND, got: 'w1'"),
        ("node:first=[R]", "expected [...] [...] -> [...], got: '[R]'"),
        ("node:first=[R] -> [R]", "'first' has 2 operands and 1 results, expected a layout or *"),
    ],
)
def test_a_pin_that_cannot_be_is_refused(refused, mlp: Path, pin: str, message: str) -> None:
    assert message in refused(mlp, "--mesh", "2", "--pin", pin)


def test_the_name_of_a_node_is_meant_before_one_like_it(refused, packed: Path) -> None:
    """Exporters call a node and what it makes nearly the same."""
    model, named = onnx.load(packed), packed.with_name("named.onnx")
    both, cut = model.graph.node[:2]
    both.name, both.output[0], cut.input[0] = "node_qk", "node_q", "node_q"
    onnx.save(model, named)
    message = refused(named, "--mesh", "2", "--pin", "node_qk=S(0)")
    assert message.endswith("matches no tensor of the model, did you mean 'node:node_qk'?")


def test_a_size_that_does_not_divide_is_named(refused, mlp: Path) -> None:
    message = refused(mlp, "--devices", "11", "--pin", "w1=S(0)@x")
    assert message == "--pin 'w1=S(0)@x': expected dimension 0 to divide by 11, got: 16"


@given(st.text(alphabet="wSRP*()[]@,xy01=: ->node|sum\n\\é", max_size=30), st.booleans())
def test_any_text_is_a_pin_or_is_refused(text: str, forbids: bool) -> None:
    try:
        pin = read_pin(text, forbids=forbids)
    except UserError as error:
        assert str(error).startswith("--forbid '" if forbids else "--pin '")
    else:
        assert pin.pattern
        assert bool(pin.says) != bool(pin.layouts)


def test_pins_that_contradict_each_other_are_named(refused, mlp: Path) -> None:
    pins = ("--pin", "x=S(0)", "--pin", "w1=S(0)", "--pin", "node:first=column")
    assert refused(mlp, "--mesh", "2", *pins) == (
        "--pin 'w1=S(0)' and --pin 'node:first=column' contradict each other at 'first'"
    )


def test_pins_of_nodes_apart_that_contradict_each_other_are_named(refused, tied: Path) -> None:
    pins = ("--pin", "x=R", "--pin", "w=S(0)", "--pin", "node:second=column")
    assert refused(tied, "--mesh", "2", *pins) == (
        "--pin 'w=S(0)' and --pin 'node:second=column' contradict each other: "
        "together they leave no plan"
    )


def test_files_of_pins_that_are_refused(refused, mlp: Path, tmp_path: Path) -> None:
    path = tmp_path / "pins.toml"
    for text, message in (
        ("x", f"--pins {path}: expected TOML, got: "),
        ("[pins]", "expected tables [pin] and [forbid], got: 'pins', did you mean 'pin'?"),
        ("pin = 1", "pin: expected a table, got: 1"),
        ('[pin]\n"x" = 1', "'x': expected a text or a list of texts, got: 1"),
    ):
        path.write_text(text)
        assert message in refused(mlp, "--pins", path)
    assert "no such file" in refused(mlp, "--pins", tmp_path / "none.toml")


def test_a_given_plan_leaves_nothing_to_pin(refused, mlp: Path, tmp_path: Path) -> None:
    message = refused(mlp, "--strategies", tmp_path / "plan.json", "--pin", "x=R")
    assert message == "--strategies fixes the plan, expected no --pin"
