"""Measurements that depend on no model: floors, matrix products, memory bandwidth, collectives."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tensoropt.compiler.calibrate.floor import Floor
from tensoropt.compiler.calibrate.graphs import (
    chain,
    collective_graph,
    operators,
    products,
    stream,
    update,
)
from tensoropt.compiler.calibrate.ranks import MeasuredGraph, Ranks
from tensoropt.compiler.calibrate.samples import CollectiveSample, OpSample, Peak
from tensoropt.compiler.cost.device import LEAST_LAUNCH_S
from tensoropt.compiler.cost.measurements import KINDS
from tensoropt.compiler.support.errors import UserError

__all__ = [
    "capacity_bytes",
    "groups_of",
    "least_side",
    "measure_bandwidth",
    "measure_collectives",
    "measure_floor",
    "measure_operators",
    "measure_peaks",
]

_CHAIN = 65
_TIMES = 16  # repetitions of a collective in its graph

_STREAM_ELEMENTS = {"cpu": 1 << 24, "cuda": 1 << 28}
_SIDES = {"cpu": (256, 512, 1024), "cuda": (1024, 2048, 4096, 8192)}
_SKINNY = {"cpu": (1, 32), "cuda": (1, 32, 256)}
_UPDATED = (1 << 16, 1 << 18, 1 << 20, 1 << 22)
_ROWS = {"cpu": (16, 128, 1024, 4096), "cuda": (128, 1024, 8192, 32768)}
DTYPES = {"cpu": ("float32",), "cuda": ("float32", "float16", "bfloat16")}
"""The types of the measured matrix products; the provider has no such kernels for others."""


def measure_floor(ranks: Ranks, count: int, folder: Path, seconds: float) -> Floor:
    """Return the overhead of graphs and nodes, measured with chains of tiny additions."""
    short, long = (
        MeasuredGraph("tiny additions", str(chain(folder / f"chain{n}.onnx", n)))
        for n in (1, _CHAIN)
    )
    one, many = (_require(time_s) for time_s in ranks.times_s([short, long], count, seconds))
    node_s = max((many - one) / (_CHAIN - 1), LEAST_LAUNCH_S)
    [traced] = ranks.kernels([long], count, seconds)
    kernel_s = sum((traced.nodes or {}).values()) / _CHAIN
    return Floor(max(one - node_s, 0.0), node_s, kernel_s)


def _require(time_s: float | None) -> float:
    if time_s is None:
        raise UserError("the smallest graph could not be run, expected a working ONNX Runtime")
    return time_s


def measure_bandwidth(ranks: Ranks, count: int, folder: Path, seconds: float) -> float:
    """Return the memory bandwidth of each rank while all ranks use it, in bytes per second."""
    elements = _STREAM_ELEMENTS[ranks.options.provider]
    graph = MeasuredGraph(
        "addition of large tensors", str(stream(folder / "stream.onnx", elements))
    )
    return 3 * 4 * elements / _require(ranks.times_s([graph], count, seconds)[0])


def measure_peaks(
    ranks: Ranks, count: int, folder: Path, seconds: float, floor: Floor
) -> dict[str, Peak]:
    """Return the rates of matrix products by type; types that do not run are left out."""
    found = {}
    for dtype in DTYPES[ranks.options.provider]:
        sizes = [(side, side, side) for side in _SIDES[ranks.options.provider]]
        graphs = [
            MeasuredGraph(
                f"product in {dtype}", str(products(folder / f"{dtype}{s[0]}.onnx", dtype, [s]))
            )
            for s in sizes
        ]
        times = ranks.times_s(graphs, count, seconds)
        rates = [
            2.0 * m * k * n / max(time_s - floor.graph_s, 1e-9)
            for (m, k, n), time_s in zip(sizes, times, strict=True)
            if time_s is not None
        ]
        if rates:
            found[dtype] = Peak(max(rates), float(np.median(rates)) / max(rates))
    return found


def measure_operators(
    ranks: Ranks, count: int, folder: Path, seconds: float, floor: Floor
) -> list[OpSample]:
    """Return samples of common operators over a range of sizes."""
    large, skinny = _SIDES[ranks.options.provider], _SKINNY[ranks.options.provider]
    sizes = [(m, k, n) for m in (*skinny, *large[:2]) for k in large[:2] for n in large[:2]]
    graphs = []
    for dtype in DTYPES[ranks.options.provider]:
        path = products(folder / f"products_{dtype}.onnx", dtype, sizes)
        paths = [path, *operators(folder, dtype, _ROWS[ranks.options.provider])]
        graphs += [MeasuredGraph(path.stem, str(path)) for path in paths]
    for elements in _UPDATED:
        path = update(folder / f"update{elements}.onnx", [elements])
        graphs.append(MeasuredGraph("update of parameters", str(path)))
    measured = ranks.samples(graphs, count, seconds, floor)
    return [sample for measure in measured if measure for sample in measure.nodes]


def groups_of(ranks: int) -> list[int]:
    """Return the group sizes that meshes of ``ranks`` ranks have: its divisors from 2 on."""
    return [size for size in range(2, ranks + 1) if ranks % size == 0]


def measure_collectives(
    ranks: Ranks, count: int, folder: Path, seconds: float, floor: Floor, most_bytes: int
) -> list[CollectiveSample]:
    """Return samples of collectives in groups of every size; groups of a size run concurrently.

    Tensors have 1 KiB to ``most_bytes``, in powers of four.
    """
    elements = [1 << power for power in range(8, most_bytes.bit_length() - 2, 2)]
    keys = [
        (kind, size, element) for kind in KINDS for size in groups_of(count) for element in elements
    ]
    # The ends of each line come first, so that a lack of time only drops points between them.
    keys.sort(key=lambda key: _turn(elements.index(key[2]), len(elements)))
    graphs = [_collective(folder, count, *key) for key in keys]
    times = dict(zip(keys, ranks.times_s(graphs, count, seconds), strict=True))
    ran = {key: time_s for key, time_s in times.items() if time_s is not None}
    return [
        CollectiveSample(kind, size, 4 * element, max(time_s - floor.graph_s, 0.0) / _TIMES)
        for (kind, size, element), time_s in ran.items()
    ]


def _turn(index: int, count: int) -> int:
    """Return the turn of a point of a line: its ends, every fourth, every second, then the rest."""
    if index in (0, count - 1):
        return 0
    return 1 if index % 4 == 0 else 2 if index % 2 == 0 else 3


def _collective(folder: Path, count: int, kind: str, size: int, elements: int) -> MeasuredGraph:
    """Write the graph of each rank; groups are consecutive ranks, as along a minor mesh axis."""
    name = f"{kind}_{size}_{elements}"
    for rank in range(count):
        first = rank // size * size
        group = list(range(first, first + size))
        collective_graph(folder / f"{name}_{rank}.onnx", kind, elements, group, _TIMES)
    return MeasuredGraph(
        f"{kind} of {size} ranks", str(folder / f"{name}_{{rank}}.onnx"), alone=False
    )


def least_side(provider: str) -> int:
    """Return the rows of the smallest square product that measures the peak."""
    return _SIDES[provider][0]


def capacity_bytes(ranks: Ranks, count: int) -> int:
    """Return the memory of one rank: a share of the smallest GPU, or of the machine's memory."""
    if ranks.options.provider == "cuda":
        shared = -(-count // len(ranks.gpus().gpu_bytes)) if ranks.options.share_gpus else 1
        return min(ranks.gpus().gpu_bytes) // shared
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // count
