"""Graphs for TensorRT: their nodes do what the collectives of ONNX Runtime's graphs do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.exporter.plan.writer import write_plan
from tensoropt.runtime.inference.jobs import check_plan
from tensoropt.runtime.support.collectives import BY_IR_NAME

MODEL = Path(__file__).parents[1] / "models" / "gpt2_tiny.onnx"

OURS = {
    "all_reduce": ("AllReduce", {}),
    "all_gather": ("AllGather", {"dim": 0}),
    "reduce_scatter": ("ReduceScatter", {"dim": 0}),
    "all_to_all": ("AllToAll", {"split_dim": 0, "concat_dim": 0}),
}
"""What NVIDIA's page says of each: all along the first dimension."""


def _attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _replaced(graph: onnx.GraphProto, ranks: int) -> Iterator[onnx.NodeProto]:
    """Yield the nodes with our collectives in the place of TensorRT's."""
    token, count = "token", 0
    for node in graph.node:
        if node.op_type != "DistCollective":
            yield node
            continue
        said = _attributes(node)
        what, own = OURS[said["collective_operation"].decode()]
        group = list(said.get("groups", range(ranks)))
        assert (said["nb_rank"], said["root"]) == (len(group), -1)
        assert said["group_size"] == len(said.get("groups", ()))
        reduces = what in ("AllReduce", "ReduceScatter")
        assert (said["reduce_op"] == b"none") != reduces
        if reduces:
            own = {**own, "reduction": said["reduce_op"].decode()}
        count += 1
        yield helper.make_node(
            what,
            [node.input[0], token],
            [node.output[0], f"token{count}"],
            name=node.name,
            domain="tensoropt",
            group=group,
            **own,
        )
        token = f"token{count}"


def _runnable(plan: Path) -> None:
    """Make the graphs of a plan such that ONNX Runtime runs them."""
    document = json.loads((plan / "plan.json").read_text())
    assert document.pop("target") == "tensorrt"
    for rank in range(document["ranks"]):
        path = plan / f"rank{rank}.onnx"
        model = onnx.load(path, load_external_data=False)
        nodes = list(_replaced(model.graph, document["ranks"]))
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), "token"))
        model.opset_import.add(domain="tensoropt", version=1)
        onnx.save(model, path)
    del document["files"], document["sha256"]
    (plan / "plan.json").unlink()
    write_plan(plan, document)


def test_graphs_compute_what_the_model_does(tmp_path: Path) -> None:
    """Of a random plan, which has every collective along many dimensions."""
    plan = tmp_path / "plan"
    flags = ["--mesh", "2", "--search", "random", "--seed", "3", "--target", "tensorrt"]
    assert main([str(MODEL), *flags, "-o", str(plan)]) == 0
    graph = onnx.load(plan / "rank1.onnx", load_external_data=False).graph
    kinds = {
        _attributes(n)["collective_operation"] for n in graph.node if n.op_type == "DistCollective"
    }
    assert kinds == {name.encode() for name in OURS}
    assert {node.domain for node in graph.node} == {""}
    _runnable(plan)
    assert check_plan(plan, MODEL).passed


def test_groups_are_listed_where_they_are_not_all(tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    flags = [
        "--mesh",
        "2x2",
        "--search",
        "pase",
        "--pin",
        "m.transformer.h.*.mlp.c_proj.weight=S(0)@y,R@x",
    ]
    assert main([str(MODEL), *flags, "--target", "tensorrt", "-o", str(plan)]) == 0
    graph = onnx.load(plan / "rank2.onnx", load_external_data=False).graph
    listed = {
        tuple(said["groups"]): (said["group_size"], said["nb_rank"])
        for said in (_attributes(n) for n in graph.node if n.op_type == "DistCollective")
        if "groups" in said
    }
    assert listed[2, 3] == (2, 2)
    assert set(listed) <= {(2, 3), (0, 2)}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tensorrt") / "plan"
    assert (
        main(
            [
                str(MODEL),
                "--search",
                "pase",
                "--mesh",
                "2",
                "--target",
                "tensorrt",
                "-o",
                str(folder),
            ]
        )
        == 0
    )
    return folder


def test_a_plan_for_tensorrt_is_not_run_here(plan: Path) -> None:
    with pytest.raises(Exception, match="its graphs are for tensorrt, expected a plan for ONNX"):
        check_plan(plan, MODEL)


def _refused(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> str:
    capsys.readouterr()
    assert main([str(arg) for arg in argv]) == 1
    return capsys.readouterr().err


def test_what_tensorrt_cannot_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("Gelu", ["x"], ["y"], name="gelu", domain="com.microsoft")
    path, out = tmp_path / "model.onnx", tmp_path / "plan"
    _save([node], path, TensorProto.FLOAT)
    to_tensorrt = (path, "--mesh", "2", "--target", "tensorrt", "-o", out)
    wanted = "node 'gelu': expected an operator of ONNX, got: com.microsoft.Gelu"
    assert wanted in _refused(capsys, *to_tensorrt)
    _save([helper.make_node("Identity", ["x"], ["y"], name="same")], path, TensorProto.DOUBLE)
    pins = ("--pin", "x=S(0)", "--pin", "y=S(1)")
    assert "expected a collective of float, float16" in _refused(capsys, *to_tensorrt, *pins)
    assert not out.exists()


def test_a_collective_that_tensorrt_lacks_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    _save([helper.make_node("Identity", ["x"], ["y"], name="same")], path, TensorProto.FLOAT)
    traits = BY_IR_NAME["shard.all_to_all"]
    monkeypatch.setitem(BY_IR_NAME, traits.ir_name, replace(traits, name="new", op_type="New"))
    pins = ("--pin", "x=S(0)", "--pin", "y=S(1)")
    said = _refused(
        capsys, path, "--mesh", "2", *pins, "--target", "tensorrt", "-o", tmp_path / "p"
    )
    assert "expected an operator of ONNX, got: tensoropt.New" in said


def _save(nodes: list[onnx.NodeProto], path: Path, kind: int) -> None:
    ends = [helper.make_tensor_value_info(name, kind, [8, 16]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "model", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--target", "tensort", "-o", "plan/"], "did you mean 'tensorrt'?"),
        (["--target", "tensorrt"], "--target is about what -o writes, expected -o"),
        (["--target", "tensorrt", "-o", "p/", "--train", "--loss", "mse:y,t"], "runs no training"),
    ],
)
def test_flags_that_make_no_sense(
    capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert message in _refused(capsys, MODEL, *flags)
