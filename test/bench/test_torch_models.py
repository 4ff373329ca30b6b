"""PyTorch reference modules compute the same as their ONNX models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from graphs.bert import Bert
from graphs.resnet import ResNet
from graphs.trained import TRAINED
from torch_models.catalog import torch_model
from torch_models.weights import load_weights
from training_data import batch_size, draw

MODELS = {
    **TRAINED,
    "bert": Bert(layers=2, width=32, heads=4, vocabulary=64, sequence=8, batch=4),
    "resnet": ResNet(layers=14, batch=2, image=32, shrink=16, classes=8),
}


@pytest.mark.parametrize("name", MODELS)
def test_scores_agree_with_onnx_runtime(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    path = model.build(name).save(tmp_path, seed=0)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    held = draw(path, batch_size(path))
    (scores,) = session.run(None, {i.name: held[i.name] for i in session.get_inputs()})
    module = torch_model(model, path).eval()
    feeds = [torch.from_numpy(held[i.name]) for i in session.get_inputs()]
    with torch.no_grad():
        found = module(*feeds).numpy()
    np.testing.assert_allclose(found, scores, rtol=1e-5, atol=1e-5 * np.abs(scores).max())
    assert held["labels"].shape == scores.shape[:-1]


def test_a_weight_without_a_place_is_refused(tmp_path: Path) -> None:
    path = TRAINED["gpt2"].build("gpt2").save(tmp_path, seed=0)
    with pytest.raises(AssertionError, match="not in the module"):
        load_weights(torch.nn.Module(), path)
