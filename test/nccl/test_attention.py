"""Attention on a device, over stand-ins for CUDA and for the library of attention by cuDNN."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from attention_reference import Case, Options, arrays_of, gradient_model, operands, reference
from mpi4py import MPI
from stand_ins import calls, stand_ins
from test_loading import HOST

from tensoropt.runtime.device.cuda import open_cuda
from tensoropt.runtime.session.session import RankSession, rank_session
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2}
BASE = Case(2, 2, 2, 13, 21, 16, 24, type=torch.bfloat16)
CASES = {
    "all keys": BASE,
    "float16": replace(BASE, type=torch.float16),
    "causal: keys after the last query are not read": replace(BASE, options=Options(causal=True)),
    "causal, more queries than keys": replace(BASE, queries=30, options=Options(causal=True)),
    "queries in the middle": replace(BASE, options=Options(causal=True, offset=5)),
    "queries at the end": replace(BASE, options=Options(causal=True, offset=8)),
    "window": replace(BASE, options=Options(causal=True, window=3)),
    "window of queries in the middle": replace(
        BASE, options=Options(causal=True, window=3, offset=5)
    ),
    "bias": replace(BASE, bias=(True, False, True)),
    "bias of heads, causal": replace(BASE, bias=(False, True, True), options=Options(causal=True)),
    "lengths": replace(BASE, lengths=(21, 7)),
    "a limit of scores": replace(BASE, options=Options(softcap=2.0)),
    "a limit of scores in a window, with a bias": replace(
        BASE, bias=(False, True, True), options=Options(causal=True, window=3, softcap=2.0)
    ),
    "lengths beyond the keys, causal": replace(BASE, lengths=(99, 4), options=Options(causal=True)),
}
FREE = {"k": (2, 2, "s", 16), "v": (2, 2, "s", 24)}


def session_of(model: onnx.ModelProto, folder: Path) -> RankSession:
    onnx.save(model, folder / "m.onnx")
    return rank_session(folder / "m.onnx", 1, provider=open_cuda(MPI.COMM_SELF, share_gpus=False))


def results(case: Case, model: onnx.ModelProto, folder: Path) -> dict[str, Array]:
    session = session_of(model, folder)
    arrays = arrays_of(case, operands(case))
    for name in session.inputs:
        session.feed(name, arrays[name])
    session.run()
    return session.fetch()


def runs(log: Path) -> list[dict[str, Any]]:
    return [call for call in calls(log, 0) if call["call"] == "attention"]


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_of_all_scores(
    name: str, log: Path, tmp_path: Path
) -> None:
    case = CASES[name]
    y, lse, gradients = reference(case, operands(case))
    arrays = results(case, gradient_model(case), tmp_path)
    expected = {"y": y, "lse": lse, **{f"d{name}": g for name, g in gradients.items()}}
    assert arrays.keys() == expected.keys()
    for result, tensor in expected.items():
        tolerance = TOLERANCE[case.type] * max(1.0, float(tensor.abs().max()))
        values = arrays[result].astype(np.float64)
        np.testing.assert_allclose(values, tensor.numpy(), rtol=0, atol=tolerance, err_msg=result)
    # On the stream of the node, which is null on the CPU, with memory for the whole run.
    assert [(call["gradient"], call["stream"]) for call in runs(log)] == [(0, 0), (1, 0)]
    assert all(call["workspace"] > 0 for call in runs(log))
    assert not [call for call in calls(log, 0) if call["call"] in {"cudaMalloc", "error"}]


def test_a_plan_is_made_once_for_each_form(log: Path, tmp_path: Path) -> None:
    case = replace(BASE, queries=11, options=Options(causal=True))
    for key_count in (21, 21, 22):
        results(replace(case, keys=key_count), gradient_model(case, sizes=FREE), tmp_path)
    plans = [call for call in calls(log, 0) if call["call"] == "attentionPlan"]
    # Keys after the last of 11 queries are not read, but the arrays that have them differ.
    assert [(plan["gradient"], plan["keys"]) for plan in plans] == [(0, 11), (1, 11)] * 2
    assert len(runs(log)) == 6


REFUSED = {
    "dropout of weights": replace(BASE, ratio=0.5),
    "a limit of scores by tanh together with lengths of texts": replace(
        BASE, lengths=(1, 2), options=Options(softcap=2.0)
    ),
    "a window without causality": replace(BASE, options=Options(window=3)),
    "queries at positions without keys": replace(BASE, options=Options(causal=True, offset=9)),
    "lengths of texts together with an offset or a window": replace(
        BASE, lengths=(1, 2), options=Options(causal=True, window=3)
    ),
    "the gradient of a bias that is the same for all queries": replace(
        BASE, bias=(True, True, False)
    ),
    "no elements": replace(BASE, queries=0),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_other_forms_are_refused_in_one_line(reason: str, log: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        results(REFUSED[reason], gradient_model(REFUSED[reason]), tmp_path)
    assert f"': attention on GPUs does not take {reason}" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_errors_of_cudnn_and_empty_texts_name_the_node(log: Path, tmp_path: Path) -> None:
    wide, empty = replace(BASE, size=264), replace(BASE, lengths=(3, 0))
    for case, reason in (
        (wide, "cuDNN: a head is too large"),
        (empty, "lengths must be 1 or more on a GPU, got: 0"),
    ):
        with pytest.raises(UserError, match=f"Attention node 'Attention': {reason}"):
            results(case, gradient_model(case), tmp_path)


def test_lengths_are_no_part_of_a_cuda_graph(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSOROPT_STAND_IN_CAPTURES", "1")
    case = replace(BASE, lengths=(3, 4))
    with pytest.raises(UserError, match="lengths cannot be part of a CUDA graph"):
        results(case, gradient_model(case), tmp_path)
    assert len(results(BASE, gradient_model(BASE), tmp_path)) == 5


def test_without_the_library_no_session_opens(log: Path, tmp_path: Path) -> None:
    """In a process of its own, as this one has loaded the library."""
    onnx.save(gradient_model(BASE), tmp_path / "m.onnx")
    cudart = str(stand_ins() / "libcudart.so.13")
    env = {**os.environ, "TENSOROPT_CUDART": cudart, "TENSOROPT_CUDNN_ATTENTION": ""}
    command = [sys.executable, "-c", HOST, str(tmp_path / "m.onnx")]
    said = subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout
    assert "Attention node 'Attention': the library of attention on GPUs cannot be loaded" in said
    assert "expected it after: TENSOROPT_CUDNN=1 pip install 'tensoropt[cuda]', or its path" in said
