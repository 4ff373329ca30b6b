"""Memory traffic of a training step on a GPU, before and after elementwise arithmetic is fused.

    python bench/kernels/fused_bytes.py

The step is of two layers with the proportions of Llama 3.1 8B, an eighth as wide, with 2,048 tokens
in bfloat16 and AdamW, on one rank without recomputation. An operator reads its operands and writes
its results once; views move nothing.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


import onnx
from gpu.models import write_training_plan
from gpu.setting import table
from graphs.llama import Llama

from tensoropt.compiler.cost.compute import VIEWS
from tensoropt.runtime.plan.graphs import GRADIENTS, UPDATE
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.elementwise import fuse_chains, fuse_elementwise
from tensoropt.runtime.session.types import tensor_types
from tensoropt.runtime.support.arithmetic import CAST, ON_GPU
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["moved_bytes"]

_MODEL = Llama(
    layers=2, width=512, heads=4, groups=1, inner=1792, vocabulary=1024, sequence=2048, batch=1,
    dtype="float32",
)  # fmt: skip
_FUSED = {*ON_GPU.operators, CAST, "Elementwise"}


def moved_bytes(model: onnx.ModelProto) -> tuple[int, int, float, float]:
    """Return the numbers of elementwise and of all nodes, and the bytes that both move."""
    types = tensor_types(model.graph)
    count, total, part_bytes, all_bytes = 0, 0, 0.0, 0.0
    for node in model.graph.node:
        if node.op_type in VIEWS:
            continue
        node_bytes = sum(_size(types.get(name)) for name in {*node.input, *node.output})
        total, all_bytes = total + 1, all_bytes + node_bytes
        if node.op_type in _FUSED:
            count, part_bytes = count + 1, part_bytes + node_bytes
    return count, total, part_bytes, all_bytes


def _size(kind: tuple[int, tuple[int, ...]] | None) -> float:
    if kind is None:
        return 0.0
    item = onnx.helper.tensor_dtype_to_np_dtype(kind[0]).itemsize
    return float(item * math.prod(kind[1]))


def _main() -> None:
    rows = list[list[object]]()
    fusions: dict[str, Callable[..., object]] = {GRADIENTS: fuse_chains, UPDATE: fuse_elementwise}
    with tempfile.TemporaryDirectory(prefix="tensoropt-bench-") as name:
        folder = Path(name)
        path = _MODEL.build("llama").save(folder, seed=0)
        plan = write_training_plan(path, 1, "leanest", "bfloat16", "h100", folder)
        for graph, fuse in fusions.items():
            file = TrainingPlan.from_plan(Plan.load(plan)).graph(0, graph)
            model = onnx.load(file, load_external_data=False)
            before = moved_bytes(model)
            fuse(model, ON_GPU)
            after = moved_bytes(model)
            rows.append([graph, *_cells(before), *_cells(after)])
    head = [
        "graph",
        "nodes",
        "elementwise",
        "MB",
        "of all",
        "nodes fused",
        "elementwise",
        "MB",
        "of all",
    ]
    print(table(head, rows))


def _cells(counted: tuple[int, int, float, float]) -> list[object]:
    count, total, part_bytes, all_bytes = counted
    return [total, count, f"{part_bytes / 1e6:.0f}", f"{all_bytes / 1e6:.0f}"]


if __name__ == "__main__":
    _main()
