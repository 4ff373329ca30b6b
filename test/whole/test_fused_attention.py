"""Long sequences in training on a processor: attention keeps no scores, and computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs.gpt import Gpt
from train_runs import run_plan

from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.cost.device import description_text

TOKENS, BATCH, WORDS = 2048, 2, 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, data, and a description of ranks without the kernel."""
    made = tmp_path_factory.mktemp("long")
    Gpt(
        layers=1, width=64, heads=2, vocabulary=WORDS, sequence=TOKENS, batch=BATCH, dtype="float32"
    ).build("gpt").save(made, seed=0)
    text = description_text("cpu").replace('provider = "cpu"', 'provider = "cuda"')
    (made / "without.toml").write_text(text)
    rng = np.random.default_rng(0)
    samples = {name: rng.integers(0, WORDS, (2 * BATCH, TOKENS)) for name in ("ids", "labels")}
    np.savez(made / "data.npz", **samples)
    return made


def plan_of(folder: Path, device: str, devices: int = 1) -> Path:
    plan = folder / f"{Path(device).stem}{devices}"
    if plan.exists():
        return plan
    given = ["--train", "--loss", "softmax-cross-entropy:scores,labels", "--recompute", "none"]
    on = ["--device", device, "--devices", str(devices), "-o", str(plan)]
    assert main([str(folder / "gpt.onnx"), *given, *on]) == 0
    return plan


def count(plan: Path, op_type: str) -> int:
    graph = onnx.load(plan / "rank0.onnx", load_external_data=False).graph
    return sum(node.op_type == op_type for node in graph.node)


def test_the_peak_falls_and_is_predicted(folder: Path) -> None:
    runs = {}
    for device in ("cpu", str(folder / "without.toml")):
        plan = plan_of(folder, device)
        is_fused = device == "cpu"
        assert count(plan, "Attention") == count(plan, "AttentionGradient") == is_fused
        assert (count(plan, "Softmax") > 0) == (not is_fused)
        runs[is_fused] = run_plan(plan, folder / "data.npz", 2, 1e-3, threads=1)
    fused, chain = runs[True], runs[False]
    np.testing.assert_allclose(fused.losses, chain.losses, rtol=1e-4)
    assert fused.result.peak_bytes < 0.85 * chain.result.peak_bytes
    predicted = fused.result.predicted_peak_bytes
    assert predicted == pytest.approx(fused.result.peak_bytes, rel=0.1)


def test_two_ranks_compute_the_same(folder: Path) -> None:
    one, two = (
        run_plan(plan_of(folder, "cpu", devices), folder / "data.npz", 2, 1e-3, threads=1)
        for devices in (1, 2)
    )
    np.testing.assert_allclose(two.losses, one.losses, rtol=1e-4)
