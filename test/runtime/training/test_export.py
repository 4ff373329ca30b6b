"""Trained weights in the model they belong to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from handmade import model_of, value_info
from handmade_classifier import Classifier
from onnx import helper, numpy_helper
from safetensors.numpy import load_file
from sealed import save_sealed

from tensoropt.runtime.cli.run import main
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training import export
from tensoropt.runtime.training.export import export_model


@pytest.fixture
def trained(train, plans, tmp_path: Path) -> Path:
    train(plans["zero2"], 5, checkpoint=str(tmp_path / "checkpoints"))
    return tmp_path / "checkpoints" / "step-00000005.safetensors"


def weights(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    rest.graph.ClearField("initializer")
    return rest


def test_after_training(train, plans, classifier: Classifier, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "out.onnx", tmp_path / "checkpoints"
    given = {"export": str(out), "model": str(classifier.model), "checkpoint": str(checkpoint)}
    result, _ = train(plans["zero2"], 5, **given)
    assert result.export == str(out)
    before, after = onnx.load(classifier.model), onnx.load(out)
    assert without_weights(after) == without_weights(before)
    held = load_file(checkpoint / "step-00000005.safetensors")
    found, old = weights(after), weights(before)
    for name in (*classifier.weights, *classifier.buffers):
        assert np.array_equal(found[name], held[name])
        assert not np.array_equal(found[name], old[name])
    assert np.array_equal(found["t0"], old["t0"])  # no parameter
    assert not list(tmp_path.glob(".out*"))


def test_from_a_checkpoint(capsys, trained: Path, plans, classifier, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    flags = ["--resume", trained.parent, "--export", out, "--model", classifier.model]
    assert main([str(word) for word in (plans["data1"], *flags)]) == 0
    assert capsys.readouterr() == ("", "")
    assert np.array_equal(weights(onnx.load(out))["w1"], load_file(trained)["w1"])


def test_large_weights_lie_outside(trained, classifier, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(export, "_INLINE", 100)
    out = tmp_path / "out.onnx"
    export_model(classifier.model, trained, out)
    graph = onnx.load(out, load_external_data=False)
    outside = {t.name for t in graph.graph.initializer if t.data_location}
    assert outside == {*classifier.weights, *classifier.buffers}
    found, held = weights(onnx.load(out)), load_file(trained)
    assert all(np.array_equal(found[name], held[name]) for name in outside)
    assert (tmp_path / "out.onnx.data").is_file()


def test_a_model_with_external_data(trained, classifier, tmp_path: Path) -> None:
    model = onnx.load(classifier.model)
    model.graph.initializer.append(numpy_helper.from_array(np.arange(9.0), "frozen"))
    source = tmp_path / "source.onnx"
    onnx.save(model, source, save_as_external_data=True, location="w.bin", size_threshold=0)
    out = tmp_path / "there"
    out.mkdir()
    export_model(source, trained, out / "out.onnx")
    found = weights(onnx.load(out / "out.onnx"))
    assert np.array_equal(found["frozen"], np.arange(9.0))
    assert np.array_equal(found["w2"], load_file(trained)["w2"])
    assert sorted(path.name for path in out.iterdir()) == ["out.onnx", "out.onnx.data"]


def test_weights_that_are_constants(trained, tmp_path: Path) -> None:
    nodes = [helper.make_node("Constant", [], ["w2"], value=numpy_helper.from_array(np.ones(3)))]
    ends = [value_info("x", "float32", [4])], [value_info("w2", "float64", [3])]
    onnx.save(model_of(nodes, *ends), tmp_path / "m.onnx")
    save_sealed({"w2": np.arange(3.0)}, tmp_path / "c", metadata_of(trained))
    export_model(tmp_path / "m.onnx", tmp_path / "c", tmp_path / "o.onnx")
    tensor = onnx.load(tmp_path / "o.onnx").graph.node[0].attribute[0].t
    assert np.array_equal(numpy_helper.to_array(tensor), np.arange(3.0))


def metadata_of(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        return file.metadata()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"x.men": np.zeros(2)}, "the model has no weight 'x.men', did you mean 'x.mean'?"),
        ({"b": np.zeros(8)}, "tensor 'b': expected F32 8, got: F64 8"),
    ],
)
def test_weights_that_do_not_fit(trained, classifier, tmp_path, tensors, message: str) -> None:
    save_sealed(tensors, tmp_path / "c", metadata_of(trained))
    with pytest.raises(UserError) as error:
        export_model(classifier.model, tmp_path / "c", tmp_path / "o.onnx")
    assert message in str(error.value)
    assert not (tmp_path / "o.onnx").exists()
