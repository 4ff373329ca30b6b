"""Sizes that no mesh divides: they stay whole or are padded, and every plan is right.

Small networks of random sizes go through the whole compiler with random strategies; all ranks of
the partitioned program then run here, in lockstep, and are held against the program before it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from sharding.harness import any_padding
from sharding.spmd import run_spmd

from tensoropt.compiler.comparison.registry import solver
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.layout.layouts import fits
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.search import SearchOptions, search_frontier
from tensoropt.compiler.sharding.proof.parts import combine, cut
from tensoropt.dialects import onnx as views
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import layout_of
from tensoropt.passes.search_strategies import annotate
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (3,), (4,), (2, 2), (3, 2)]
SIZE = st.integers(1, 9)

Array = np.ndarray[Any, np.dtype[Any]]
Sizes = dict[str, int]


class Network:
    """A graph under construction: values are their names, weights are random."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.feeds = {n: self.rng.standard_normal(s).astype(np.float32) for n, s in inputs.items()}

    def weight(self, *shape: int) -> str:
        return self.stored((self.rng.standard_normal(shape) * 0.5).astype(np.float32))

    def stored(self, array: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(array), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def op(self, kind: str, *operands: str, results: int = 1, **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}_{index}" for index in range(results)]
        self.nodes.append(helper.make_node(kind, operands, names, names[0], **attributes))
        return names[0] if results == 1 else names

    def save(self, outputs: Sequence[str], path: Path) -> None:
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in self.feeds.items()
        ]
        ends = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", inputs, ends, self.weights)
        opset = [helper.make_opsetid("", 20)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)


def _perceptron(b: int, k: int, n: int, **_: int) -> tuple[Network, list[str]]:
    g = Network(x=(b, k))
    h = g.op("Gemm", "x", g.weight(n, k), g.weight(n), transB=1)
    h = g.op("LayerNormalization", h, g.weight(n), g.weight(n))
    h = g.op("Add", g.op("MatMul", h, g.weight(n, k)), "x")
    mean = g.op("ReduceMean", h, g.stored(np.array([0])), keepdims=1)
    places = g.op("ArgMax", h, axis=1)
    return g, [g.op("Softmax", g.op("Sub", h, mean)), places]


def _attention(b: int, s: int, h: int, d: int, **_: int) -> tuple[Network, list[str]]:
    g = Network(x=(b, s, h * d), past=(b, h, s + 1, d))
    parts = g.op("MatMul", "x", g.weight(h * d, 3 * h * d))
    parts = g.op("Split", parts, results=3, axis=-1, num_outputs=3)
    wide = g.stored(np.array([0, 0, h, d]))
    q, k, v = (g.op("Transpose", g.op("Reshape", p, wide), perm=[0, 2, 1, 3]) for p in parts)
    k = g.op("Concat", "past", k, axis=2)
    v = g.op("Concat", "past", v, axis=2)
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    y = g.op("MatMul", g.op("Softmax", scores), v)
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.stored(np.array([0, 0, h * d])))
    return g, [g.op("MatMul", y, g.weight(h * d, h * d)), k]


def _heads(b: int, s: int, h: int, d: int, **_: int) -> tuple[Network, list[str]]:
    """Heads behind a Reshape of each projection, and rows that merge the batch with tokens."""
    g, wide = Network(x=(b, s, h * d)), h * d
    q, k, v = (g.op("MatMul", "x", g.weight(wide, wide)) for _ in range(3))
    apart = g.stored(np.array([0, 0, h, d]))
    v = g.op("Add", v, g.weight(wide))
    q, k, v = (g.op("Transpose", g.op("Reshape", p, apart), perm=[0, 2, 1, 3]) for p in (q, k, v))
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    y = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores), v), perm=[0, 2, 1, 3])
    y = g.op("MatMul", g.op("Reshape", y, g.stored(np.array([0, 0, wide]))), g.weight(wide, wide))
    rows = g.op("Reshape", y, g.stored(np.array([-1, wide])))
    rows = g.op("Relu", g.op("Gemm", rows, g.weight(wide, 2), g.weight(2)))
    return g, [y, rows, g.op("Reshape", rows, g.stored(np.array([b, s, 2])))]


def _convolution(b: int, h: int, d: int, n: int, s: int, **_: int) -> tuple[Network, list[str]]:
    """``h`` groups of ``d`` channels, over an image of ``s`` + 4 times ``n`` + 4."""
    c = h * d
    g = Network(x=(b, c, s + 4, n + 4))
    y = g.op("Conv", "x", g.weight(c, d, 3, 3), g.weight(c), group=h, pads=[1, 1, 1, 1])
    held = [g.stored(g.rng.uniform(0.5, 1.5, c).astype(np.float32)) for _ in range(4)]
    y = g.op("Relu", g.op("BatchNormalization", y, *held))
    y = g.op("Concat", g.op("MaxPool", y, kernel_shape=[3, 2], strides=[2, 1]), axis=1)
    y = g.op("Pad", y, g.stored(np.array([0, 1, 0, 0, 0, 0, 1, 0])))
    y = g.op("ConvTranspose", y, g.weight(c + 1, n, 2, 2))
    return g, [g.op("Flatten", g.op("GlobalAveragePool", y)), g.op("LRN", y, size=3)]


