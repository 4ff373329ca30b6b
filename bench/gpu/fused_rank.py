"""Chains of elementwise arithmetic on a rank, for `gpu.fused`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from gpu.bound import open_provider
from tensoropt.runtime.session.elementwise import fuse_chains
from tensoropt.runtime.session.session import RankSession, rank_session, training_session
from tensoropt.runtime.support.dtypes import ONNX_CODES, dtype_of

__all__ = ["CHAINS", "measure"]

_RUNS = 20

Array = NDArray[Any]


@dataclass(frozen=True)
class Chain:
    """A graph as lines of an operator, its operands and its result; ``one`` is the constant 1.

    ``inputs`` have the whole shape, ``rows`` and ``columns`` one number for each of these.
    ``compute`` returns the ``outputs`` from all operands in float64.
    """

    lines: Sequence[str]
    inputs: str
    outputs: Sequence[str]
    compute: Callable[[Mapping[str, Array]], Sequence[Array]]
    rows: str = ""
    columns: str = ""


def _swiglu(v: Mapping[str, Array]) -> Sequence[Array]:
    s = 1 / (1 + np.exp(-v["x"]))
    return [v["x"] * s * v["y"], v["d"] * v["y"] * (s + v["x"] * s * (1 - s))]


def _normalised(v: Mapping[str, Array]) -> Sequence[Array]:
    return [(v["d"] * v["w"] - v["x"] * v["m"]) * v["r"] + v["e"]]


CHAINS: Mapping[str, Chain] = {
    "SwiGLU and its gradient": Chain(
        (
            "Sigmoid x s", "Mul x s u", "Mul u y z", "Mul d y a", "Sub one s b", "Mul u b c",
            "Add s c t", "Mul a t g",
        ),
        "xyd", ("z", "g"), _swiglu,
    ),
    "gradient of RMS normalisation, and a sum": Chain(
        ("Mul d w a", "Mul x m b", "Sub a b c", "Mul c r f", "Add f e g"),
        "xde", ("g",), _normalised, rows="w", columns="mr",
    ),
}  # fmt: skip


def measure(
    comm: Any, provider: str, chain: str, dtype: str, shape: Sequence[int], *, is_timed: bool
) -> dict[str, float]:
    """Return the largest difference from float64, numbers of nodes, and times of runs if asked.

    ``bytes`` is the size of the arrays that the fused chain reads and writes.
    """
    one, place = CHAINS[chain], open_provider(provider, comm)
    operands = _operands(one, dtype, shape)
    model = _model(one, dtype, operands)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.onnx"
        onnx.save(model, path)
        fused = training_session(path, 1, provider=place)
        sessions = {"fused_s": fused}
        if is_timed:
            sessions["plain_s"] = rank_session(path, 1, provider=place)
    runs = _RUNS if is_timed else 1
    times_s = {name: _time_s(session, operands, runs) for name, session in sessions.items()}
    results, wide = fused.fetch(), {n: array.astype(np.float64) for n, array in operands.items()}
    differences = [
        float(np.abs(results[name].astype(np.float64) - array).max() / np.abs(array).max())
        for name, array in zip(one.outputs, one.compute(wide), strict=True)
    ]
    fused_model = onnx.ModelProto.FromString(model.SerializeToString())
    fuse_chains(fused_model, place.fusion)
    return {
        "difference": max(differences),
        "nodes": len(model.graph.node),
        "fused_nodes": len(fused_model.graph.node),
        "bytes": sum(array.nbytes for array in (*operands.values(), *results.values())),
        **times_s,
    }


def _time_s(session: RankSession, operands: Mapping[str, Array], runs: int) -> float:
    for name, array in operands.items():
        session.feed(name, array)
    session.run()
    start = time.perf_counter()
    for _ in range(runs):
        session.run()
    return (time.perf_counter() - start) / runs


def _operands(one: Chain, dtype: str, shape: Sequence[int]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = [(one.inputs, tuple(shape)), (one.rows, (shape[-1],)), (one.columns, (shape[0], 1))]
    return {
        name: rng.standard_normal(size, dtype=np.float32).astype(dtype_of(dtype))
        for names, size in shapes
        for name in names
    }


def _model(one: Chain, dtype: str, operands: Mapping[str, Array]) -> onnx.ModelProto:
    kind = ONNX_CODES.get(dtype) or helper.np_dtype_to_tensor_dtype(dtype_of(dtype))
    calls = [line.split() for line in one.lines]
    nodes = [helper.make_node(op, read, [result], name=result) for op, *read, result in calls]
    value = helper.make_tensor_value_info
    inputs = [value(name, kind, array.shape) for name, array in operands.items()]
    outputs = [value(name, kind, None) for name in one.outputs]
    numbers = [numpy_helper.from_array(np.ones((), dtype_of(dtype)), "one")]
    graph = helper.make_graph(nodes, "chain", inputs, outputs, numbers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)
