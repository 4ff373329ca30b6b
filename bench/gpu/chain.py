"""Ranks that time one collective: in a graph of many of them, and called in a loop."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from gpu.bound import array_for, bound, on_stream, open_provider
from gpu.direct import Direct, direct_for
from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.support.collectives import DOMAIN

__all__ = ["KINDS", "chain", "measure"]

_ITEM_BYTES = 4
_LEAST_ROUNDS, _ROUNDS_S = 3, 2.0
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "AllReduce": {"reduction": "sum"},
    "AllGather": {"dim": 0},
    "ReduceScatter": {"dim": 0, "reduction": "sum"},
    "AllToAll": {"split_dim": 0, "concat_dim": 0},
}
KINDS = tuple(_ATTRIBUTES)
"""The collectives that libraries have as one call."""


def measure(
    comm: Any,
    provider: str,
    kinds: Sequence[str],
    sizes: Sequence[int],
    budget_bytes: int,
    rounds: int,
) -> list[dict[str, Any]]:
    """Return, per kind and size in bytes, the seconds of one collective in both ways.

    The size is the larger of its input and output on one rank, as in nccl-tests. Each round runs as
    many collectives as move ``budget_bytes``, 2 to 200, and then the host waits. ``graph_s`` and
    ``calls_s`` are from the best of ``rounds`` rounds (or of the number that fits into two
    seconds), which alternate, and from the slowest rank in it. ``correct`` is true if both results
    are right.
    """
    place = open_provider(provider, comm)
    direct = direct_for(place, comm)
    return [
        _measured(comm, place, direct, kind, size, budget_bytes, rounds)
        for kind in kinds
        for size in sizes
        if size >= _ITEM_BYTES * comm.size
    ]


def chain(kind: str, items: int, ranks: int, length: int) -> onnx.ModelProto:
    """Return a graph of ``length`` equal collectives of x, [items], in sequence."""
    group = {"group": list(range(ranks))}
    nodes = [
        helper.make_node(
            kind,
            ["x", f"t{number}"],
            [f"y{number}", f"t{number + 1}"],
            name=f"{kind}_{number}",
            domain=DOMAIN,
            **group,
            **_ATTRIBUTES[kind],
        )
        for number in range(length)
    ]
    produced = {"AllGather": items * ranks, "ReduceScatter": items // ranks}.get(kind, items)
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [items])],
        [
            helper.make_tensor_value_info(f"y{length - 1}", TensorProto.FLOAT, [produced]),
            helper.make_tensor_value_info(f"t{length}", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor("t0", TensorProto.INT64, [1], [0])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _measured(
    comm: Any,
    place: Provider,
    direct: Direct,
    kind: str,
    size: int,
    budget_bytes: int,
    rounds: int,
) -> dict[str, Any]:
    items = size // _ITEM_BYTES // (comm.size if kind == "AllGather" else 1)
    length = int(np.clip(budget_bytes // size, 2, 200))
    model = chain(kind, items, comm.size, length)
    arrays = {value.name: array_for(value, place) for value in model.graph.output}
    x = np.arange(items, dtype=np.float32) % 64 + comm.rank
    arrays["x"] = place.place(x)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.onnx"
        onnx.save(model, path)
        session = bound(path, arrays, on_stream(place, direct.stream))
    y = arrays[model.graph.output[0].name]
    group = list(range(comm.size))

    def calls() -> None:
        for _ in range(length):
            direct.call(kind, group, arrays["x"], y)
        direct.wait()

    ways = {"graph_s": session.run, "calls_s": calls}
    correct = []
    for way in ways.values():
        y.zero()
        way()
        correct.append(np.array_equal(y.get(), _wanted(kind, items, comm)))
    return {
        "kind": kind,
        "bytes": size,
        "count": length,
        "correct": comm.allreduce(int(all(correct))) == comm.size,
        **_times(ways, length, rounds, comm),
    }


def _wanted(kind: str, items: int, comm: Any) -> Any:
    """Return this rank's result."""
    ranks, rank = comm.size, comm.rank
    every = np.stack([np.arange(items, dtype=np.float32) % 64 + r for r in range(ranks)])
    if kind == "AllReduce":
        return every.sum(0)
    if kind == "AllGather":
        return every.reshape(-1)
    part = slice(rank * items // ranks, (rank + 1) * items // ranks)
    return every.sum(0)[part] if kind == "ReduceScatter" else every[:, part].reshape(-1)


def _times(
    ways: dict[str, Callable[[], None]], length: int, rounds: int, comm: Any
) -> dict[str, float]:
    """Return the seconds of one collective in each way."""
    first = sum(_timed(way, comm) for way in ways.values())
    fit = max(_LEAST_ROUNDS, min(rounds, int(_ROUNDS_S / first)))
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(fit):
        for name, way in ways.items():
            found[name].append(_timed(way, comm) / length)
    return {name: min(times) for name, times in found.items()}


def _timed(way: Callable[[], None], comm: Any) -> float:
    """Return the slowest rank's seconds."""
    from mpi4py import MPI

    comm.Barrier()
    start = time.perf_counter()
    way()
    return float(comm.allreduce(time.perf_counter() - start, MPI.MAX))
