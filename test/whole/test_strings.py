"""Strings from a file, through a plan on two ranks, into a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from odd_models import MODELS, node, value, weight, y
from odd_models import model as model_of

from tensoropt.compiler.cli.opt import main as opt
from tensoropt.runtime.cli.run import main as run
from tensoropt.runtime.plan.plan import Plan

GIVEN = np.array([*"abcdxyzé", *"hgfehgfe"] * 8).reshape(8, 16)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("strings") / "model.onnx"
    onnx.save(MODELS["strings"](), path)
    return path


def test_from_file_to_file(model: Path, tmp_path: Path, capsys) -> None:
    plan, given, made = (tmp_path / name for name in ("plan", "in.npz", "out.npz"))
    np.savez(given, x=GIVEN)
    assert opt([str(model), "--devices", "2", "-o", str(plan)]) == 0
    flags = ["--check", str(model), "--inputs", str(given), "--outputs", str(made)]
    assert run([str(plan), *flags]) == 0
    out = capsys.readouterr().out
    assert "copy    string   8x16   -                   -         ok" in out
    with np.load(made) as outputs:
        np.testing.assert_array_equal(outputs["copy"], GIVEN)
        np.testing.assert_array_equal(outputs["same"], GIVEN == "c")
        known = np.isin(GIVEN, [*"abcdefgh"])
        np.testing.assert_array_equal(outputs["back"], np.where(known, GIVEN, "none"))
        assert outputs["found"].dtype.kind == "U"


@pytest.mark.parametrize(
    ("array", "got"), [(GIVEN.astype(object), "object"), (np.zeros((8, 16)), "float64")]
)
def test_what_is_no_text(array: np.ndarray, got: str, model: Path, tmp_path: Path, capsys) -> None:
    plan, given = tmp_path / "plan", tmp_path / "in.npz"
    np.savez(given, x=array)
    assert opt([str(model), "--devices", "2", "-o", str(plan)]) == 0
    capsys.readouterr()
    assert run([str(plan), "--inputs", str(given)]) == 1
    error = capsys.readouterr().err
    assert error == f"error: {given}: input 'x': expected text, such as numpy's <U8, got: {got}\n"


def test_a_training_step_takes_none(tmp_path: Path, capsys) -> None:
    nodes = [
        node("LabelEncoder", ["x"], ["i"], classes_strings=["a", "b"], domain="ai.onnx.ml"),
        node("Gather", ["w", "i"], ["y"]),
    ]
    inputs = [value("x", onnx.TensorProto.STRING, [8])]
    proto = model_of(nodes, inputs, [y(8, 4)], weight("w", 2, 4), domains=["ai.onnx.ml"])
    onnx.save(proto, tmp_path / "m.onnx")
    flags = ["--train", "--loss", "mse:y,t", "--devices", "2"]
    assert opt([str(tmp_path / "m.onnx"), *flags]) == 1
    assert capsys.readouterr().err == (
        f"error: {tmp_path / 'm.onnx'}: 'x': expected inputs of a training step that are numbers "
        "or booleans, got: tensor<8x!onnx.String> (in pass 'build-training-step')\n"
    )


def test_a_forest_is_split_by_samples(tmp_path: Path) -> None:
    path, plan = tmp_path / "forest.onnx", tmp_path / "plan"
    onnx.save(MODELS["a_forest"](), path)
    assert opt([str(path), "--devices", "2", "--pick", "leanest", "-o", str(plan)]) == 0
    outputs = {tensor.name: tensor for tensor in Plan.load(plan).outputs}
    assert outputs["label"].dtype == "string"
    assert {tensor.local_shape()[0] for tensor in outputs.values()} == {4}
