"""Run on every rank under mpiexec: every collective, element type, dimension and group.

One session per element type holds all its collectives in one chain of tokens. With stand-ins for
CUDA they run over NCCL. Rank 0 prints a JSON object: how many outputs were compared on all ranks,
and which differed.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from collective_oracle import DTYPES, LOADS, REDUCE, SHAPE, data, dtype_of, oracle, rows_sent
from handmade import DOMAIN, collective, message, model_of, value_info
from mpi4py import MPI
from onnx import helper

from tensoropt.runtime.device.cuda import open_cuda, stand_in
from tensoropt.runtime.device.provider import CPU
from tensoropt.runtime.session.session import rank_session

COMM = MPI.COMM_WORLD
PROVIDER = open_cuda(COMM, share_gpus=False) if stand_in() else CPU
# NCCL's float reductions are C's fmax and fmin.
EXTREMES = {
    "max": np.fmax if stand_in() else np.maximum,
    "min": np.fmin if stand_in() else np.minimum,
}
GROUPS = {
    1: [[0]],
    2: [[0, 1], [1, 0], [0], [1]],
    4: [[0, 1, 2, 3], [3, 1, 0, 2], [0, 1], [2, 3], [2, 0], [1, 3], [3, 0, 1], [2]],
}

PERIOD = 4099  # of large tensors, which are quickly made so; divides no piece of what is sent


def cases() -> list[tuple[str, dict]]:
    dims = range(len(SHAPE))
    found: list[tuple[str, dict]] = [("AllGather", {"dim": d}) for d in dims]
    for reduction in REDUCE:
        found.append(("AllReduce", {"reduction": reduction}))
        found += [("ReduceScatter", {"reduction": reduction, "dim": d}) for d in dims]
    found += [("AllToAll", {"split_dim": s, "concat_dim": c}) for s in dims for c in dims]
    for shift in (0, 1, 2):  # of a group of two the last one is none either
        found.append(("CollectivePermute", {"shift": shift}))
    found += [("AllToAllRows", {"load": load}) for load in LOADS]
    everywhere = [(op, {**a, "group": g}) for g in GROUPS[COMM.size] for op, a in found]
    everywhere = [(op, shifted(attributes)) for op, attributes in everywhere]
    return everywhere + [
        ("Broadcast", {"root": r, "group": g}) for g in GROUPS[COMM.size] for r in g
    ]


def shifted(attributes: dict) -> dict:
    """Say of a permute by ``shift`` places whose x each gets."""
    if "shift" not in attributes:
        return attributes
    count = len(attributes["group"])
    sources = [(place + attributes["shift"]) % count for place in range(count)]
    return {"group": attributes["group"], "sources": sources}


def differing(dtype: str, folder: Path) -> tuple[int, list[str]]:
    mine = [(op, a) for op, a in cases() if COMM.rank in a["group"]]
    nodes = [own for i, (op, a) in enumerate(mine) for own in nodes_of(op, i, a)]
    outputs = [value_info(f"y{i}", dtype, None) for i in range(len(mine))]
    outputs.append(value_info(f"t{len(mine)}", "int64", [1]))
    path = folder / f"{dtype}.onnx"
    weights = {f"rows{i}": rows_of(a) for i, (op, a) in enumerate(mine) if op == "AllToAllRows"}
    model = model_of(
        nodes, [value_info("x", dtype, SHAPE)], outputs, {**weights, "none": np.array([0])}
    )
    onnx.save(model, path)
    session = rank_session(path, 1, provider=PROVIDER)
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


def nodes_of(op: str, number: int, attributes: dict) -> list[onnx.NodeProto]:
    """The node of a case; one that sends no rows has an x without rows."""
    if op != "AllToAllRows":
        return [collective(op, "x", f"y{number}", number, **attributes)]
    x, y, group = "x", f"y{number}", attributes["group"]
    nodes = []
    if attributes["load"] == "none":
        x = f"x{number}"
        nodes.append(helper.make_node("Slice", ["x", "none", "none"], [x]))
    read, made = [x, f"rows{number}", f"t{number}"], [y, f"t{number + 1}"]
    return [*nodes, helper.make_node(op, read, made, domain=DOMAIN, group=group)]


def rows_of(attributes: dict) -> np.ndarray:
    """The rows that this rank sends and receives."""
    group, load = attributes["group"], attributes["load"]
    sent = np.array([rows_sent(load, place, len(group)) for place in range(len(group))])
    own = group.index(COMM.rank)
    return np.stack([sent[own], sent[:, own]], 1)


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
    return wrong + nans()


def half_values(dtype: str, rank: int) -> np.ndarray:
    """All kinds of bit patterns: normal, subnormal, infinite and NaN, of both signs."""
    random = np.random.default_rng([rank, 5])
    bits = random.integers(0, 1 << 16, 60000, dtype=np.uint16)
    close = random.standard_normal(60000).astype(dtype_of(dtype)).view(np.uint16)
    tiny = random.integers(0, 1 << 11, 5000, dtype=np.uint16)
    return np.concatenate([bits, close, tiny]).view(dtype_of(dtype))


def nans() -> list[str]:
    """The largest and the smallest of numbers and a NaN: that NaN, but over NCCL the number."""
    wrong = []
    group = list(range(COMM.size))
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        parts = [
            np.array([np.nan if rank == r else r for r in range(3)], dtype_of(dtype))
            for rank in group
        ]
        for reduction, function in EXTREMES.items():
            expected = functools.reduce(function, parts)
            got = run_one("AllReduce", dtype, parts[COMM.rank], group=group, reduction=reduction)
            if not np.array_equal(got, expected, equal_nan=True):
                wrong.append(f"rank {COMM.rank}: {reduction} of {dtype} and a NaN gave {got}")
    return wrong


def messages() -> list[str]:
    """Each rank sends to the next and receives from the one before; every second sends first."""
    before, after = (COMM.rank - 1) % COMM.size, (COMM.rank + 1) % COMM.size
    wrong = []
    for dtype in DTYPES:
        got = values_of(dtype, message_nodes(dtype, before, after), data(dtype, COMM.rank))["y"]
        if got.dtype != dtype_of(dtype) or not (got == data(dtype, before)).all():
            wrong.append(f"rank {COMM.rank}: message of {dtype}")
    return wrong


def message_nodes(dtype: str, before: int, after: int) -> list[onnx.NodeProto]:
    first, second = (0, 1) if COMM.rank % 2 == 0 else (1, 0)
    code = value_info("y", dtype, SHAPE).type.tensor_type.elem_type
    send = message("Send", ["x", f"t{first}"], [f"t{first + 1}"], peer=after)
    ends = [f"t{second}"], ["y", f"t{second + 1}"]
    receive = message("Recv", *ends, peer=before, shape=SHAPE, dtype=code)
    return [send, receive] if first == 0 else [receive, send]


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


def few_rows() -> list[str]:
    """Scatters along an inner dimension, of rows few enough for NCCL to take them as they lie."""
    group, n = list(range(COMM.size)), COMM.size
    wrong = []
    for shape, dim in [((3, 2 * n, 5), 1), ((5, n), 1), ((2, 2, n), 2)]:
        parts = [np.arange(np.prod(shape)).reshape(shape) * (rank + 1) for rank in group]
        got = run_one(
            "ReduceScatter", "int64", parts[COMM.rank], group=group, dim=dim, reduction="sum"
        )
        if not np.array_equal(got, np.split(sum(parts), n, dim)[COMM.rank]):
            wrong.append(f"rank {COMM.rank}: ReduceScatter of {shape} along {dim}")
    return wrong


def large() -> list[str]:
    """Reductions of more than what goes at once, and of sizes that nothing divides."""
    group, n = list(range(COMM.size)), COMM.size
    sum_of = {"group": group, "reduction": "sum"}
    wrong = []
    for dtype, each in [("float32", 700_001), ("int64", 300_007), ("int8", 2_500_001)]:
        for op, a in [("AllReduce", sum_of), ("ReduceScatter", {**sum_of, "dim": 0})]:
            parts = [np.resize(data(dtype, rank, (PERIOD,)), n * each) for rank in group]
            if op == "AllReduce":
                parts = [part[: -n + 1] for part in parts]
            got = run_one(op, dtype, parts[COMM.rank], **a)
            if not np.array_equal(got, oracle(op, a, parts, COMM.rank)):
                wrong.append(f"rank {COMM.rank}: {op} of {parts[0].shape} {dtype}")
    return wrong


def combined() -> list[str]:
    """Small and large tensors as one, along all dimensions: packed together, or as they lie."""
    group, wrong = list(range(COMM.size)), []
    shapes = [(4, 8), (8, 4, 4), (), (1 << 18, 4), (12,), (4, 1 << 18)]
    for op in ("AllReduce", "AllGather", "ReduceScatter"):
        own = [shape for shape in shapes if shape or op == "AllReduce"]
        dims = [len(shape) - 1 if number % 2 else 0 for number, shape in enumerate(own)]
        parts = [
            [np.asarray(np.resize(data("int64", r, (PERIOD,)), s) + r) for r in group] for s in own
        ]
        got = run_combined(op, [part[COMM.rank] for part in parts], dims, group)
        for number, (part, dim) in enumerate(zip(parts, dims, strict=True)):
            expected = oracle(op, {"reduction": "sum", "dim": dim}, part, COMM.rank)
            if got[number].shape != expected.shape or not (got[number] == expected).all():
                wrong.append(f"rank {COMM.rank}: {number} of combined {op}")
    return wrong


def run_combined(op: str, own: list[np.ndarray], dims: list[int], group: list[int]) -> list:
    count = range(len(own))
    attributes: dict = {"group": group}
    attributes |= {} if op == "AllGather" else {"reduction": "sum"}
    attributes |= {} if op == "AllReduce" else {"dims": dims}
    ends = ["t0", *(f"x{i}" for i in count)], ["t1", *(f"y{i}" for i in count)]
    node = message(f"Combined{op}", *ends, **attributes)
    inputs = [value_info(f"x{i}", "int64", own[i].shape) for i in count]
    outputs = [value_info(f"y{i}", "int64", None) for i in count]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "combined.onnx"
        onnx.save(model_of([node], inputs, outputs), path)
        session = rank_session(path, 1, provider=PROVIDER)
    for i in count:
        session.feed(f"x{i}", own[i])
    session.run()
    session.run()
    found = session.fetch()
    return [found[f"y{i}"] for i in count]


def run_one(op: str, dtype: str, x, **attributes) -> np.ndarray:
    return values_of(dtype, [collective(op, "x", "y", 0, **attributes)], np.asarray(x))["y"]


def values_of(dtype: str, nodes: list[onnx.NodeProto], x: np.ndarray) -> dict[str, np.ndarray]:
    ends = [value_info("x", dtype, x.shape)], [value_info("y", dtype, None)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.onnx"
        onnx.save(model_of(nodes, *ends), path)
        session = rank_session(path, 1, provider=PROVIDER)
    session.feed("x", x)
    session.run()
    return session.fetch()


def main() -> None:
    count, wrong = 0, rounding() + messages() + odd_shapes() + few_rows() + large() + combined()
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
