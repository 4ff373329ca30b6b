"""What is said on stderr of a training step: what is trained, and what may be a mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

FLAGS = (
    "--train",
    "--loss",
    "mse:y,t",
    "--optimizer",
    "sgd",
    "--devices",
    "2",
    "--recompute=none",
    "--device=v100",
    "--pick=leanest",
)


@pytest.fixture
def noted(opt, deep: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """Plan ``deep`` with nodes and initializers in front; return the lines on stderr."""

    def run(
        nodes: list[onnx.NodeProto], shapes: dict[str, list[int]], *flags: str, opset: int = 0
    ) -> list[str]:
        model = onnx.load(deep)
        model.opset_import[0].version = opset or model.opset_import[0].version
        model.producer_name = "pytorch"
        model.graph.node[0].input[0] = "z"
        for place, made in enumerate(nodes):
            model.graph.node.insert(place, made)
        for name, shape in shapes.items():
            ones = [1.0] * (shape[0] * shape[1])
            model.graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, shape, ones))
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        outcome = opt(path, *FLAGS, *flags)
        assert outcome.status == 0
        return outcome.err.splitlines()

    return run


def test_what_is_trained_is_counted(opt, deep: Path) -> None:
    assert opt(deep, *FLAGS).err == "note: trained: 4 tensors of 1,024 elements\n"
    frozen = opt(deep, *FLAGS, "--freeze", "w1").err
    expected = (
        "note: trained: 3 tensors of 768 elements; not trained: 1 tensor of 256 elements, 'w1'"
    )
    assert frozen == f"{expected}\n"
    assert opt(deep, "--devices", "2").err == ""


def test_tables_are_not_trained(noted) -> None:
    nodes = [helper.make_node("Mul", ["x", "cos"], ["z"])]
    first, second = noted(nodes, {"cos": [8, 16]})
    assert first == (
        "note: trained: 4 tensors of 1,024 elements; not trained: 1 tensor of 128 elements, 'cos'"
    )
    assert second == (
        "note: not trained, since they are only added, multiplied or compared, as tables and masks "
        "are: 'cos'; --unfreeze 'cos' trains them"
    )


def test_a_table_is_trained_if_asked_for(noted) -> None:
    nodes = [helper.make_node("Mul", ["x", "cos"], ["z"])]
    assert noted(nodes, {"cos": [8, 16]}, "--unfreeze", "c*") == [
        "note: trained: 5 tensors of 1,152 elements"
    ]
    assert len(noted(nodes, {"cos": [8, 16]}, "--freeze", "cos")) == 1


def test_text_trains_no_tables_either(noted, opt, tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "cos"], ["z"])]
    noted(nodes, {"cos": [8, 16]})
    for flags, count in (((), 4), (("--unfreeze", "cos"), 5)):
        text = opt(tmp_path / "model.onnx", *FLAGS, *flags, "--emit", "search").out
        assert text.count('topt.state = "parameter"') == count


def test_only_tables_are_unfrozen(deep: Path, refused) -> None:
    message = refused(deep, *FLAGS, "--unfreeze", "w1")
    assert message == "--unfreeze: 'w1' matches no table or mask"


def test_a_bias_and_a_weight_are_no_tables(noted) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["z"]),
    ]
    assert len(noted(nodes, {"w": [16, 16], "b": [1, 16]})) == 1


def test_merged_tensors_are_pointed_at(noted) -> None:
    nodes = [
        helper.make_node("Identity", ["w1"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["z"]),
    ]
    _, second = noted(nodes, {})
    assert "'w1'" in second
    assert second.endswith("export with training=torch.onnx.TrainingMode.TRAINING")


def test_a_pattern_that_matches_nothing_is_refused(refused, deep: Path) -> None:
    message = refused(deep, *FLAGS, "--freeze", "w1,w2x")
    assert message == "--freeze: 'w2x' matches no weight, did you mean 'w2'?"


def test_a_model_with_nothing_to_train_is_refused(refused, deep: Path) -> None:
    message = refused(deep, *FLAGS, "--freeze", "*")
    assert "the model has 0 to train and 4 that are fixed or frozen" in message


def test_a_precision_that_does_not_run_is_said(opt, deep: Path) -> None:
    noted = opt(deep, *FLAGS, "--precision", "bfloat16").err
    assert "no bfloat16 kernels for CPUs: run this with --provider cuda" in noted


def test_what_has_no_cuda_kernel_is_said(noted) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Tan", ["a"], ["z"]),
    ]
    *_, last = noted(nodes, {"w": [16, 16]})
    text = "note: without CUDA kernels, and so on the CPU with --provider cuda too: Tan (1)"
    assert last == text


def test_a_kernel_of_an_older_version_is_pointed_at(noted) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Elu", ["a"], ["z"]),
    ]
    assert noted(nodes, {"w": [16, 16]}, opset=22)[-1].endswith(
        ": Elu (1; there is one in opset 21)"
    )
    assert "Elu" not in noted(nodes, {"w": [16, 16]}, opset=21)[-1]
