"""Benchmark models: they are valid, have the published sizes, and run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import zoo
from graphs.catalog import MODELS
from graphs.residual import Residual
from graphs.trained import TRAINED
from graphs.vit import Vit
from tiny import TINY, write_tiny

from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.search.frontier.points import fastest, leanest
from tensoropt.runtime.inference.jobs import check_plans

GRAPHS = Path(__file__).parent.parent.parent / "bench" / "graphs"

# Millions of parameters as published, and half a unit of the last digit. The base Transformer has a
# separate test: the paper's 37000 words result in 63.1, while its table says 65.
PUBLISHED = {
    "alexnet": (61.1, 0.05),
    "vgg16": (138.4, 0.05),
    "inception_v3": (23.8, 0.05),
    "resnet152": (60.2, 0.05),
    "wrn50_2": (68.9, 0.05),
    "lstm": (66, 0.5),
    "lstm_unrolled": (66, 0.5),
    "transformer_big": (213, 0.5),
    "bert_large": (336, 0.5),
    "gpt3_13b": (13_000, 50),
    "gpt3_175b": (175_000, 500),
    "llama3_8b": (8_030, 5),
    "llama3_70b": (70_554, 0.5),
    "mixtral_8x7b": (46_700, 50),
}
LARGE = ("gpt3_13b", "gpt3_175b", "llama3_8b", "llama3_70b", "mixtral_8x7b")


def _sized(name: str, **sizes: Any) -> Any:
    return replace(MODELS[name], **sizes)  # type: ignore[type-var]


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name: str) -> None:
    millions, rounding = PUBLISHED[name]
    found = _sized(name).build(name).parameters / 1e6
    assert abs(found - millions) <= 0.01 * millions + rounding


def test_the_base_transformer_grows_with_its_layers_as_published() -> None:
    """Table 3 gives 36, 50 and 80 million for 2, 4 and 8 layers; the vocabulary cancels out."""
    counts = [_sized("transformer_base", layers=n).build("x").parameters / 1e6 for n in (2, 4, 8)]
    assert counts[2] - counts[0] == pytest.approx(80 - 36, rel=0.01)
    assert counts[1] - counts[0] == pytest.approx(50 - 36, abs=1)


@pytest.mark.parametrize(("model", "millions"), [(Vit(), 86), (Residual(), 0.27)])
def test_parameters_of_what_is_trained_are_those_published(model: Any, millions: float) -> None:
    assert model.build("x").parameters / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize("name", TRAINED)
def test_models_that_are_trained_are_valid_and_every_shape_is_known(
    name: str, tmp_path: Path
) -> None:
    _check(TRAINED[name].build(name).save(tmp_path))


@pytest.mark.parametrize("name", MODELS)
def test_models_are_valid_and_every_shape_is_known(name: str, tmp_path: Path) -> None:
    _check(_sized(name, **({"layers": 1} if name in LARGE else {})).build(name).save(tmp_path))


def _check(path: Path) -> None:
    onnx.checker.check_model(path)
    model = onnx.load(path, load_external_data=False)
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    module = _prepared(path)
    assert "?" not in str(module)
    assert "tensor<*x" not in str(module)


def test_weights_are_a_hole_of_the_right_size(tmp_path: Path) -> None:
    path = _sized("gpt3_13b", layers=1).build("gpt").save(tmp_path)
    held = path.with_suffix(".data").stat()
    stored = onnx.load(path, load_external_data=False).graph.initializer
    wanted = sum(2 * int(np.prod(t.dims)) for t in stored if len(t.external_data))
    assert wanted <= held.st_size <= wanted + 4096 * len(stored)
    assert held.st_blocks * 512 < 1 << 20


@pytest.mark.parametrize("name", MODELS)
def test_scaled_down_models_run(name: str, tmp_path: Path) -> None:
    path = write_tiny(name, tmp_path)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, _feeds(session))
    assert list(scores.shape) == session.get_outputs()[0].shape
    assert np.isfinite(scores).all()
    assert scores.std() > 1e-3


def _feeds(session: ort.InferenceSession) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    feeds = {}
    for held in session.get_inputs():
        if held.type == "tensor(int64)":
            feeds[held.name] = rng.integers(0, 2, held.shape)
        else:
            feeds[held.name] = rng.standard_normal(held.shape, dtype=np.float32)
    return feeds


@pytest.mark.parametrize("name", ["gpt3_175b", "bert_large"])
def test_causal_models_do_not_look_ahead(name: str, tmp_path: Path) -> None:
    session = ort.InferenceSession(write_tiny(name, tmp_path), providers=["CPUExecutionProvider"])
    feeds = {key: np.ones_like(value) for key, value in _feeds(session).items()}
    (before,) = session.run(None, feeds)
    feeds["ids"][:, -1] = 0
    (after,) = session.run(None, feeds)
    assert (np.abs(before - after)[:, :-1].max() == 0) == name.startswith("gpt")


def test_the_unrolled_lstm_is_the_operator(tmp_path: Path) -> None:
    """Both have the same weights: ONNX's gates are in the order input, output, forget, cell."""
    one, other = (write_tiny(name, tmp_path / name) for name in ("lstm", "lstm_unrolled"))
    model = onnx.load(one)
    given = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    target = onnx.load(other)
    for tensor in target.graph.initializer:
        array = _unrolled_weight(tensor.name, given)
        if array is not None:
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    sessions = [
        ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
        for m in (model, target)
    ]
    feeds = _feeds(sessions[0])
    results = [session.run(None, feeds)[0] for session in sessions]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)


