"""Plan directories written by hand, so that the runtime is tested without the compiler."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tensoropt.runtime.plan.document import document_sha256

DOMAIN = "tensoropt"
COST = {
    "time_s": 1e-3,
    "compute_s": 1e-3,
    "communication_s": 0.0,
    "memory_bytes": 10,
    "static_bytes": 6,
    "transient_bytes": 4,
}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tensor(name: str, shape: Sequence[int | str], layout: Sequence[str], dtype: str = "float32"):
    return {"name": name, "dtype": dtype, "shape": list(shape), "layout": list(layout)}


def value_info(name: str, dtype: str, shape: Sequence[int | str] | None):
    code = {"bfloat16": TensorProto.BFLOAT16, "string": TensorProto.STRING}.get(dtype)
    if code is None:
        code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, code, shape)


def collective(op: str, x: str, y: str, token: int, name: str = "", **attributes: Any):
    """A collective node; tokens are named t<n>, and t0 is the constant one."""
    return helper.make_node(
        op,
        [x, f"t{token}"],
        [y, f"t{token + 1}"],
        name=name or f"{op}_{token}",
        domain=DOMAIN,
        **attributes,
    )


def message(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any):
    """A Send (x, token) -> token or a Recv token -> (y, token)."""
    return helper.make_node(op, inputs, outputs, name=f"{op}_node", domain=DOMAIN, **attributes)


def model_of(nodes, inputs, outputs, weights: Mapping[str, np.ndarray] | None = None):
    initializers = [numpy_helper.from_array(np.asarray(w), n) for n, w in (weights or {}).items()]
    initializers.append(numpy_helper.from_array(np.zeros(1, np.int64), "t0"))
    graph = helper.make_graph(nodes, "main", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def document(model: Path, mesh: Sequence[int], inputs, outputs, files) -> dict[str, Any]:
    return {
        "schema": 1,
        "tool": "by hand",
        "model": {"name": model.name, "sha256": sha256(model)},
        "device": "cpu",
        "mesh": {"shape": list(mesh)},
        "ranks": int(np.prod(mesh)),
        "search": {"name": "none", "seed": None},
        "frontier": [{"index": 0, "mesh": list(mesh), **COST}],
        "chosen": 0,
        "predicted": {**COST, "expected_error": None},
        "inputs": inputs,
        "outputs": outputs,
        "parameters": [],
        "strategies": [],
        "files": files,
    }


def write_plan(folder: Path, model: Path, mesh, graphs, inputs, outputs) -> Path:
    """Write a plan of one graph per rank and return its folder."""
    folder.mkdir(parents=True)
    for rank, graph in enumerate(graphs):
        onnx.save(graph, folder / f"rank{rank}.onnx")
    files = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    _seal(folder, document(model, mesh, inputs, outputs, files))
    return folder


def _seal(folder: Path, content: dict[str, Any]) -> None:
    content["sha256"] = document_sha256(content)
    (folder / "plan.json").write_text(json.dumps(content, indent=2))


def edit(folder: Path, change) -> Path:
    """Apply ``change`` to the plan.json of a folder, and pass it off as what was written."""
    content = json.loads((folder / "plan.json").read_text())
    change(content)
    _seal(folder, content)
    return folder


class Perceptron:
    """relu(x w1) w2 over a mesh (data, tensor): batch over the first axis, columns of w1 and rows
    of w2 over the second, then an all-reduce along it."""

    def __init__(self, folder: Path, batch: int | str = 4) -> None:
        random = np.random.default_rng(7)
        self.w1 = random.standard_normal((6, 8), dtype=np.float32)
        self.w2 = random.standard_normal((8, 5), dtype=np.float32)
        self.batch = batch
        self.model = folder / "perceptron.onnx"
        onnx.save(self._graph(self.w1, self.w2, batch, None, ""), self.model)

    def _graph(self, w1, w2, batch, group, mode: str):
        nodes = [
            helper.make_node("MatMul", ["x", "w1"], ["h"]),
            helper.make_node("Relu", ["h"], ["a"]),
            helper.make_node("MatMul", ["a", "w2"], ["y" if group is None else "p"]),
        ]
        if group is not None:
            reduction = "max" if mode == "wrong" else "sum"
            nodes.append(
                collective("AllReduce", "p", "y", 0, "fc2_reduce", group=group, reduction=reduction)
            )
        inputs = [value_info("x", "float32", [batch, 6])]
        return model_of(
            nodes, inputs, [value_info("y", "float32", [batch, 5])], {"w1": w1, "w2": w2}
        )

    def plan(self, folder: Path, mesh=(1, 2), mode: str = "", group=None) -> Path:
        data, parts = mesh
        local = self.batch // data if isinstance(self.batch, int) else "local"
        graphs = []
        for rank in range(data * parts):
            column = rank % parts
            own = [rank - column + i for i in range(parts)]
            w1 = np.split(self.w1, parts, 1)[column]
            w2 = np.split(self.w2, parts, 0)[column]
            graphs.append(self._graph(w1, w2, local, group or own, mode))
        layout = ["S(0)", "R"]
        inputs = [tensor("x", [self.batch, 6], layout)]
        outputs = [tensor("y", [self.batch, 5], layout)]
        return write_plan(folder, self.model, mesh, graphs, inputs, outputs)


def failing_plan(folder: Path, model: Path, shape: int, group: list[int]) -> Path:
    """Rank 1 reshapes two elements to ``shape``; rank 0 has ``group`` in its collective."""
    graphs = []
    for rank in (0, 1):
        nodes = [
            helper.make_node("Reshape", ["x", "s"], ["r"], name="fold"),
            collective(
                "AllReduce", "r", "y", 0, "total", group=[0, 1] if rank else group, reduction="sum"
            ),
        ]
        ends = [value_info("x", "float32", [2])], [value_info("y", "float32", None)]
        graphs.append(model_of(nodes, *ends, {"s": np.array([shape if rank else 2])}))
    # Of an open size: ONNX Runtime would refuse another one before it runs anything.
    x, y = tensor("x", [2], ["R"]), tensor("y", ["n"], ["R"])
    return write_plan(folder, model, (2,), graphs, [x], [y])
