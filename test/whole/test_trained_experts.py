"""Mixtures of experts in training, on real ranks: every loss is that of PyTorch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from graphs.llama import Llama
from graphs.trained import LOSS
from torch_models.catalog import torch_model
from torch_models.steps import train
from train_runs import difference, run_plan
from training_data import draw

import tensoropt as to
from tensoropt.compiler.cli.opt import main

STEPS, BATCH, RATE, TOLERANCE = 8, 4, 0.01, 1e-4
FORMS = {
    "sent": "node:*mixture=[S(0)] [S(0)] [S(0)] * [S(0)] -> [S(0)]",
    "shared": "node:*mixture=[R] [R] [S(0)] * [S(0)] -> [P(sum)]",
    "features": "node:*mixture=[R] [R] [S(1)] * [S(2)] -> [P(sum)]",
}
MIXTRAL = Llama(
    layers=2, width=32, heads=4, groups=2, inner=24, vocabulary=64, experts=4, choices=2,
    sequence=8, batch=BATCH, dtype="float32",
)  # fmt: skip
QWEN = Llama(
    layers=1, width=32, heads=4, groups=2, inner=8, vocabulary=64, experts=16, choices=4,
    sequence=8, batch=BATCH, dtype="float32",
)  # fmt: skip


class Trained:
    """A model with its samples, and PyTorch's losses for the same."""

    def __init__(self, model: Llama, folder: Path) -> None:
        self.folder = folder
        self.path = model.build("model").save(folder, seed=0)
        arrays = draw(self.path, 4 * BATCH)
        self.data = folder / "data.npz"
        np.savez(self.data, **arrays)
        torch.set_num_threads(1)
        module = torch_model(model, self.path)
        self.losses = train(module, arrays, BATCH, STEPS, "adam", RATE)

    def plan(self, ranks: int, pins: tuple[str, ...], **options: Any) -> Path:
        """Write the fastest plan with ``pins``; ``options`` are of the training."""
        given = {"recompute": "none", "freeze": ["constant_*"], **options}
        step = to.Training(LOSS, "adam", **given)
        found = to.load(self.path).frontier(
            ranks, mesh=str(ranks), train=step, epsilon=1.0, pins=pins
        )
        plan = self.folder / f"plan{ranks}"
        found.fastest.compile(plan)
        return plan

    def error(self, plan: Path) -> float:
        """Return the largest difference of a loss."""
        found = run_plan(plan, self.data, STEPS, RATE, threads=1)
        return difference(found.losses, self.losses)


def operators(plan: Path) -> Counter[str]:
    graph = onnx.load(plan / "rank0.onnx", load_external_data=False).graph
    return Counter(node.op_type for node in graph.node)


@pytest.mark.parametrize(("ranks", "form"), [(1, ""), (2, "shared"), (4, "sent")])
def test_a_mixtral_trains(ranks: int, form: str, tmp_path: Path) -> None:
    case = Trained(MIXTRAL, tmp_path)
    plan = case.plan(ranks, (FORMS[form],) if form else ())
    assert operators(plan)["AllToAllRows"] == (8 if form == "sent" else 0)
    assert case.error(plan) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("model", [MIXTRAL, QWEN])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_train(model: Llama, ranks: int, form: str, tmp_path: Path) -> None:
    case = Trained(model, tmp_path)
    assert case.error(case.plan(ranks, (FORMS[form],))) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["light", "blocks"])
def test_recomputed_layers_train(recompute: str, tmp_path: Path) -> None:
    case = Trained(MIXTRAL, tmp_path)
    assert case.error(case.plan(2, (FORMS["sent"],), recompute=recompute)) < TOLERANCE


@pytest.mark.slow
def test_stages_train(tmp_path: Path) -> None:
    """Gradients of weights are tasks of their own, except for the mixtures'."""
    case = Trained(MIXTRAL, tmp_path)
    step = to.Training(LOSS, "adam", recompute="none", freeze=["constant_*"], micro_batches=2)
    found = to.load(case.path).frontier(
        4, train=step, epsilon=1.0, stages=2, pins=(FORMS["sent"],), schedule="zb-h1"
    )
    plan = tmp_path / "stages"
    found.fastest.compile(plan)
    arrays = dict(np.load(case.data))
    wanted = train(torch_model(MIXTRAL, case.path), arrays, 2 * BATCH, STEPS, "adam", RATE)
    assert difference(run_plan(plan, case.data, STEPS, RATE, threads=1).losses, wanted) < TOLERANCE


QUANTIZED = """
<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
quantized (float[4, 32] x) => (float[4, 32] y) {
    scores = MatMul (x, router)
    [mixture] y = com.microsoft.QMoE <k = 2, activation_type = "silu", expert_weight_bits = 8>
        (x, scores, up, ups, , down, downs)
}
"""


def test_a_router_of_quantized_experts_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = onnx.parser.parse_model(QUANTIZED)
    shapes = {"up": (4, 16, 32), "down": (4, 32, 16), "ups": (4, 16), "downs": (4, 32)}
    kinds = {"up": np.uint8, "down": np.uint8}
    arrays = {name: np.ones(shape, kinds.get(name, np.float32)) for name, shape in shapes.items()}
    for name, array in {**arrays, "router": np.ones((32, 4), np.float32)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model = tmp_path / "quantized.onnx"
    onnx.save(proto, model)
    step = ["--train", "--loss", "mse:y,labels", "--optimizer", "sgd", "--freeze", "*s"]
    assert main([str(model), *step]) == 1
    message = capsys.readouterr().err
    assert "mixture' (com.microsoft.QMoE) is between a parameter and the loss" in message
