"""A plan by hand whose inputs and outputs are of many types, shapes and layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from handmade import collective, model_of, tensor, value_info, write_plan
from onnx import helper

TABLE = np.arange(30, dtype=np.float32).reshape(10, 3)

SAME = {  # inputs that come out as they went in: type, shape and layout on 2 ranks
    "rows": ("float32", ["batch", 6], "S(0)"),
    "columns": ("float32", [3, 8], "S(1)"),
    "half": ("float16", [4], "R"),
    "short": ("bfloat16", [2, 2], "S(0)"),
    "scalar": ("int64", [], "R"),
    "nothing": ("float64", ["none", 3], "R"),
    "flags": ("bool", [3, 6], "S(1)"),
}


def mixed_plan(folder: Path, model: Path) -> Path:
    """Beside `SAME`: ``taken`` rows of a table, where ``rows`` is not 0, and its ``sum``."""
    inputs = [tensor(name, shape, [layout], dtype) for name, (dtype, shape, layout) in SAME.items()]
    inputs.append(tensor("index", ["batch"], ["S(0)"], "int64"))
    outputs = [{**entry, "name": f"{entry['name']}_out"} for entry in inputs[:-1]]
    outputs += [
        tensor("taken", ["batch", 3], ["S(0)"]),
        tensor("where", [2, "where:1"], ["R"], "int64"),
        tensor("sum", ["sum:0"], ["R"]),
    ]
    return write_plan(folder, model, (2,), [_graph(inputs, outputs)] * 2, inputs, outputs)


def _graph(inputs, outputs):
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in SAME]
    nodes += [
        helper.make_node("Gather", ["table", "index"], ["taken"], name="take"),
        helper.make_node("NonZero", ["columns_whole"], ["where"]),
        helper.make_node("ReduceSum", ["rows", "axes"], ["part"], keepdims=0),
        collective("AllReduce", "part", "sum", 1, group=[0, 1], reduction="sum"),
    ]
    gather = collective("AllGather", "columns", "columns_whole", 0, group=[0, 1], dim=1)
    weights = {"table": TABLE, "axes": np.zeros(1, np.int64)}
    ends = [
        [value_info(entry["name"], entry["dtype"], None) for entry in found]
        for found in (inputs, outputs)
    ]
    return model_of([gather, *nodes], *ends, weights)
