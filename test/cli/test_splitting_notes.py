"""What is said on stderr where devices have no work of their own: why, and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest


@pytest.fixture
def named(mlp: Path, tmp_path: Path) -> Path:
    """The model of ``mlp`` with a batch of any size."""
    model = onnx.load(mlp)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch size"
    path = tmp_path / "named.onnx"
    onnx.save(model, path)
    return path


def test_nothing_is_said_of_a_plan_that_is_split(opt, mlp: Path) -> None:
    assert opt(mlp, "--devices", "4").err == ""
    assert opt(mlp, "--devices", "1").err == ""


def test_devices_that_divide_nothing(opt, mlp: Path, tmp_path: Path) -> None:
    outcome = opt(mlp, "--devices", "11", "-o", tmp_path / "plan")
    assert outcome.status == 0
    assert outcome.err == (
        "note: the fastest plan does not split the work on 11 devices: 11 divides next to none "
        "of the work, expected --devices 10\n"
    )


def test_work_that_nothing_divides(opt, tmp_path: Path) -> None:
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 1]) for n in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opsets = [onnx.helper.make_opsetid("", 20)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), tmp_path / "one.onnx")
    assert opt(tmp_path / "one.onnx", "--devices", "2").err == (
        "note: the fastest plan does not split the work on 2 devices: next to none of it can be "
        "split at these sizes\n"
    )


def test_an_axis_that_divides_nothing(opt, mlp: Path) -> None:
    assert opt(mlp, "--mesh", "2x11", "--pareto").err == (
        "note: the fastest plan splits the work in 2 on 22 devices: 11 divides next to none of "
        "the work, expected --devices 21\n"
    )


def test_sizes_too_small_to_split(opt, deep: Path) -> None:
    """Gradients of so few weights take longer to add up than the whole step."""
    loss = ("--loss", "mse:y,t", "--optimizer", "sgd", "--recompute=none")
    first, _ = opt(deep, "--devices", "2", "--device", "v100", "--train", *loss).err.splitlines()
    assert first == (
        "note: the fastest plan does not split the work on 2 devices: at these sizes more would "
        "cost time, expected a larger batch, or --pick leanest for less memory"
    )
    assert (
        len(
            opt(
                deep, "--devices", "2", "--device", "v100", "--train", *loss, "--pick=leanest"
            ).err.splitlines()
        )
        == 1
    )


def test_sizes_that_are_open(opt, named: Path) -> None:
    *_, line = opt(named, "--devices", "2").err.splitlines()
    assert line == (
        "note: without a size 'batch size' counts as 1 and is not split: "
        "--dim 'batch size=8' gives it one"
    )
    assert opt(named, "--devices", "2", "--dim", "batch size=8").err == ""


def test_operators_that_nothing_splits(opt, tmp_path: Path) -> None:
    """A product that is split, and a NonZero of its result, which runs whole."""
    helper, float_, int64 = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    x = helper.make_tensor_value_info("x", float_, [512, 256])
    w = helper.make_tensor_value_info("w", float_, [256, 512])
    y = helper.make_tensor_value_info("y", float_, [512, 512])
    n = helper.make_tensor_value_info("n", int64, [2, None])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("NonZero", ["y"], ["n"]),
    ]
    graph = helper.make_graph(nodes, "g", [x, w], [y, n])
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "n.onnx")
    (line,) = opt(tmp_path / "n.onnx", "--devices", "2", "--pick", "leanest").err.splitlines()
    assert re.fullmatch(
        r"note: \d+% of the work is whole on each of 2 devices, as nothing splits these operators "
        r"at these sizes: NonZero \d+% \(--explain\)",
        line,
    )
