"""Losses and weights of steps with ignored labels, against PyTorch on the whole batch.

The numbers of labels that count differ widely between samples: a mean of the means of ranks or of
micro-batches is another number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from unlike_devices import described

import tensoropt as to
from tensoropt.elastic.cli.job import main

Arrays = Mapping[str, np.ndarray]
LOSS = "softmax-cross-entropy:scores,labels"
SAMPLES, TOKENS, WIDTH, CLASSES = 16, 6, 8, 6
STEPS, RATE = 4, 0.5
RNG = np.random.default_rng(0)
WEIGHTS = {
    name: RNG.standard_normal((WIDTH, size)).astype(np.float32) / math.sqrt(WIDTH)
    for name, size in (("w0", WIDTH), ("w1", CLASSES))
}
OPTIONS = {
    "ignored": {},
    "smoothed": {"label_smoothing": 0.2},
    "weighted": {"class_weights": [0.5, 2.0, 1.0, 0.0, 3.0, 1.0], "label_smoothing": 0.1},
    "other_index": {"ignore_index": 3},
}


def model(path: Path, batch: int) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"], "first"),
        helper.make_node("Tanh", ["h"], ["a"], "tanh"),
        helper.make_node("MatMul", ["a", "w1"], ["scores"], "second"),
    ]
    ends = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, TOKENS, size])]
        for name, size in (("x", WIDTH), ("scores", CLASSES))
    )
    stored = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    graph = helper.make_graph(nodes, "tokens", *ends, stored)
    imports = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def drawn(ignored: int = -100) -> dict[str, np.ndarray]:
    """Return samples: of the labels of a batch the first half counts, then one, then none."""
    rng, shape = np.random.default_rng(1), (STEPS * SAMPLES, TOKENS)
    labels = rng.integers(0, CLASSES, shape)
    for start in range(0, STEPS * SAMPLES, SAMPLES):
        labels[start + SAMPLES // 2 : start + SAMPLES] = ignored
        labels[start + SAMPLES - 3, 2] = 1
    labels[2 * SAMPLES : 3 * SAMPLES] = ignored  # the third step has none at all
    return {"x": rng.standard_normal((*shape, WIDTH)).astype(np.float32), "labels": labels}


def trained_by_torch(data: Arrays, **options: Any) -> tuple[list[float], dict[str, np.ndarray]]:
    """Return the loss of each step on a whole batch, and the weights after all."""
    import torch

    if "class_weights" in options:
        options["weight"] = torch.tensor(options.pop("class_weights"))
    weights = {name: torch.tensor(array, requires_grad=True) for name, array in WEIGHTS.items()}
    optimizer = torch.optim.SGD(list(weights.values()), RATE, weight_decay=0.01)
    losses = []
    for step in range(STEPS):
        rows = slice(step * SAMPLES, (step + 1) * SAMPLES)
        x, labels = (torch.tensor(data[name][rows]) for name in ("x", "labels"))
        scores = torch.tanh(x @ weights["w0"]) @ weights["w1"]
        loss = torch.nn.functional.cross_entropy(
            scores.reshape(-1, CLASSES), labels.reshape(-1), **options
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: w.detach().numpy() for name, w in weights.items()}


def evaluated_by_torch(data: Arrays, weights: Arrays, **options: Any) -> float:
    """Return the loss over all samples together."""
    import torch

    if "class_weights" in options:
        options["weight"] = torch.tensor(options.pop("class_weights"))
    scores = torch.tensor(np.tanh(data["x"] @ weights["w0"]) @ weights["w1"])
    labels = torch.tensor(data["labels"]).reshape(-1)
    loss = torch.nn.functional.cross_entropy(scores.reshape(-1, CLASSES), labels, **options)
    return loss.item()


def planned(folder: Path, micro_batches: int, devices: Any, options: Any, **asked: Any) -> to.Plan:
    train = to.Training(
        LOSS, "sgd", weight_decay=0.01, micro_batches=micro_batches, recompute="none", **options
    )
    path = model(folder / "model.onnx", SAMPLES // micro_batches)
    frontier = to.load(path).frontier(devices, train=train, epsilon=1.0, **asked)
    point = next((p for p in frontier if len(p.replicas) == 2), frontier.fastest)
    return point.compile(folder / "plan")


CASES: Mapping[str, tuple[int, Any, dict[str, Any]]] = {
    "one": (1, 1, {}),
    "samples": (1, 2, {"pins": ["x=S(0)"]}),
    "tokens": (1, 2, {"pins": ["x=S(1)"]}),
    "classes": (1, 2, {"pins": ["w1=S(1)"]}),
    "uneven": (4, 3, {}),
    "micro_batches": (4, 1, {}),
    "both": (4, 2, {"pins": ["x=S(0)"]}),
    "stages": (4, 2, {"stages": 2}),
    "stages_of_two": (4, 4, {"stages": 2}),
    "replicas": (4, "replicas", {"stages": 1, "pins": ["w*=R"]}),
}


TRIALS = [
    *((case, "ignored") for case in CASES),
    *(("both", name) for name in OPTIONS if name != "ignored"),
    *((case, "weighted") for case in ("stages", "classes")),
]


@pytest.mark.parametrize(("case", "options"), TRIALS)
def test_the_mean_is_over_the_labels_of_all_ranks_and_batches(
    case: str, options: str, tmp_path: Path
) -> None:
    micro_batches, devices, asked = CASES[case]
    if devices == "replicas":
        unlike = described(tmp_path, "fast", 3.0), described(tmp_path, "slow", 1.0)
        devices = ",".join(f"{path}:1" for path in unlike)
    plan = planned(tmp_path, micro_batches, devices, OPTIONS[options], **asked)
    data = drawn(OPTIONS[options].get("ignore_index", -100))
    saved = tmp_path / "saved"
    run = to.train(plan, data, STEPS, learning_rate=RATE, checkpoint=saved, evaluate_data=data)
    compare(run.losses, run.checkpoint, data, OPTIONS[options])
    expected = evaluated_by_torch(data, load_file(str(run.checkpoint)), **OPTIONS[options])
    assert run.evaluation_losses == {STEPS: pytest.approx(expected, rel=1e-5)}
    assert math.isnan(run.losses[2])


def compare(losses: Sequence[float], checkpoint: Path | None, data: Arrays, options: Any) -> None:
    expected, weights = trained_by_torch(data, **options)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    saved = load_file(str(checkpoint))
    for name, array in weights.items():
        np.testing.assert_allclose(saved[name], array, rtol=1e-4, atol=1e-6)


def test_the_mean_is_the_same_after_a_change_of_plans(tmp_path: Path) -> None:
    """The first two steps run in stages, the others split over samples."""
    data, saved = drawn(), tmp_path / "saved"
    first, second = (tmp_path / name for name in ("first", "second"))
    for folder, case in ((first, "stages"), (second, "both")):
        folder.mkdir()
        planned(folder, *CASES[case][:2], {}, **CASES[case][2])
    before = to.train(first / "plan", data, 2, learning_rate=RATE, checkpoint=saved)
    after = to.train(
        second / "plan", data, 2, learning_rate=RATE, checkpoint=saved, resume=before.checkpoint
    )
    compare([*before.losses, *after.losses], after.checkpoint, data, {})


def test_the_generations_of_an_elastic_job_compute_the_same_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job on one device, and one on two that goes on from its checkpoint; both evaluate."""
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path / "jobs"))
    train = to.Training(LOSS, "sgd", weight_decay=0.01, micro_batches=4, recompute="none")
    loaded = to.load(model(tmp_path / "model.onnx", SAMPLES // 4))
    loaded.family(tmp_path / "family", train, devices=2)
    data, rows = drawn(), []
    np.savez(tmp_path / "data.npz", **data)
    source, saved, log = tmp_path / "data.npz", tmp_path / "saved", tmp_path / "log"
    for devices, steps, resumed in ((1, 2, []), (2, STEPS, ["--resume", str(saved)])):
        flags = ["--data", source, "--evaluate-data", source, "--checkpoint", saved, "--log", log]
        flags += ["--steps", steps, "--devices", devices, "--learning-rate", RATE]
        command = ["run", tmp_path / "family", "--name", f"on{devices}", *flags, *resumed]
        assert main([*map(str, command)]) == 0, capsys.readouterr().err
        rows = [json.loads(line) for line in log.read_text().splitlines()]
    losses = [math.nan if row["loss"] is None else row["loss"] for row in rows]
    compare(losses, max(saved.glob("step-*.safetensors")), data, {})
    weights = load_file(str(max(saved.glob("step-*.safetensors"))))
    assert rows[-1]["evaluation_loss"] == pytest.approx(evaluated_by_torch(data, weights), rel=1e-5)