def _unrolled_weight(name: str, given: dict[str, Any]) -> Any:
    layer = name.split(".")[0]
    if name.startswith("layer"):
        if name.endswith("recurrent"):
            return np.ascontiguousarray(given[name][0].T)
        if name.endswith("input.weight"):
            return np.ascontiguousarray(given[f"{layer}.input"][0].T)
        return given[f"{layer}.bias"][0].reshape(2, -1).sum(axis=0)
    return given.get(name) if not name.startswith("constant") else None


@pytest.mark.parametrize("name", ["gpt3_175b", "mixtral_8x7b", "inception_v3"])
def test_scaled_down_models_agree_on_two_ranks(name: str, tmp_path: Path) -> None:
    path = write_tiny(name, tmp_path)
    request = Request(2, epsilon=0.0)
    result = driver.frontier(_prepared(path), request)
    for pick in (fastest, leanest):
        module, folder = _prepared(path), tmp_path / pick.__name__
        driver.settle(module, pick(result.points), request, result)
        driver.compile_plan(module, path, folder)
    plans = [tmp_path / pick.__name__ for pick in (fastest, leanest)]
    results = check_plans(plans, path, int_range=(0, TINY[name].get("vocabulary", 2)))
    assert all(held.passed for held in results), results
    assert len(set(result.points[-1].strategies.values())) > 1


def _prepared(path: Path) -> driver.ir.Module:
    module = driver.load(path, {})
    driver.advance(module, "rules")
    return module


def _call(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(GRAPHS), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_writes_a_model_of_the_sizes_given(tmp_path: Path) -> None:
    done = _call("gpt3_13b", "--layers", "2", "--batch", "3", "--set", "width=80", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    model = onnx.load(tmp_path / "gpt3_13b.onnx", load_external_data=False)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3
    assert "layer1.mlp.up.weight" in {t.name for t in model.graph.initializer}
    assert "layer2.mlp.up.weight" not in {t.name for t in model.graph.initializer}


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["gpt"], "invalid choice: 'gpt'"),
        (["alexnet", "--layers", "3"], "alexnet: no size 'layers', expected one of batch, image"),
        (["lstm", "--set", "width=wide"], "lstm: width: expected int, got: 'wide'"),
        (["lstm", "--set", "unrolled=1"], "lstm: unrolled: expected true or false, got: '1'"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], wrong: str, tmp_path: Path) -> None:
    done = _call(*arguments, "-o", str(tmp_path))
    assert done.returncode == 1
    assert wrong in done.stderr.splitlines()[-1]


def test_weights_have_the_mode_of_new_files(tmp_path: Path) -> None:
    """The library that writes external data makes it readable by its owner only."""
    model = zoo.provide("squeezenet", tmp_path)
    modes = {path.stat().st_mode & 0o777 for path in (model, model.with_name(f"{model.name}.data"))}
    assert len(modes) == 1
