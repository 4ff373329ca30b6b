"""Attention that keeps no scores computes the results and gradients of PyTorch in float64."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from attention_reference import (
    Case,
    Options,
    array_of,
    arrays_of,
    gradient_model,
    operands,
    reference,
)
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.runtime.session.session import RankSession, training_session
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
ROUND_OFF = {torch.float32: 2**-24, torch.bfloat16: 2**-9}


def session_of(model: onnx.ModelProto, threads: int) -> RankSession:
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, Path(folder) / "m.onnx")
        return training_session(Path(folder) / "m.onnx", threads)


def results(
    case: Case, tensors: dict[str, torch.Tensor], threads: int, model: onnx.ModelProto | None = None
) -> dict[str, Array]:
    session = session_of(model or gradient_model(case), threads)
    arrays = arrays_of(case, tensors)
    for name in session.inputs:
        session.feed(name, arrays[name])
    session.run()
    return session.fetch()


def close(case: Case, array: Array, expected: torch.Tensor, name: str, error: float = 0.0) -> None:
    """Compare values, which may be infinite, relative to the largest finite one.

    ``error`` is a further difference that rounding of the operands explains.
    """
    limits = expected[torch.isfinite(expected)].abs()
    largest = max(1.0, float(limits.max())) if len(limits) else 1.0
    # Rounding changes a score in proportion to its size, and so its weight.
    tolerance = TOLERANCE[case.type] * largest * max(1.0, case.factor / 20) + error
    values = array.astype(np.float64)
    np.testing.assert_allclose(values, expected.numpy(), rtol=0, atol=tolerance, err_msg=name)


def y_rounding(case: Case, tensors: dict[str, torch.Tensor], y: torch.Tensor) -> float:
    """Return how much the rounding of y may change a gradient.

    Gradients of scores are the weights times ``dy (v - y)``, and those of queries and keys are sums
    of them times keys and queries.
    """
    if not y.numel():
        return 0.0
    scores = float((tensors["dy"].double() * y).abs().sum(-1).max()) * ROUND_OFF[case.type]
    operands = max(
        [float(tensors[name].abs().max()) for name in "qk" if tensors[name].numel()] + [1.0]
    )
    return scores * max(1.0, abs(case.options.scale) * operands)


def check(case: Case, seed: int = 0) -> None:
    tensors = operands(case, seed)
    y, lse, gradients = reference(case, tensors)
    arrays = results(case, tensors, 1)
    close(case, arrays["y"], y, "y")
    close(case, arrays["lse"], lse, "lse")
    error = y_rounding(case, tensors, y)
    for name, gradient in gradients.items():
        # The gradient of a key adds up the errors of all its queries, which are independent.
        terms = case.queries * case.group if name == "k" else 1
        close(case, arrays[f"d{name}"], gradient, f"d{name}", error * math.sqrt(max(terms, 1)))
    for name, array in results(case, tensors, 2).items():
        np.testing.assert_array_equal(array, arrays[name], err_msg=f"{name} of two threads")


FULL = Case(2, 2, 2, 130, 200, 32, 48)
CASES = {
    "whole tiles": Case(2, 8, 1, 192, 256, 64, 64),
    "one query, many heads for a key head": Case(2, 2, 8, 1, 333, 64, 64),
    "parts of one head": Case(1, 1, 1, 500, 300, 64, 64),
    "sizes that fill no vector": Case(1, 3, 1, 50, 70, 5, 3),
    "values wider than keys": Case(1, 2, 1, 97, 65, 24, 144),
    "causal": replace(FULL, options=Options(causal=True)),
    "causal, in whole tiles": Case(1, 8, 1, 512, 512, 64, 64, Options(causal=True)),
    "causal, queries after the keys before": replace(FULL, options=Options(causal=True, offset=70)),
    "queries before all keys": replace(FULL, options=Options(causal=True, offset=-60)),
    "window": replace(FULL, options=Options(window=30)),
    "causal window": replace(FULL, options=Options(causal=True, window=17, offset=9)),
    "lengths": replace(FULL, lengths=(77, 0)),
    "lengths beyond the keys": replace(FULL, lengths=(-3, 999)),
    "softcap": replace(FULL, options=Options(scale=1.0, softcap=5.0)),
    "bias of all": replace(FULL, bias=(True, True, True)),
    "bias of the keys": replace(FULL, bias=(False, False, False)),
    "bias of heads, softcap": replace(
        FULL, bias=(False, True, True), options=Options(softcap=2.0, causal=True)
    ),
    "bias of the batch that masks": replace(FULL, bias=(True, False, False), is_masked=True),
    "dropout": replace(FULL, ratio=0.2),
    "dropout, causal, with a bias of heads": replace(
        FULL, bias=(False, True, True), options=Options(softcap=2.0, causal=True), ratio=0.5
    ),
    "dropout in bfloat16": replace(FULL, type=torch.bfloat16, ratio=0.1),
    "large scores": replace(FULL, factor=1000.0),
    "bfloat16": replace(FULL, type=torch.bfloat16, options=Options(causal=True)),
    "bfloat16 with a bias": replace(
        FULL, type=torch.bfloat16, bias=(False, True, True), is_masked=True
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_of_all_scores(name: str) -> None:
    check(CASES[name])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    options = Options(
        draw(st.sampled_from([0.1, 1.0, -0.3])),
        draw(st.booleans()),
        draw(st.sampled_from([0, 0, 1, 20, 90])),
        draw(st.sampled_from([0.0, 0.0, 3.0])),
        draw(st.sampled_from([0, -10, 5, 150])),
    )
    batch, bias = draw(st.integers(1, 2)), draw(st.none() | st.tuples(*[st.booleans()] * 3))
    keys = draw(st.integers(1, 200))
    length = st.integers(0, keys)
    return Case(
        batch,
        draw(st.integers(1, 3)),
        draw(st.sampled_from([1, 2, 5])),
        draw(st.integers(1, 200)),
        keys,
        draw(st.sampled_from([1, 8, 20, 64])),
        draw(st.sampled_from([3, 16, 64])),
        options,
        bias,
        draw(st.none() | st.tuples(*[length] * batch)),
        bias is not None and draw(st.booleans()),
        draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16])),
        ratio=draw(st.sampled_from([0.0, 0.0, 0.1, 0.9])),
    )


@examples(100)
@given(cases(), st.integers(0, 9))
def test_so_are_those_of_any_options(case: Case, seed: int) -> None:
    check(case, seed)


@pytest.mark.parametrize("case", [Case(2, 3, 1, 0, 5), Case(2, 3, 1, 5, 0), Case(0, 3, 1, 5, 5)])
def test_empty_tensors(case: Case) -> None:
    check(case)


def test_sizes_may_be_unknown_before_the_run() -> None:
    sizes = {"q": ("b", 4, "t", 32), "k": ("b", 2, "s", 32), "v": ("b", 2, "s", 48)}
    case = replace(FULL, options=Options(causal=True))
    tensors = operands(case)
    fixed, free = (results(case, tensors, 1, gradient_model(case, sizes=s)) for s in ({}, sizes))
    for name, array in fixed.items():
        np.testing.assert_array_equal(free[name], array)


ATTRIBUTES: dict[str, Any] = {
    "scale must be finite, got: inf": {"scale": float("inf")},
    "window must be 0 or more, got: -1": {"window": -1},
    "softcap must be 0 or more, got: -1.000000": {"softcap": -1.0},
    "causal must be 0 or 1, got: 2": {"causal": 2},
}


@pytest.mark.parametrize("message", ATTRIBUTES)
def test_wrong_attributes_are_refused(message: str) -> None:
    with pytest.raises(UserError) as raised:
        session_of(gradient_model(Case(), **ATTRIBUTES[message]), 1)
    assert f"Attention node 'Attention': {message}" in str(raised.value)


def refused(case: Case, **changes: Any) -> str:
    """Return the error of a run with other arrays."""
    unknown = {name: [None] * array.ndim for name, array in changes.items()}
    session = session_of(gradient_model(case, sizes=unknown), 1)
    arrays = {name: array_of(tensor) for name, tensor in operands(case).items()} | changes
    arrays["lengths"] = changes.get("lengths", np.zeros(case.batch, np.int64))
    for name in session.inputs:
        session.feed(name, arrays[name])
    with pytest.raises(UserError) as raised:
        session.run()
    return str(raised.value)


def test_shapes_must_match() -> None:
    case = Case(2, 2, 2, 3, 5)
    heads = refused(case, k=np.zeros((2, 3, 5, 16), np.float32))
    assert "H a multiple of G, got: [2, 4, 3, 16], [2, 3, 5, 16] and [2, 2, 5, 16]" in heads
    assert "Attention node 'Attention': " in heads
    flat = refused(case, q=np.zeros((2, 4, 48), np.float32))
    assert "expected q [B, H, T, D]" in flat
    bias = refused(replace(case, bias=(True, True, True)), bias=np.zeros((2, 3, 3, 5), np.float32))
    assert "broadcasts to [2, 4, 3, 5], with all keys, got: float32 of shape [2, 3, 3, 5]" in bias
    dy = refused(case, dy=np.zeros((2, 4, 3, 15), np.float32))
    assert "AttentionGradient node 'AttentionGradient': dy must be float32 of shape" in dy


def test_other_types_are_refused() -> None:
    model = gradient_model(Case())
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    model.graph.output[-1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    with pytest.raises(UserError, match=r"Type 'tensor\(double\)' of input parameter \(q\)"):
        session_of(model, 1)


MEMORY = """
import sys
from pathlib import Path

sys.path[:0] = {paths!r}
import torch
from attention_reference import Case, Options, operands
from test_attention import results

def peak_mb():
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024

def run(tokens):
    case = Case(1, 2, 1, tokens, tokens, 64, 64, Options(causal=True))
    results(case, operands(case), 2)

run(64)
before = peak_mb()
run(8192)
print(peak_mb() - before)
"""


def test_memory_is_linear_in_tokens() -> None:
    """The scores of both heads would be 512 MB, an operand is 4 MB."""
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    command = [sys.executable, "-c", MEMORY.format(paths=paths)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(run.stdout) < 150
