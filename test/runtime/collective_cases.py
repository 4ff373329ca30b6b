"""Run on every rank under mpiexec: every collective, element type, dimension and group.

One session per element type holds all its collectives in one chain of tokens. The oracle is numpy
over the inputs of all ranks, which every rank can make. Rank 0 prints a JSON object: how many
outputs were compared on all ranks, and which differed.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from handmade import collective, model_of, value_info
from mpi4py import MPI

from tensoropt.runtime.session import rank_session

COMM = MPI.COMM_WORLD
SHAPE = (12, 12, 12)  # divides by groups of 1, 2, 3 and 4
DTYPES = ["float32", "float16", "bfloat16", "float64", "int32", "int64", "bool", "int8", "uint8"]
REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}
GROUPS = {
    1: [[0]],
    2: [[0, 1], [1, 0], [0], [1]],
    4: [[0, 1, 2, 3], [3, 1, 0, 2], [0, 1], [2, 3], [2, 0], [1, 3], [3, 0, 1], [2]],
}


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def data(dtype: str, rank: int) -> np.ndarray:
    """Small integers, whose sums every type holds exactly; int8 and uint8 sums wrap."""
    random = np.random.default_rng([rank, len(dtype)])
    if dtype == "bool":
        return random.integers(0, 4, SHAPE) == 0
    low, high = (100, 120) if dtype == "int8" else (100, 250) if dtype == "uint8" else (-20, 20)
    return random.integers(low, high, SHAPE).astype(dtype_of(dtype))


def reduced(parts: list[np.ndarray], reduction: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return functools.reduce(REDUCE[reduction], parts)  # ufunc.reduce would widen


def oracle(op: str, attributes: dict, parts: list[np.ndarray], place: int) -> np.ndarray:
    """The result at position ``place`` of a group whose inputs are ``parts``, in group order."""
    if op == "AllReduce":
        return reduced(parts, attributes["reduction"])
    if op == "AllGather":
        return np.concatenate(parts, attributes["dim"])
    if op == "ReduceScatter":
        whole = reduced(parts, attributes["reduction"])
        return np.split(whole, len(parts), attributes["dim"])[place]
    pieces = [np.split(part, len(parts), attributes["split_dim"])[place] for part in parts]
    return np.concatenate(pieces, attributes["concat_dim"])


def cases() -> list[tuple[str, dict]]:
    dims = range(len(SHAPE))
    found: list[tuple[str, dict]] = [("AllGather", {"dim": d}) for d in dims]
    for reduction in REDUCE:
        found.append(("AllReduce", {"reduction": reduction}))
        found += [("ReduceScatter", {"reduction": reduction, "dim": d}) for d in dims]
    found += [("AllToAll", {"split_dim": s, "concat_dim": c}) for s in dims for c in dims]
    return [(op, {**a, "group": g}) for g in GROUPS[COMM.size] for op, a in found]


def differing(dtype: str, folder: Path) -> tuple[int, list[str]]:
    mine = [(op, a) for op, a in cases() if COMM.rank in a["group"]]
    nodes = [collective(op, "x", f"y{i}", i, **a) for i, (op, a) in enumerate(mine)]
    outputs = [value_info(f"y{i}", dtype, None) for i in range(len(mine))]
    outputs.append(value_info(f"t{len(mine)}", "int64", [1]))
    path = folder / f"{dtype}.onnx"
    onnx.save(model_of(nodes, [value_info("x", dtype, SHAPE)], outputs), path)
    session = rank_session(path, 1)
    session.feed("x", data(dtype, COMM.rank))
    session.run()
    session.run()
    got = session.fetch()
    wrong = []
    for i, (op, a) in enumerate(mine):
        parts = [data(dtype, rank) for rank in a["group"]]
        expected = oracle(op, a, parts, a["group"].index(COMM.rank))
        y = got[f"y{i}"]
        if y.shape != expected.shape or y.dtype != expected.dtype or not (y == expected).all():
            wrong.append(f"rank {COMM.rank}: {op} {dtype} {a}")
    return len(mine), wrong


def rounding() -> list[str]:
    """Half types combine in float32 and round once to even; special values come through."""
    wrong = []
    group = list(range(COMM.size))
    for dtype in ("float16", "bfloat16"):
        pair = [half_values(dtype, rank) for rank in (0, 1)]
        exact = pair[0].astype(np.float32) + pair[1].astype(np.float32)
        with np.errstate(over="ignore"):
            expected = exact.astype(dtype_of(dtype))
        # All but the first two ranks add zeros, which changes nothing.
        local = pair[COMM.rank] if COMM.rank < 2 else np.zeros_like(pair[0])
        got = run_one("AllReduce", dtype, local, group=group, reduction="sum")
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        if not same.all():
            wrong.append(f"rank {COMM.rank}: rounding of {dtype}: {local[~same][:3]}")
    return wrong + nan_wins()


def half_values(dtype: str, rank: int) -> np.ndarray:
    """All kinds of bit patterns: normal, subnormal, infinite and NaN, of both signs."""
    random = np.random.default_rng([rank, 5])
    bits = random.integers(0, 1 << 16, 60000, dtype=np.uint16)
    close = random.standard_normal(60000).astype(dtype_of(dtype)).view(np.uint16)
    tiny = random.integers(0, 1 << 11, 5000, dtype=np.uint16)
    return np.concatenate([bits, close, tiny]).view(dtype_of(dtype))


def nan_wins() -> list[str]:
    wrong = []
    group = list(range(COMM.size))
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for reduction in ("max", "min"):
            local = np.array([np.nan if COMM.rank == r else r for r in range(3)], dtype_of(dtype))
            got = run_one("AllReduce", dtype, local, group=group, reduction=reduction)
            if not np.isnan(got[: min(COMM.size, 3)]).all():
                wrong.append(f"rank {COMM.rank}: {reduction} of {dtype} lost a NaN: {got}")
    return wrong


def odd_shapes() -> list[str]:
    """Scalars, empty tensors, and chunks of every size that packing treats apart."""
    group, n = list(range(COMM.size)), COMM.size
    wrong = []
    for shape, dim in [((0, 4), 0), ((3, 0), 1), ((5, 1), 1), ((2, 3, 5), 1), ((7, 2), 1)]:
        got = run_one(
            "AllGather", "int64", np.full(shape, COMM.rank, np.int64), group=group, dim=dim
        )
        expected = np.concatenate([np.full(shape, r, np.int64) for r in group], dim)
        if got.shape != expected.shape or not (got == expected).all():
            wrong.append(f"rank {COMM.rank}: AllGather of {shape} along {dim}")
    scalar = run_one("AllReduce", "int32", np.int32(COMM.rank + 1), group=group, reduction="sum")
    if scalar.shape != () or scalar != n * (n + 1) // 2:
        wrong.append(f"rank {COMM.rank}: scalar gave {scalar}")
    return wrong


def run_one(op: str, dtype: str, x, **attributes) -> np.ndarray:
    x = np.asarray(x)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.onnx"
        node = collective(op, "x", "y", 0, **attributes)
        graph = model_of([node], [value_info("x", dtype, x.shape)], [value_info("y", dtype, None)])
        onnx.save(graph, path)
        session = rank_session(path, 1)
    session.feed("x", x)
    session.run()
    return session.fetch()["y"]


def main() -> None:
    count, wrong = 0, rounding() + odd_shapes()
    with tempfile.TemporaryDirectory() as folder:
        for dtype in DTYPES:
            compared, differ = differing(dtype, Path(folder))
            count += compared
            wrong += differ
    facts = COMM.gather((count, wrong))
    if COMM.rank == 0:
        total = sum(c for c, _ in facts)
        json.dump({"count": total, "wrong": [w for _, ws in facts for w in ws]}, sys.stdout)


main()
