"""Graphs that measure a machine, of stock operators and of the runtime's collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tensoropt.compiler.protos.versions import MAX_IR_VERSION
from tensoropt.runtime.session.elementwise import fuse_elementwise
from tensoropt.runtime.support import collectives
from tensoropt.runtime.support.collectives import DOMAIN
from tensoropt.runtime.support.ordering import ORDERED

__all__ = [
    "COLLECTIVES",
    "Builder",
    "chain",
    "collective_graph",
    "fuse_update",
    "operators",
    "overlap_graph",
    "products",
    "row_of_sums",
    "stream",
    "update",
]

_OPSET = 20

COLLECTIVES: dict[str, tuple[str, dict[str, Any]]] = {
    kind: (
        traits.op_type,
        {name: "sum" if name == "reduction" else 0 for name in traits.attributes},
    )
    for kind, traits in collectives.COLLECTIVES.items()
    if traits.reshards
}
"""The runtime's operator and its attributes, by kind; tensors are split along dimension 0."""


class Builder:
    """Builder of a graph."""

    def __init__(self, dtype: str = "float32") -> None:
        self.graph = onnx.GraphProto(name="main")
        self.dtype = dtype
        self._code = helper.np_dtype_to_tensor_dtype(np.dtype("float32"))
        if dtype != "float32":
            self._code = getattr(onnx.TensorProto, dtype.upper())

    def input(self, *shape: int, code: int | None = None) -> str:
        """Return a new input."""
        name = f"x{len(self.graph.input)}"
        info = helper.make_tensor_value_info(name, code or self._code, shape)
        self.graph.input.append(info)
        return name

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        """Return a new constant; real numbers are stored in the type of the graph."""
        name = f"w{len(self.graph.initializer)}"
        tensor = numpy_helper.from_array(array, name)
        if array.dtype == np.float32 and self.dtype != "float32":
            tensor = helper.make_tensor(name, self._code, array.shape, array.reshape(-1))
        self.graph.initializer.append(tensor)
        return name

    def weight(self, *shape: int) -> str:
        """Return a constant of small random numbers."""
        draw = np.random.default_rng(len(self.graph.initializer))
        return self.constant(draw.uniform(0.0, 0.01, shape).astype(np.float32))

    def node(self, op_type: str, *operands: str, domain: str = "", **attributes: Any) -> str:
        """Return the result of a new node with one result."""
        return self.results_of(op_type, *operands, results=1, domain=domain, **attributes)[0]

    def results_of(
        self, op_type: str, *operands: str, results: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Return the results of a new node."""
        name = f"n{len(self.graph.node)}"
        names = [f"{name}_{number}" for number in range(results)]
        made = helper.make_node(op_type, operands, names, name=name, domain=domain, **attributes)
        self.graph.node.append(made)
        return names

    def write(self, path: Path, *results: str) -> Path:
        """Write the graph and return the path.

        Its outputs are ``results``, or else all values without readers. Types of inner values are
        inferred.
        """
        read = {name for node in self.graph.node for name in node.input}
        loose = [name for node in self.graph.node for name in node.output if name not in read]
        domains = {"", *(node.domain for node in self.graph.node)}
        opsets = [helper.make_opsetid(d, 1 if d else _OPSET) for d in sorted(domains)]
        self.graph.output.extend(onnx.ValueInfoProto(name=name) for name in results or loose)
        model = helper.make_model(self.graph, opset_imports=opsets, ir_version=MAX_IR_VERSION)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path


def chain(path: Path, nodes: int) -> Path:
    """Write a chain of ``nodes`` additions of one number."""
    built = Builder()
    value, other = built.input(1), built.input(1)
    for _ in range(nodes):
        value = built.node("Add", value, other)
    return built.write(path)


def products(path: Path, dtype: str, sizes: Sequence[tuple[int, int, int]]) -> Path:
    """Write a product of an input and a weight for each (m, k, n)."""
    built = Builder(dtype)
    for m, k, n in sizes:
        built.node("MatMul", built.input(m, k), built.weight(k, n))
    return built.write(path)


def stream(path: Path, elements: int) -> Path:
    """Write the addition of two float32 tensors of ``elements``, to measure memory bandwidth."""
    built = Builder()
    built.node("Add", built.input(elements), built.input(elements))
    return built.write(path)


def update(path: Path, elements: Sequence[int]) -> Path:
    """Write Adam's update of float32 parameters of ``elements`` each, fused into one pass."""
    built = Builder()
    rates = [built.constant(np.array(rate, np.float32)) for rate in (0.9, 0.1, 0.999, 0.001, 1e-8)]
    for count in elements:
        _adam(built, [built.input(count) for _ in range(4)], rates)
    fuse_update(built.write(path))
    return path


def fuse_update(path: Path) -> None:
    """Fuse the update in a file into the fewest passes over its arrays, as training does."""
    model = onnx.load(path, load_external_data=False)
    fuse_elementwise(model)
    onnx.save(model, path)


def _adam(built: Builder, arrays: Sequence[str], rates: Sequence[str]) -> None:
    """Add the update of a parameter; ``arrays`` are it, its gradient and both moments."""
    parameter, gradient, mean, square = arrays
    kept, new, kept_square, new_square, small = rates
    mean = built.node("Add", built.node("Mul", kept, mean), built.node("Mul", new, gradient))
    squared = built.node("Mul", new_square, built.node("Mul", gradient, gradient))
    square = built.node("Add", built.node("Mul", kept_square, square), squared)
    by = built.node("Div", mean, built.node("Add", built.node("Sqrt", square), small))
    built.node("Sub", parameter, built.node("Mul", new, by))
    for value in (mean, square):  # they have readers, so they are no outputs by default
        built.graph.output.append(onnx.ValueInfoProto(name=value))


def collective_graph(
    path: Path, kind: str, elements: int, group: Sequence[int], times: int
) -> Path:
    """Write ``times`` collectives in sequence, of a float32 tensor of ``elements`` per rank."""
    built = Builder()
    value = built.input(elements)
    token = built.constant(np.zeros(1, np.int64))
    op_type, attribute = COLLECTIVES[kind]
    for _ in range(times):
        own = {"domain": DOMAIN, "group": list(group), **attribute}
        _, token = built.results_of(op_type, value, token, results=2, **own)
    return _write_ours(built, path, token, onnx.TensorProto.INT64)


def row_of_sums(
    path: Path, elements: int, group: Sequence[int], times: int, *, starts: bool
) -> Path:
    """Write a chain of ``times`` all-reduces; with ``starts``, each is a start and a wait."""
    built = Builder()
    value, token = built.input(elements), built.constant(np.zeros(1, np.int64))
    for _ in range(times):
        value, token, handle = _sum(built, value, token, group, starts=starts)
        value = _add_wait(built, value, handle)
    return _write_ours(built, path, _first_of(built, value), onnx.TensorProto.FLOAT)


def overlap_graph(
    path: Path, elements: int, group: Sequence[int], products: tuple[int, int], sent: str
) -> Path:
    """Write a chain of matrix products and an all-reduce of a computed tensor of ``elements``.

    ``products`` are the rows of the square matrices and the number of products. The all-reduce runs
    ``"before"`` the products, ``"beside"`` them (overlapped), or not at all (``"nothing"``).
    """
    built = Builder()
    value = built.node("Relu", built.input(elements))
    token, handle = built.constant(np.zeros(1, np.int64)), ""
    if sent != "nothing":
        value, token, handle = _sum(built, value, token, group, starts=sent == "beside")
    side, count = products
    product, weight = built.input(side, side), built.weight(side, side)
    for _ in range(count):
        product = built.node("MatMul", product, weight)
    value = _first_of(built, _add_wait(built, value, handle))
    both = built.node("Add", value, _first_of(built, _first_of(built, product)))
    return _write_ours(built, path, both, onnx.TensorProto.FLOAT)


def _sum(
    built: Builder, value: str, token: str, group: Sequence[int], *, starts: bool
) -> tuple[str, str, str]:
    """Add an all-reduce; return its result, its token, and its handle if it ``starts``."""
    op_type, attribute = COLLECTIVES["all_reduce"]
    own = {"domain": DOMAIN, "group": list(group), **attribute}
    if not starts:
        made, token = built.results_of(op_type, value, token, results=2, **own)
        return made, token, ""
    token, handle, made = built.results_of(f"{op_type}Start", token, value, results=3, **own)
    return made, token, handle


def _add_wait(built: Builder, value: str, handle: str) -> str:
    return built.node("AllReduceWait", handle, value, domain=DOMAIN) if handle else value


def _first_of(built: Builder, value: str) -> str:
    """Add a read of the first element of a tensor along its first dimension."""
    return built.node("Gather", value, built.constant(np.array(0, np.int64)), axis=0)


def _write_ours(built: Builder, path: Path, result: str, code: int) -> Path:
    """Write a graph with the runtime's operators, in fixed order, with the output ``result``."""
    shape = [1] if code == onnx.TensorProto.INT64 else []
    built.graph.output.append(helper.make_tensor_value_info(result, code, shape))
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(built.graph, opset_imports=opsets, ir_version=10)
    helper.set_model_props(model, {ORDERED: "1"})
    onnx.save(model, path)
    return path


_ELEMENTWISE = ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Sqrt", "Neg", "Gelu", "Softmax")
_PAIRS = ("Add", "Sub", "Mul", "Div", "Pow")


def operators(folder: Path, dtype: str, rows: Sequence[int]) -> Iterator[Path]:
    """Write graphs of common operators, on matrices with each number of ``rows``; yield the paths.

    For types that convolutions have, there are graphs on images too.
    """
    for number, count in enumerate(rows):
        built = Builder(dtype)
        _matrices(built, count, 512)
        yield built.write(folder / f"matrices_{dtype}_{number}.onnx")
    if dtype == "bfloat16":
        return  # ONNX has bfloat16 convolutions from opset 22 on only
    for number, (channels, side) in enumerate(((16, 112), (32, 56), (64, 28), (128, 14), (256, 7))):
        built = Builder(dtype)
        _images(built, channels, side)
        yield built.write(folder / f"images_{dtype}_{number}.onnx")


def _matrices(built: Builder, rows: int, columns: int) -> None:
    shape = (rows, columns)
    for op_type in _ELEMENTWISE:
        built.node(op_type, built.input(*shape))
    for op_type in _PAIRS:
        built.node(op_type, built.input(*shape), built.input(*shape))
    built.node("Pow", built.input(*shape), built.constant(np.array(2.0, np.float32)))
    built.node("LayerNormalization", built.input(*shape), built.weight(columns))
    axis = built.constant(np.array([1], np.int64))
    for op_type in ("ReduceSum", "ReduceMean", "ReduceMax"):
        built.node(op_type, built.input(*shape), axis)
    built.node("Transpose", built.input(*shape), perm=[1, 0])
    built.node("Concat", built.input(*shape), built.input(*shape), axis=0)
    built.results_of("Split", built.input(*shape), results=2, axis=1, num_outputs=2)
    bounds = [built.constant(np.array([b], np.int64)) for b in (0, columns // 2, 1)]
    built.node("Slice", built.input(*shape), *bounds)
    built.node(
        "Reshape", built.node("Abs", built.input(*shape)), built.constant(np.array([-1], np.int64))
    )
    tokens = built.input(rows, code=onnx.TensorProto.INT64)
    built.node("Gather", built.weight(1024, columns), tokens)
    built.node("Gemm", built.input(*shape), built.weight(columns, columns), built.weight(columns))
    condition = built.input(*shape, code=onnx.TensorProto.BOOL)
    built.node("Where", condition, built.input(*shape), built.input(*shape))
    _layer(built, rows, columns)


def _layer(built: Builder, rows: int, columns: int) -> None:
    """Add the fused kernels of transformers: a scaled product, a bias, an RMS normalisation and a
    gate."""
    scale, square, small = (built.constant(np.array(x, np.float32)) for x in (0.1, 2.0, 1e-5))
    heads, width = 4, columns // 4
    turned = built.node("Transpose", built.input(rows, heads, width), perm=[1, 0, 2])
    built.node("MatMul", built.node("Mul", turned, scale), built.input(heads, width, width))
    value = built.node("Add", built.input(rows, columns), built.input(rows, columns))
    last = built.constant(np.array([-1], np.int64))
    mean = built.node("ReduceMean", built.node("Pow", value, square), last)
    root = built.node("Sqrt", built.node("Add", mean, small))
    value = built.node("Mul", built.weight(columns), built.node("Div", value, root))
    gate = built.node("MatMul", value, built.weight(columns, columns))
    gate = built.node("Mul", gate, built.node("Sigmoid", gate))
    product = built.node("MatMul", gate, built.weight(columns, columns))
    built.node("Add", product, built.weight(columns))


def _images(built: Builder, channels: int, side: int) -> None:
    """Add a sequence of image operators, so that ONNX Runtime changes layouts only at its ends."""
    value = built.input(1, channels, side, side)
    for kernel, group in ((3, 1), (1, 1), (3, channels), (1, 1)):
        weight = built.weight(channels, channels // group, kernel, kernel)
        pads = [kernel // 2] * 4
        value = built.node("Conv", value, weight, built.weight(channels), pads=pads, group=group)
        value = built.node("Relu", value)
    for join in ("Add", "Sum"):
        value = _residual(built, value, channels, join)
    # As in dense networks: a normalisation after a Concat is not fused into a convolution.
    other = built.node("Conv", value, built.weight(channels, channels, 1, 1))
    joined = _normalised(built, built.node("Concat", value, other, axis=1), 2 * channels)
    value = built.node("Conv", joined, built.weight(channels, 2 * channels, 1, 1))
    built.node("LRN", built.input(1, channels, side, side), size=5)
    pooled = built.node("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2])
    pooled = built.node("AveragePool", pooled, kernel_shape=[2, 2])
    built.node("GlobalAveragePool", pooled)


def _residual(built: Builder, value: str, channels: int, join: str) -> str:
    """Add the sum of a residual block, which is fused into the second convolution."""
    inner = value
    for number in range(2):
        inner = built.node("Conv", inner, built.weight(channels, channels, 1, 1))
        inner = _normalised(built, inner, channels)
        inner = built.node("Relu", inner) if number == 0 else inner
    return built.node("Relu", built.node(join, inner, value))


def _normalised(built: Builder, value: str, channels: int) -> str:
    scales = [built.weight(channels) for _ in range(4)]
    return built.node("BatchNormalization", value, *scales)
