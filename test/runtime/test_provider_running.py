"""tensoropt-run --provider cuda on real ranks, with stand-ins for NCCL and the CUDA runtime."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from handmade import Perceptron, collective, edit, model_of, sha256, tensor, value_info, write_plan
from onnx import helper
from stand_ins import calls, communication, environment
from test_running import run

from tensoropt.runtime.inference.jobs import check_plan
from tensoropt.runtime.pool.session import Session

_DEFAULT = 4  # cudaMemcpyDefault: what Python copies, as the collectives do not


def test_a_plan_runs_over_nccl(capsys, perceptron: Perceptron, tmp_path: Path, log: Path) -> None:
    four = perceptron.plan(tmp_path / "four", (2, 2))
    arguments = [four, "--check", perceptron.model, "--provider", "cuda", "--atol", 1e-5]
    status, out, err = run(capsys, *arguments, "--runs", 3, "--format", "json")
    facts = json.loads(out)
    assert (status, facts["passed"], facts["provider"]) == (0, True, "cuda")
    assert err == f"stand-ins of {environment()['TENSOROPT_STAND_IN']}: nothing runs on a GPU\n"
    assert (facts["predicted_time_s"], facts["predicted_bytes"]) == (1e-3, 10)
    assert 0 < facts["peak_bytes"] < facts["used_bytes"]
    assert (facts["nodes_on_cpu"], facts["cuda_graphs"]) == (None, None)
    for rank in range(4):
        assert [call["call"] for call in communication(log, rank)] == ["ncclAllReduce"] * 4


def test_arrays_stay_on_the_device(capsys, plan: Path, log: Path) -> None:
    def copies(runs: int) -> int:
        before = len(calls(log, 1))
        assert run(capsys, plan, "--provider", "cuda", "--runs", runs)[0] == 0
        return sum(call.get("kind") == _DEFAULT for call in calls(log, 1)[before:])

    assert copies(0) == copies(5) == 2  # the input and the output


def test_a_session(perceptron: Perceptron, plan: Path, log: Path) -> None:
    """Each run copies the input to the device, and the output from there to its place."""
    x = np.ones((4, 6), np.float32)
    with Session(plan, provider="cuda", cuda_graphs=True) as session:
        reason = f"not captured: rank 0: {plan}/rank0.onnx: the stand-in for CUDA has no graphs"
        assert session.cuda_graphs == reason
        session.run({"x": x})
        before = [len(calls(log, rank)) for rank in (0, 1)]
        y = session.run({"x": 2 * x})["y"]
        new = [calls(log, rank)[begin:] for rank, begin in enumerate(before)]
    np.testing.assert_allclose(y, np.maximum(2 * x @ perceptron.w1, 0) @ perceptron.w2, rtol=1e-5)
    copies = [sum(call.get("kind") == _DEFAULT for call in of_rank) for of_rank in new]
    assert copies == [2, 1]  # all ranks have the whole output, and one gives it


def test_text(capsys, plan: Path, perceptron: Perceptron, log: Path) -> None:
    arguments = [plan, "--check", perceptron.model, "--provider", "cuda", "--cuda-graphs"]
    status, out, _ = run(capsys, *arguments, "--runs", 2)
    lines = out.splitlines()
    assert (status, lines[-1]) == (0, "PASSED")
    assert lines[2].startswith("step time: median ")
    assert lines[2].endswith(" of 2, predicted 1.000 ms ±?")
    assert lines[3].startswith("one device: median ")
    assert lines[4].startswith("peak memory: ")
    assert lines[4].endswith(", predicted 10 B ±?")
    assert lines[5].startswith("device memory in use: ")
    reason = f"rank 0: {plan}/rank0.onnx: the stand-in for CUDA has no graphs"
    assert lines[6] == f"CUDA graphs: not captured: {reason}"


def test_a_failing_session_is_told_without_graphs_too(capsys, plan: Path, log: Path) -> None:
    model = onnx.load(plan / "rank1.onnx")
    model.graph.node[-1].attribute[0].ints[:] = [0, 5]
    onnx.save(model, plan / "rank1.onnx")
    edit(plan, lambda c: c["files"].update({"rank1.onnx": sha256(plan / "rank1.onnx")}))
    status, _, err = run(capsys, plan, "--provider", "cuda", "--cuda-graphs")
    assert status == 1
    assert f"error: {plan}: rank 1: {plan}/rank1.onnx: " in err


def test_more_ranks_than_gpus(capsys, monkeypatch, plan: Path, log: Path) -> None:
    monkeypatch.setenv("TENSOROPT_STAND_IN_GPUS", "1")
    status, _, err = run(capsys, plan, "--provider", "cuda")
    assert status == 1
    assert "provider cuda: 2 ranks on a machine with 1 GPUs, expected a GPU for each" in err
    assert run(capsys, plan, "--provider", "cuda", "--share-gpus")[0] == 0
    monkeypatch.setenv("TENSOROPT_STAND_IN_NCCL_VERSION", "22809")
    status, _, err = run(capsys, plan, "--provider", "cuda", "--share-gpus")
    assert (status, "expected NCCL 2.30 or newer, got: 2.28.9\n" in err) == (1, True)
    monkeypatch.setenv("TENSOROPT_STAND_IN_GPUS", "0")
    status, _, err = run(capsys, plan, "--provider", "cuda")
    assert (status, "no CUDA-capable device" in err) == (1, True)


@pytest.mark.parametrize("dtype", ["bfloat16", "bool"])
def test_types(dtype: str, tmp_path: Path, log: Path) -> None:
    """A gathered x, of types that numpy has and lacks."""
    whole = helper.make_node("Identity", ["x"], ["y"])
    gather = collective("AllGather", "x", "y", 0, group=[0, 1], dim=0)
    model = model_of([whole], [value_info("x", dtype, [4, 2])], [value_info("y", dtype, [4, 2])])
    onnx.save(model, tmp_path / "m.onnx")
    ends = [value_info("x", dtype, [2, 2])], [value_info("y", dtype, [4, 2])]
    x, y = tensor("x", [4, 2], ["S(0)"], dtype), tensor("y", [4, 2], ["R"], dtype)
    graphs = [model_of([gather], *ends)] * 2
    plan = write_plan(tmp_path / "plan", tmp_path / "m.onnx", (2,), graphs, [x], [y])
    result = check_plan(plan, tmp_path / "m.onnx", provider="cuda")
    assert (result.passed, result.outputs[0].absolute) == (True, 0.0)
    assert len(communication(log, 1)) == 1
