"""A plan fed back in, as it was written and edited by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from tensoropt.runtime.inference.jobs import check_plan

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture
def plan(opt, mlp: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "plan"
    assert (
        opt(mlp, "--mesh", "2", "--device", "v100", "--pick", "leanest", "-o", folder).status == 0
    )
    return folder / "plan.json"


def _edited(plan: Path, edit: Edit) -> Path:
    document = json.loads(plan.read_text())
    edit(document)
    changed = plan.parent.parent / "edited.json"
    changed.write_text(json.dumps(document))
    return changed


def _row(document: dict[str, Any], op: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in document["strategies"] if row["op"] == op)
    return row


def test_a_plan_fed_back_in_gives_the_same_graphs(opt, mlp: Path, plan: Path) -> None:
    again = plan.parent.parent / "again"
    assert (
        opt(mlp, "--device", "v100", "--strategies", plan.parent, "-o", again).status == 0
    )  # or its plan.json
    first, second = (json.loads(p.read_text()) for p in (plan, again / "plan.json"))
    assert second["files"] == first["files"]
    assert second["predicted"] == first["predicted"]
    assert second["search"] == {"name": "pinned", "seed": None, "epsilon": None}


def test_an_edited_strategy_is_compiled_and_runs(opt, mlp: Path, plan: Path) -> None:
    def replicate(document: dict[str, Any]) -> None:
        row = _row(document, "MatMul")
        row["operands"], row["results"] = [["R"], ["R"]], [["R"]]
        document["parameters"][0]["layout"] = ["R"]

    other = plan.parent.parent / "other"
    assert opt(mlp, "--strategies", _edited(plan, replicate), "-o", other).status == 0
    row = _row(json.loads((other / "plan.json").read_text()), "MatMul")
    assert (row["operands"], row["results"]) == ([["R"], ["R"]], [["R"]])
    assert check_plan(other, mlp).passed


def test_a_mesh_that_is_too_large(refused, mlp: Path, plan: Path) -> None:
    def enlarge(document: dict[str, Any]) -> None:
        document["mesh"]["shape"] = [2000]

    path = _edited(plan, enlarge)
    message = refused(mlp, "--strategies", path)
    assert message == f"--strategies {path}: expected at most 1024 devices, got: mesh 2000 of 2000"


def _without_a_layout(document: dict[str, Any]) -> None:
    _row(document, "MatMul")["operands"][0] = []


def _short_layout(document: dict[str, Any]) -> None:
    document["mesh"]["shape"] = [2, 1]


def _long_layout(document: dict[str, Any]) -> None:
    document["inputs"][0]["layout"] = ["R", "R"]


def _missing_result(document: dict[str, Any]) -> None:
    _row(document, "MatMul")["results"] = []


def _other_op(document: dict[str, Any]) -> None:
    _row(document, "Relu")["op"] = "Sigmoid"


def _twice(document: dict[str, Any]) -> None:
    document["strategies"].append(document["strategies"][0])


def _input_twice(document: dict[str, Any]) -> None:
    document["parameters"].append(document["inputs"][0])


def _too_many_nodes(document: dict[str, Any]) -> None:
    document["strategies"].append({**document["strategies"][0], "node": "relux"})


def _output_twice(document: dict[str, Any]) -> None:
    document["outputs"] *= 2


def _partial_input(document: dict[str, Any]) -> None:
    document["inputs"][0]["layout"] = ["P(sum)"]


def _no_dimension(document: dict[str, Any]) -> None:
    _row(document, "Relu")["operands"] = [["S(2)"]]


def _float_mesh(document: dict[str, Any]) -> None:
    document["mesh"]["shape"] = [2.0]


def _huge_dimension(document: dict[str, Any]) -> None:
    _row(document, "Relu")["operands"] = [[f"S({'9' * 5000})"]]


def _other_parameter(document: dict[str, Any]) -> None:
    row = next(row for row in document["parameters"] if row["name"] == "w1")
    row["layout"] = ["R"] if row["layout"] != ["R"] else ["S(0)"]


def _no_such_strategy(document: dict[str, Any]) -> None:
    _row(document, "MatMul")["results"] = [["P(max)"]]


def _renamed(document: dict[str, Any]) -> None:
    row = _row(document, "MatMul")
    row["node"] += "x"


def _bad_text(document: dict[str, Any]) -> None:
    _row(document, "MatMul")["results"] = [["Q"]]


def _no_mesh(document: dict[str, Any]) -> None:
    del document["mesh"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_no_such_strategy, "its sharding rule does not offer"),
        (_renamed, "the plan has no node"),
        (_short_layout, "'x': expected a placement for each axis of mesh 2x1, got: [R]"),
        (_long_layout, "'x': expected a placement for each axis of mesh 2, got: [R, R]"),
        (_without_a_layout, "node 'first': operand 0: expected a layout, got: []"),
        (_missing_result, "node 'first': expected 1 layouts in results, got: 0"),
        (_other_op, "node 'relu': expected op Relu, got: Sigmoid"),
        (_twice, "node 'first' is there 2 times, expected one entry"),
        (_input_twice, "input or parameter 'x' is there 2 times, expected one entry"),
        (_too_many_nodes, "the model has no node 'relux', did you mean 'relu'?"),
        (_output_twice, "expected the 1 outputs of the model, got: 2"),
        (_partial_input, "'x' cannot lie as [P(sum)] on mesh 2, expected one of 3, such as"),
        (_other_parameter, "parameter 'w1' lies as node 'first' reads it, expected [S("),
        (_no_dimension, "on mesh 2, expected a dimension below 2, got: S(2); such as"),
        (_float_mesh, "mesh.shape[0]: 2.0 is not of type 'integer'"),
        (_huge_dimension, "strategies[1].operands[0][0]: expected R, S(dimension), "),
        (_bad_text, "strategies[0].results[0][0]: expected R, S(dimension), "),
        (_no_mesh, "'mesh' is a required property"),
    ],
)
def test_an_edit_that_cannot_be_is_refused(
    refused, mlp: Path, plan: Path, edit: Edit, message: str
) -> None:
    assert message in refused(mlp, "--strategies", _edited(plan, edit))


def test_a_plan_that_is_no_plan_is_refused(refused, mlp: Path, tmp_path: Path) -> None:
    missing = tmp_path / "nope.json"
    assert "no such file" in refused(mlp, "--strategies", missing)
    for text, got in (
        (b"{", "Expecting property name"),
        (b'{"ranks": NaN}', "NaN is not a number of JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"\xff": 1}', "not UTF-8 at byte 2"),
        (b"9" * 5000, "Exceeds the limit"),
    ):
        missing.write_bytes(text)
        expected = f"--strategies {missing}: expected JSON, got: {got}"
        assert refused(mlp, "--strategies", missing).startswith(expected)


@pytest.mark.parametrize(
    ("parts", "flags"),
    [
        ("stages", ["--devices", "2", "--stages", "2"]),
        ("replicas", ["--devices", "a100:1,v100:1", "--batches", "4"]),
    ],
)
def test_a_plan_of_several_parts_is_refused(
    opt, refused, mlp: Path, tmp_path: Path, parts: str, flags: list[str]
) -> None:
    """Its cuts, schedule and batches would be lost."""
    folder = tmp_path / "plan"
    assert opt(mlp, *flags, "-o", folder).status == 0
    assert refused(mlp, "--strategies", folder) == (
        f"--strategies {folder / 'plan.json'}: has {parts}, expected a plan on one mesh, or the IR "
        "of --emit search, which can be edited too"
    )


def test_a_model_with_one_name_twice(opt, refused, mlp: Path, plan: Path, tmp_path: Path) -> None:
    text = tmp_path / "model.mlir"
    text.write_text(opt(mlp).out.replace('"second"', '"first"'))
    message = refused(text, "--strategies", plan, "--pareto")
    assert message == "--strategies: expected a name of its own for each node, got: 'first'"


def test_folded_nodes_keep_names_of_their_own(opt, tmp_path: Path) -> None:
    """Of a Split of a shape, and of the shape of a Reshape that a symbolic dimension tells."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape", start=1),
        helper.make_node("Split", ["s"], ["a", "b"], name="cut", num_outputs=2),
        helper.make_node("Shape", ["x"], ["n"], name="batch", end=1),
        helper.make_node("Mul", ["a", "b"], ["ab"], name="mul"),
        helper.make_node("Concat", ["n", "ab"], ["flat"], name="join", axis=0),
        helper.make_node("Reshape", ["x", "flat"], ["r"], name="reshape"),
        helper.make_node("Concat", ["n", "b", "a"], ["turned"], name="join2", axis=0),
        helper.make_node("Reshape", ["r", "turned"], ["z"], name="again"),
        helper.make_node("Expand", ["z", "a"], ["e"], name="expand"),
        helper.make_node("Expand", ["e", "b"], ["y"], name="expand2"),
    ]
    value = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 6]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(nodes, "shapes", value[:1], value[1:])
    model, folder = tmp_path / "shapes.onnx", tmp_path / "plan"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), model)
    assert opt(model, "--mesh", "2", "-o", folder).status == 0
    rows = json.loads((folder / "plan.json").read_text())["strategies"]
    names = [row["node"] for row in rows]
    assert len(set(names)) == len(names)
    assert {"cut", "cut.1", "reshape", "reshape.shape"} <= set(names)
    again = opt(model, "--strategies", folder, "-o", tmp_path / "again")
    assert again.status == 0


@pytest.mark.parametrize("flag", [["--mesh", "2"], ["--devices", "2"], ["--pick", "knee"]])
def test_flags_that_a_plan_settles_are_refused(
    refused, mlp: Path, plan: Path, flag: list[str]
) -> None:
    expected = f"--strategies fixes the plan, expected no {flag[0]}"
    assert expected in refused(mlp, "--strategies", plan, *flag)


def test_a_step_that_recomputes(opt, refused, deep: Path, tmp_path: Path) -> None:
    step = ("--train", "--loss", "mse:y,t", "--recompute", "light", "--device", "v100")
    folder, again = tmp_path / "plan", tmp_path / "again"
    assert opt(deep, *step, "--mesh", "2", "--pick", "leanest", "-o", folder).status == 0
    assert opt(deep, *step, "--strategies", folder, "-o", again).status == 0
    written, read = (json.loads((own / "plan.json").read_text()) for own in (folder, again))
    assert read["strategies"] == written["strategies"]
    assert read["predicted"] == written["predicted"]
    barrier = _row(written, "Barrier")
    barrier["operands"].pop()
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(written))
    message = f"node '{barrier['node']}': expected 2 layouts in operands, got: 1"
    assert message in refused(deep, *step, "--strategies", changed, "--pareto")