def _recurrent(b: int, s: int, k: int, n: int, **_: int) -> tuple[Network, list[str]]:
    g = Network(x=(s, b, k))
    weights = g.weight(2, 4 * n, k), g.weight(2, 4 * n, n), g.weight(2, 8 * n)
    y, last, _ = g.op("LSTM", "x", *weights, results=3, hidden_size=n, direction="bidirectional")
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.stored(np.array([0, 0, 2 * n])))
    y, _ = g.op("Split", y, g.stored(np.array([n, n])), results=2, axis=2)
    return g, [y, g.op("CumSum", last, g.stored(2))]


def _einsum(b: int, k: int, n: int, h: int, **_: int) -> tuple[Network, list[str]]:
    g = Network(x=(b, h, k))
    y = g.op("Einsum", "x", g.weight(h, k, n), equation="bhk,hkn->bhn")
    y = g.op("Tile", y, g.stored(np.array([1, 3, 1])))
    y = g.op("Expand", g.op("Unsqueeze", y, g.stored(np.array([1]))), g.stored(np.array([2, 1, 1])))
    picked = g.op("Gather", y, g.stored(g.rng.integers(0, 2, (n + 1,))), axis=1)
    return g, [g.op("Slice", picked, *(g.stored(np.array([v])) for v in (0, 2**62, 2, 2)))]


def _quantized(b: int, k: int, n: int, **_: int) -> tuple[Network, list[str]]:
    """Scales are powers of two, so that sums are exact in any order and round alike.

    Weights have 7 bits: on processors without VNNI, pairs of products are added in 16 bits.
    """
    g = Network(x=(b, k))
    step, zero = g.stored(np.float32(2**-5)), g.stored(np.uint8(128))
    scales = g.stored((2.0 ** -(np.arange(n) % 3 + 5)).astype(np.float32))
    weight = g.stored(g.rng.integers(-63, 64, (k, n)).astype(np.int8))
    y = g.op("DequantizeLinear", g.op("QuantizeLinear", "x", step, zero), step, zero)
    y = g.op("MatMul", y, g.op("DequantizeLinear", weight, scales, axis=1))
    y = g.op("QuantizeLinear", y, step, zero)
    total = g.op("MatMulInteger", y, g.op("Transpose", weight, perm=[1, 0]), zero)
    best, places = g.op("TopK", total, g.stored(np.array([1])), results=2, axis=1)
    return g, [y, best, g.op("OneHot", places, g.stored(np.int64(k)), g.stored(np.array([0, 1])))]


def _packed(b: int, s: int, h: int, d: int, n: int, **_: int) -> tuple[Network, list[str]]:
    """Projections in blocks of unequal sizes, cut by Split and by Slice, and joined again."""
    g, wide = Network(x=(b, s, n)), h * d
    parts = g.op("Add", g.op("MatMul", "x", g.weight(n, 4 * wide)), g.weight(4 * wide))
    q, kv = g.op("Split", parts, g.stored(np.array([2 * wide, 2 * wide])), results=2, axis=-1)
    k, v = (
        g.op("Slice", kv, *(g.stored(np.array([own])) for own in (start, start + wide, -1)))
        for start in (0, wide)
    )
    heads = g.op("Reshape", q, g.stored(np.array([0, 0, 2 * h, d])))
    q = g.op("Reshape", g.op("Tanh", heads), g.stored(np.array([0, 0, 2 * wide])))
    y = g.op("Mul", q, g.op("Concat", k, v, axis=-1))
    y = g.op("Concat", y, g.op("Relu", y), axis=2)
    return g, [g.op("MatMul", y, g.weight(4 * wide, n)), k]


FAMILIES = [_perceptron, _attention, _heads, _packed, _convolution, _recurrent, _einsum, _quantized]


def _random_plan(path: Path, mesh: Mesh, seed: int) -> ir.Module:
    """Return the module, partitioned by random strategies."""
    module = driver.load(path, {})
    driver.advance(module, "rules")
    options = SearchOptions(solver("random", seed))
    [point] = search_frontier(module, [mesh], load_device("cpu"), options).points
    annotate(module, point, "cpu")
    driver.run_phase(module, "reshard")
    return module


def _ends(module: ir.Module, side: str) -> list[tuple[str, Layout]]:
    held = views.function(module).attributes[side]
    return [(own["topt.name"].value, layout_of(own["topt.layout"])) for own in held]


def _run(network: Network, outputs: Sequence[str], mesh: Mesh, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = network.feeds | {w.name: numpy_helper.to_array(w) for w in network.weights}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        network.save(outputs, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        module = _random_plan(path, mesh, seed)
    arguments, ends = _ends(module, "arg_attrs"), _ends(module, "res_attrs")
    assert all(fits(layout, arrays[name].shape, mesh) for name, layout in arguments)
    driver.run_phase(module, "partition")
    parts = [cut(arrays[name], layout, mesh, rng) for name, layout in arguments]
    found = run_spmd(module, [[held[rank] for held in parts] for rank in range(mesh.size)])
    for number, whole in enumerate(session.run(list(outputs), network.feeds)):
        own = [rank[number] for rank in found]
        got = combine(own, ends[number][1], mesh, whole.shape)
        np.testing.assert_allclose(got, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@examples(8)
@given(
    sizes=st.fixed_dictionaries(dict.fromkeys("bkshdn", SIZE)),
    mesh=st.sampled_from(MESHES),
    seed=st.integers(0, 99),
    pads=st.booleans(),
)
def test_plans_of_any_size_are_right(
    family: Callable[..., tuple[Network, list[str]]],
    sizes: Sizes,
    mesh: tuple[int, ...],
    seed: int,
    pads: bool,
) -> None:
    network, outputs = family(**sizes)
    with driver.new_context(), any_padding() if pads else nullcontext():
        _run(network, outputs, Mesh(mesh), seed)
