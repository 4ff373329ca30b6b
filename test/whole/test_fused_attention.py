"""Long sequences in training on a processor: attention keeps no scores, and computes the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs.gpt import Gpt
from train_runs import run_plan
from without_kernels import without_kernels

from tensoropt.compiler.cli.opt import main

TOKENS, BATCH, WORDS = 2048, 2, 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, data, and a description of ranks without the kernel."""
    made = tmp_path_factory.mktemp("long")
    Gpt(
        layers=1, width=64, heads=2, vocabulary=WORDS, sequence=TOKENS, batch=BATCH, dtype="float32"
    ).build("gpt").save(made, seed=0)
    without_kernels(made)
    rng = np.random.default_rng(0)
    samples = {name: rng.integers(0, WORDS, (2 * BATCH, TOKENS)) for name in ("ids", "labels")}
    np.savez(made / "data.npz", **samples)
    return made


def plan_of(folder: Path, device: str, devices: int = 1, *more: str) -> Path:
    plan = folder / f"{Path(device).stem}{devices}"
    if plan.exists():
        return plan
    given = ["--train", "--loss", "softmax-cross-entropy:scores,labels", "--recompute", "none"]
    on = ["--device", device, "--devices", str(devices), "-o", str(plan)]
    assert main([str(folder / "gpt.onnx"), *given, *on, *more]) == 0
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


def test_masks_of_dropout_are_the_same_on_any_number_of_ranks(tmp_path: Path) -> None:
    Gpt(
        layers=2, width=32, heads=2, vocabulary=WORDS, sequence=64, batch=4, dtype="float32",
        attention_dropout=0.3,
    ).build("gpt").save(tmp_path, seed=0)  # fmt: skip
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "data.npz", **{n: rng.integers(0, WORDS, (8, 64)) for n in ("ids", "labels")}
    )
    chain = plan_of(tmp_path, str(without_kernels(tmp_path)))
    assert not count(chain, "Attention")
    losses = [run_plan(chain, tmp_path / "data.npz", 4, 0.5, threads=1).losses]
    for devices, pick in ((1, "leanest"), (2, "leanest"), (4, "leanest"), (4, "fastest")):
        plan = plan_of(tmp_path, "cpu", devices, "--pick", pick)
        assert count(plan, "Attention") >= 2
        assert not count(plan, "Softmax")
        losses.append(run_plan(plan, tmp_path / "data.npz", 4, 0.5, threads=1).losses)
        if devices == 4:
            shutil.rmtree(plan)
    for one in losses[1:]:
        np.testing.assert_allclose(one, losses[0], rtol=1e-4)
    assert len(set(losses[0])) == 4  # each step has masks of its own
