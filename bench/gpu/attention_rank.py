"""Attention on a rank, for `gpu.attention`: one node and its gradient in a graph."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from gpu.bound import open_provider
from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.session.session import RankSession, rank_session
from tensoropt.runtime.support.collectives import DOMAIN
from tensoropt.runtime.support.cudnn_attention import AttentionForm
from tensoropt.runtime.support.dtypes import dtype_of

__all__ = ["differences", "first_row", "times_s"]

_RUNS = 10
_TYPES = {"bfloat16": TensorProto.BFLOAT16, "float16": TensorProto.FLOAT16}

Array = NDArray[Any]


def differences(comm: Any, provider: str, form: Mapping[str, Any]) -> dict[str, float]:
    """Return the largest difference of each result from float64, relative to the largest number."""
    one = AttentionForm(**form)
    operands = _operands(one)
    session = _session(open_provider(provider, comm), one, gradient=True)
    _feed(session, operands)
    session.run()
    results, expected = session.fetch(), _reference(one, operands)
    errors = {}
    for name, array in expected.items():
        error = np.abs(results[name].astype(np.float64) - array).max()
        errors[name] = float(error / max(1.0, np.abs(array).max()))
    return errors


def times_s(comm: Any, provider: str, form: Mapping[str, Any]) -> tuple[float, float]:
    """Return the times of attention and of its gradient."""
    one = AttentionForm(**form)
    operands = _operands(one)
    place = open_provider(provider, comm)
    forward, both = (
        _time_s(_session(place, one, gradient=gradient), operands) for gradient in (False, True)
    )
    return forward, both - forward


def _time_s(session: RankSession, operands: Mapping[str, Array]) -> float:
    _feed(session, operands)
    session.run()  # makes plans
    start = time.perf_counter()
    for _ in range(_RUNS):
        session.run()
    return (time.perf_counter() - start) / _RUNS


def first_row(form: AttentionForm) -> int:
    """Return the position of the first query: queries in the middle leave some keys unread."""
    return (form.keys - form.queries) // 2 if form.offset else 0


def _shapes(form: AttentionForm) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all operands of a form and its gradient."""
    shapes: dict[str, tuple[int, ...]] = {
        "q": (form.batch, form.heads, form.queries, form.size),
        "k": (form.batch, form.key_heads, form.keys, form.size),
        "v": (form.batch, form.key_heads, form.keys, form.value_size),
        "dy": (form.batch, form.heads, form.queries, form.value_size),
        "lengths": (form.batch,),
        "offset": (1,),
    }
    if form.bias_sizes is not None:
        shapes["bias"] = (*form.bias_sizes, form.keys)
    return shapes


def _operands(form: AttentionForm) -> dict[str, Array]:
    """Return random operands."""
    rng, dtype = np.random.default_rng(0), dtype_of(form.dtype)
    operands: dict[str, Array] = {
        name: rng.standard_normal(shape, dtype=np.float32).astype(dtype)
        for name, shape in _shapes(form).items()
    }
    operands["lengths"] = rng.integers(1, form.keys, form.batch)
    operands["offset"] = np.array([first_row(form)])
    return operands


def _feed(session: RankSession, operands: Mapping[str, Array]) -> None:
    for name in session.inputs:
        session.feed(name, operands[name])


def _session(provider: Provider, form: AttentionForm, *, gradient: bool) -> RankSession:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "attention.onnx"
        onnx.save(_model(form, gradient=gradient), path)
        return rank_session(path, 1, provider=provider)


def _model(form: AttentionForm, *, gradient: bool) -> onnx.ModelProto:
    """Return a graph of attention, and of its gradient if asked."""
    options = [
        "bias" if form.bias_sizes is not None else "",
        "lengths" if form.lengths else "",
        "offset" if form.offset else "",
    ]
    attributes: dict[str, Any] = {
        "scale": _scale(form),
        "causal": int(form.causal),
        "window": form.window,
        "softcap": form.softcap,
    }
    results = ["dq", "dk", "dv", *(["dbias"] if form.trains_bias else [])]
    calls = [("Attention", ["q", "k", "v", *options], ["y", "lse"])]
    if gradient:
        read = ["dy", "q", "k", "v", "y", "lse", *options]
        calls.append(("AttentionGradient", read, results))
    nodes = [helper.make_node(*call, domain=DOMAIN, **attributes) for call in calls]
    used = {name for _, names, _ in calls for name in names if name} - {"y", "lse"}
    kinds = {"lengths": TensorProto.INT64, "offset": TensorProto.INT64, "lse": TensorProto.FLOAT}
    value, kind = helper.make_tensor_value_info, _TYPES[form.dtype]
    inputs = [
        value(name, kinds.get(name, kind), shape)
        for name, shape in _shapes(form).items()
        if name in used
    ]
    outputs = [value(name, kinds.get(name, kind), None) for _, _, names in calls for name in names]
    graph = helper.make_graph(nodes, "attention", inputs, outputs)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _reference(form: AttentionForm, operands: Mapping[str, Array]) -> dict[str, Array]:
    """Return all results in float64, with a matrix of scores."""
    wide = {name: array.astype(np.float64) for name, array in operands.items()}
    group = form.heads // form.key_heads
    q, dy = wide["q"], wide["dy"]
    k, v = (wide[name].repeat(group, 1) for name in "kv")
    scores = _scale(form) * q @ k.swapaxes(2, 3)
    slopes = np.array(_scale(form))
    if form.softcap:
        tangents = np.tanh(scores / form.softcap)
        scores, slopes = form.softcap * tangents, _scale(form) * (1 - tangents**2)
    scores = scores + wide.get("bias", 0.0)
    scores = np.where(_is_read(form, operands), scores, -np.inf)
    most = scores.max(-1, keepdims=True)
    lse = most + np.log(np.exp(scores - most).sum(-1, keepdims=True))
    weights = np.exp(scores - lse)
    y = weights @ v
    dscores = weights * (dy @ v.swapaxes(2, 3) - (dy * y).sum(-1, keepdims=True))
    results = {"y": y, "lse": lse[..., 0], "dq": (slopes * dscores) @ k}
    for name, array in (
        ("dk", (slopes * dscores).swapaxes(2, 3) @ q),
        ("dv", weights.swapaxes(2, 3) @ dy),
    ):
        heads = form.batch, form.key_heads, group, *array.shape[2:]
        results[name] = array.reshape(heads).sum(2)
    if form.trains_bias:
        results["dbias"] = dscores.sum(0, keepdims=True)
    return results


def _is_read(form: AttentionForm, operands: Mapping[str, Array]) -> Array:
    """Return whether a query reads a key, of shape [batch or 1, 1, queries, keys]."""
    places = np.arange(form.queries)[:, None] + first_row(form)
    keys = np.arange(form.keys)
    is_read = np.ones((1, 1, form.queries, form.keys), bool)
    if form.causal:
        is_read &= keys <= places
    if form.window:
        is_read &= keys > places - form.window
    if form.lengths:
        is_read = is_read & (keys < operands["lengths"][:, None, None, None])
    return is_read


def _scale(form: AttentionForm) -> float:
    return 1 / math.sqrt(form.size)
