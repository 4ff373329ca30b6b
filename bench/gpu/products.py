"""A chain of small matrix products, each followed by an AllReduce, which measures latency."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tensoropt.runtime.support.collectives import DOMAIN

__all__ = ["write_products"]

_LENGTH, _SIZE = 64, 64


def write_products(folder: Path, ranks: int) -> Path:
    """Write a graph for every rank in ``folder``, named as in a plan; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        onnx.save(_chain(rank, ranks), folder / f"rank{rank}.onnx")
    return folder


def _chain(rank: int, ranks: int) -> onnx.ModelProto:
    rng = np.random.default_rng(rank)
    width = (_SIZE, _SIZE)
    # Products of these weights, summed over the ranks, neither grow nor vanish.
    weight = rng.standard_normal(width, dtype=np.float32) / np.sqrt(_SIZE * ranks)
    nodes, types = list[onnx.NodeProto](), list[onnx.ValueInfoProto]()
    x = "x"
    for number in range(_LENGTH):
        partial, y = f"partial{number}", f"y{number}"
        tokens = [f"t{number}", f"t{number + 1}"]
        nodes.append(helper.make_node("MatMul", [x, "w"], [partial], name=f"product{number}"))
        nodes.append(
            helper.make_node(
                "AllReduce",
                [partial, tokens[0]],
                [y, tokens[1]],
                name=f"sum{number}",
                domain=DOMAIN,
                group=list(range(ranks)),
                reduction="sum",
            )
        )
        types += [helper.make_tensor_value_info(n, TensorProto.FLOAT, width) for n in (partial, y)]
        x = y
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, width)],
        [types.pop()],
        [
            numpy_helper.from_array(weight.astype(np.float32), "w"),
            helper.make_tensor("t0", TensorProto.INT64, [1], [0]),
        ],
        value_info=types,
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
