"""Training with --provider cuda on real ranks, over stand-ins for NCCL and the CUDA runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from stand_ins import calls, communication

from tensoropt.runtime.device import cudart
from tensoropt.runtime.device.cuda import StandInProvider
from tensoropt.runtime.support.errors import UserError

_ACROSS = 4  # cudaMemcpyDefault: the copies of the runtime in Python; those of collectives are not


def same(found: Path, expected: Path) -> None:
    """Two checkpoints hold the same, but for how sums over ranks are rounded."""
    one, other = load_file(found), load_file(expected)
    assert one.keys() == other.keys()
    for name, array in other.items():
        np.testing.assert_allclose(one[name], array, rtol=1e-5, atol=1e-7, err_msg=name)


def losses(entries: list[dict[str, Any]]) -> list[float]:
    return [entry["loss"] for entry in entries]


@pytest.mark.parametrize(("kind", "ranks", "micro"), [("data", 4, 1), ("zero", 2, 2)])
def test_steps_are_those_of_the_cpu(train, classifier, tmp_path, log, kind, ranks, micro) -> None:
    plan = classifier.plan(tmp_path / "plan", ranks, kind, micro)
    folders = {name: tmp_path / name for name in ("cpu", "cuda")}
    runs = {n: train(plan, 12, checkpoint=str(f), provider=n) for n, f in folders.items()}
    (cpu, expected), (cuda, found) = runs["cpu"], runs["cuda"]
    assert (cuda.error, cuda.provider) == (None, "cuda")
    np.testing.assert_allclose(losses(found), losses(expected), rtol=1e-6)
    same(
        folders["cuda"] / "step-00000012.safetensors", folders["cpu"] / "step-00000012.safetensors"
    )
    assert cuda.held_bytes == cpu.held_bytes
    state = sum(size for what, size in cuda.held_bytes.items() if what != "constants_bytes")
    assert cuda.peak_bytes is not None
    assert state < cuda.peak_bytes < cuda.used_bytes
    for rank in range(ranks):
        kinds = Counter(call["call"] for call in communication(log, rank))
        each = 12 * micro * 3  # a sum per parameter in every run of the first graph
        assert kinds["ncclAllReduce" if kind == "data" else "ncclReduceScatter"] >= each


def test_a_step_copies_the_batch_and_numbers_only(train, plans, log) -> None:
    def copied(steps: int) -> list[int]:
        before = len(calls(log, 0))
        assert train(plans["data2"], steps, provider="cuda")[0].error is None
        made = [call for call in calls(log, 0)[before:] if call.get("kind") == _ACROSS]
        return sorted(call["bytes"] for call in made)

    once, more = Counter(copied(2)), Counter(copied(5))
    x, labels, mean = 2 * 6 * 4, 2 * 8, 6 * 4
    numbers = 4  # learning rate, step, loss, sum of gradients
    assert more - once == Counter({4: 3 * numbers, x: 3, labels: 3, mean: 3})


def test_checkpoints_go_from_one_provider_to_the_other(train, plans, tmp_path, log) -> None:
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    train(plans["data2"], 9, checkpoint=str(whole))
    for plan, provider, steps in (("zero2", "cuda", 3), ("data2", "cpu", 3), ("data2", "cuda", 3)):
        held = {"resume": str(moved)} if moved.is_dir() else {}
        result, _ = train(plans[plan], steps, checkpoint=str(moved), provider=provider, **held)
        assert result.error is None
    same(moved / "step-00000009.safetensors", whole / "step-00000009.safetensors")


def test_an_overflow_drops_the_step(train, classifier, data, tmp_path, log) -> None:
    plan = classifier.plan(tmp_path / "plan", 2, half=True)
    (_, expected), (result, found) = (train(plan, 8, provider=name) for name in ("cpu", "cuda"))
    assert (result.error, result.skipped) == (None, sum(e.get("skipped", False) for e in expected))
    assert result.skipped > 0
    for one, other in zip(found, expected, strict=True):
        assert one["loss_scale"] == other["loss_scale"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)


def test_what_is_not_finite_is_found(train, classifier, plans, tmp_path, log) -> None:
    held = classifier.data(30)
    held["x"][5, 2] = np.nan
    np.savez(tmp_path / "wrong.npz", **held)
    options = {"data": str(tmp_path / "wrong.npz"), "checkpoint": str(tmp_path / "checkpoints")}
    result, entries = train(plans["data2"], 4, provider="cuda", **options)
    assert len(entries) == 1
    assert result.error == "step 2: the loss is nan, first not finite: input 'x' on rank 0"
    state = load_file(tmp_path / "checkpoints" / "step-00000001.safetensors")
    assert all(np.isfinite(array).all() for array in state.values())


def test_cuda_graphs_that_cannot_be(train, plans, log) -> None:
    result, entries = train(plans["zero2"], 2, provider="cuda", cuda_graphs=True)
    reason = "the stand-in for CUDA has no graphs"
    assert result.cuda_graphs is not None
    assert result.cuda_graphs.startswith("not captured: rank 0: ")
    assert result.cuda_graphs.endswith(reason)
    assert len(entries) == 2


def test_copies_together_wait_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(cudart, "call", lambda name, *_: made.append(name))
    with cudart.defer_waits():
        cudart.copy(1, 2, 3)
        cudart.clear(1, 3)
    cudart.clear(1, 3)
    wait = "cudaStreamSynchronize"
    assert made == ["cudaMemcpyAsync", "cudaMemsetAsync", wait, "cudaMemsetAsync", wait]


def test_state_that_does_not_fit(log: Path) -> None:
    with pytest.raises(UserError, match=rf"^GPU 0: no {1 << 60} bytes: (out of memory|.*[Aa]lloc)"):
        StandInProvider(0).reserve([1 << 59, 1 << 59])
