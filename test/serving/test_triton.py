"""The model repository for Triton, as far as it goes without Triton: its backend is a stand-in.

It has what `triton_python_backend_utils` documents of itself: tensors, requests, responses
and errors, and a loader that imports model.py as the backend does.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from google.protobuf import text_format
from handmade import Perceptron
from tritonclient.grpc import model_config_pb2

from tensoropt.serving.batching.sizes import Batching
from tensoropt.serving.cli.serve import main
from tensoropt.serving.protocol.tensors import TensorSpec
from tensoropt.serving.triton.repository import config_text


class _Tensor:
    def __init__(self, name, array):
        assert isinstance(array, np.ndarray)
        self._name, self._array = name, array

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array


class _Response:
    def __init__(self, output_tensors, error=None):
        self.outputs = {tensor.name(): tensor.as_numpy() for tensor in output_tensors}
        self.error = error


def _request(**arrays):
    return {name: _Tensor(name, array) for name, array in arrays.items()}


_BACKEND = SimpleNamespace(
    Tensor=_Tensor,
    InferenceResponse=_Response,
    TritonError=str,
    get_input_tensor_by_name=lambda request, name: request[name],
)


def _loaded(model, monkeypatch):
    """Return the class in model.py, and the configuration that Triton would read."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", _BACKEND)
    spec = importlib.util.spec_from_file_location("model", model / "1" / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (model / "config.pbtxt").read_text()
    return module.TritonPythonModel, text_format.Parse(text, model_config_pb2.ModelConfig())


def test_requests_run_through_the_exported_model(tmp_path, monkeypatch):
    perceptron = Perceptron(tmp_path, 4)
    plan = perceptron.plan(tmp_path / "plan")
    repository = tmp_path / "repository"
    export = [f"mlp={plan}", "--export-triton", str(repository), "--threads", "1"]
    assert main([*export, "--batch-delay-ms", "3"]) == 0
    plain_class, config = _loaded(repository / "mlp", monkeypatch)
    assert (config.name, config.backend, config.max_batch_size) == ("mlp", "python", 4)
    assert config.dynamic_batching.max_queue_delay_microseconds == 3000
    assert [(one.name, list(one.dims)) for one in config.input] == [("x", [6])]
    assert [(one.name, list(one.dims)) for one in config.output] == [("y", [5])]
    model = plain_class()
    model.initialize(
        {
            "model_repository": str(repository / "mlp"),
            "model_version": "1",
            "model_config": json.dumps({"max_batch_size": config.max_batch_size}),
        }
    )
    try:
        random = np.random.default_rng(3)
        xs = [random.random((samples, 6), np.float32) for samples in (1, 3, 2, 4)]
        for x, response in zip(xs, model.execute([_request(x=x) for x in xs]), strict=True):
            wanted = np.maximum(x @ perceptron.w1, 0) @ perceptron.w2
            assert response.error is None
            np.testing.assert_allclose(response.outputs["y"], wanted, rtol=1e-5)
        (response,) = model.execute([_request(x=np.zeros((1, 7), np.float32))])
        assert "expected" in response.error
    finally:
        model.finalize()


def test_configurations_are_triton_s():
    inputs = (
        TensorSpec("ids", "int64", ("n", "length")),
        TensorSpec("name", "string", ("n",)),
        TensorSpec("mask", "bool", ("n", 3)),
    )
    outputs = (TensorSpec("y", "float16", ("n", 2)),)
    batching = Batching(8, is_fixed=False)
    text = config_text('a"b', inputs, outputs, batching, 0.002)
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert config.name == 'a"b'
    assert config.max_batch_size == 8
    kinds = model_config_pb2
    assert [(one.name, one.data_type, list(one.dims)) for one in config.input] == [
        ("ids", kinds.TYPE_INT64, [-1]),
        ("name", kinds.TYPE_STRING, [1]),
        ("mask", kinds.TYPE_BOOL, [3]),
    ]
    assert config.input[1].HasField("reshape")
    assert config.output[0].data_type == kinds.TYPE_FP16


def test_configurations_without_batches():
    text = config_text("m", (TensorSpec("x", "float32", (4, 3)),), (), None, 0.0)
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert config.max_batch_size == 0
    assert list(config.input[0].dims) == [4, 3]
    assert not config.HasField("dynamic_batching")


def test_a_model_that_is_there_is_kept(tmp_path, capsys):
    plan = Perceptron(tmp_path).plan(tmp_path / "plan")
    (tmp_path / "repository" / "plan").mkdir(parents=True)
    assert main([str(plan), "--export-triton", str(tmp_path / "repository")]) == 1
    assert "plan: is another model, expected the same" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_types_that_its_python_backend_lacks(tmp_path, capsys, dtype):
    from handmade import edit

    def change(content):
        content["outputs"][0]["dtype"] = dtype

    plan = edit(Perceptron(tmp_path).plan(tmp_path / "plan"), change)
    assert main([str(plan), "--export-triton", str(tmp_path / "repository")]) == 1
    assert "'y': Triton's Python backend has no bfloat16" in capsys.readouterr().err


def test_a_plan_becomes_the_next_version(tmp_path):
    plan = Perceptron(tmp_path, 4).plan(tmp_path / "plan")
    export = [f"mlp={plan}", "--export-triton", str(tmp_path / "repository")]
    assert main(export) == 0
    assert main(export) == 0
    model = tmp_path / "repository" / "mlp"
    assert sorted(path.name for path in model.iterdir()) == ["1", "2", "config.pbtxt"]
    assert (model / "2" / "plan" / "plan.json").is_file()


def test_another_model_is_no_version(tmp_path, capsys):
    """Nothing of a refused export is left, of no plan that it names."""
    plan = Perceptron(tmp_path, 4).plan(tmp_path / "plan")
    repository = tmp_path / "repository"
    assert main([f"mlp={plan}", "--export-triton", str(repository)]) == 0
    again = [f"new={plan}", f"mlp={plan}", "--export-triton", str(repository), "--no-batching"]
    assert main(again) == 1
    assert "mlp: is another model, expected the same config.pbtxt" in (capsys.readouterr().err)
    assert [path.name for path in repository.iterdir()] == ["mlp"]


def test_a_size_of_no_dimension_is_refused(tmp_path, capsys):
    plan = Perceptron(tmp_path, 4).plan(tmp_path / "plan")
    assert main([str(plan), "--export-triton", str(tmp_path / "r"), "--dim", "bach=8"]) == 1
    assert "--dim bach: no input has such a dimension" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
