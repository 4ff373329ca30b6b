"""Time the gradients of convolutions, pooling and normalisations on this machine's ONNX Runtime.

    python bench/kernels/gradients.py                       all, compared with PyTorch
    python bench/kernels/gradients.py --only pool --rounds 9 --threads 4

For a convolution, every form of dX and dW is timed, and the form that training builds is marked.
For other operators, forward pass (in its training form) and backward pass are timed together. All
take turns, ``--rounds`` times; a figure is the least time, in milliseconds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import helper

from tensoropt.compiler.exporter.rank import export_model
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.pipeline.driver import load
from tensoropt.compiler.sharding.ops.einsum import parse_equation
from tensoropt.compiler.sharding.ops.einsum_products import as_matrices
from tensoropt.compiler.sharding.rule.windows import Window
from tensoropt.compiler.training.gradients import sliding
from tensoropt.compiler.training.gradients.convolution import flip_kernel
from tensoropt.compiler.training.gradients.registry import Training
from tensoropt.compiler.training.marks import Marker
from tensoropt.compiler.training.reverse import Reverse, is_float, tape
from tensoropt.compiler.training.signature import Signature
from tensoropt.dialects.build import Build, sizes_of, tensor_type
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import attribute, opsets
from tensoropt.passes.dce import DcePass
from tensoropt.passes.pad_once import PadOncePass
from tensoropt.runtime.support.flags import Parser, run_command

__all__ = ["CONVOLUTIONS", "OPERATORS", "Convolution", "Operator"]

Array, Call = Any, Callable[[], Any]
_OPSET = 20


@dataclass(frozen=True)
class Convolution:
    """``batch`` square images of ``size``, ``inputs`` channels, windows of ``taps`` squared."""

    batch: int
    inputs: int
    outputs: int
    size: int
    taps: int
    stride: int
    groups: int = 1

    def __str__(self) -> str:
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        stride = f", stride {self.stride}" if self.stride > 1 else ""
        shape = f"{self.batch}x{self.inputs}x{self.size}x{self.size}"
        return f"{shape} to {self.outputs}, {self.taps}x{self.taps}{stride}{groups}"

    @property
    def padding(self) -> int:
        return self.taps // 2

    @property
    def windows(self) -> list[Window]:
        return [Window(d, self.taps, self.stride, 1, self.padding, self.padding) for d in (2, 3)]

    def arrays(self) -> dict[str, Array]:
        """Return X, W and dY."""
        count = (self.size + 2 * self.padding - self.taps) // self.stride + 1
        return {
            "x": _normal(self.batch, self.inputs, self.size, self.size),
            "w": _normal(self.outputs, self.inputs // self.groups, self.taps, self.taps),
            "dy": _normal(self.batch, self.outputs, count, count),
        }


CONVOLUTIONS = [
    Convolution(8, 64, 64, 56, 3, 1),
    Convolution(8, 64, 128, 56, 3, 2),
    Convolution(8, 512, 512, 7, 3, 1),
    Convolution(8, 64, 256, 56, 1, 1),
    Convolution(8, 256, 64, 56, 1, 1),
    Convolution(8, 256, 512, 56, 1, 2),
    Convolution(4, 3, 64, 224, 7, 2),
    Convolution(8, 8, 64, 56, 3, 1),
    Convolution(8, 128, 128, 56, 3, 1, 32),
    Convolution(8, 128, 128, 28, 3, 1, 8),
    Convolution(8, 144, 144, 56, 3, 1, 144),
    Convolution(8, 96, 96, 112, 3, 2, 96),
]


@dataclass(frozen=True)
class Operator:
    """A node and its PyTorch counterpart; the first operand and the parameters get gradients."""

    name: str
    shapes: Sequence[Sequence[int]]
    torch: Callable[..., Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


_IMAGES, _TOKENS = (8, 64, 56, 56), (8, 128, 768)
_functional = torch.nn.functional

OPERATORS = [
    Operator(
        "MaxPool",
        [(8, 64, 112, 112)],
        lambda x: _functional.max_pool2d(x, 3, 2, 1),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
    ),
    Operator(
        "AveragePool",
        [_IMAGES],
        lambda x: _functional.avg_pool2d(x, 3, 2, 1),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "count_include_pad": 1},
    ),
    Operator("GlobalAveragePool", [_IMAGES], lambda x: x.mean((2, 3), keepdim=True)),
    Operator(
        "BatchNormalization",
        [_IMAGES, *[(64,)] * 4],
        lambda x, s, b, m, v: _functional.batch_norm(x, m.detach(), v.detach(), s, b, True),
    ),
    Operator(
        "LayerNormalization",
        [_TOKENS, (768,), (768,)],
        lambda x, s, b: _functional.layer_norm(x, (768,), s, b),
    ),
    Operator("Dropout", [_TOKENS], lambda x: _functional.dropout(x, 0.5)),
]


def _normal(*shape: int) -> Array:
    return np.random.default_rng(list(shape)).standard_normal(shape, np.float32)


class Function:
    """A function of arrays, built in MLIR from an empty model and run by ONNX Runtime."""

    def __init__(self, model: onnx.ModelProto, threads: int, build: Callable[..., Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "source.onnx"), Path(folder, "target.onnx")
            source.write_bytes(model.SerializeToString())
            module = load(source, {})
            with module.context, ir.Location.unknown():
                signature = Signature(module, Marker())
                with ir.InsertionPoint(signature.block):
                    for index, value in enumerate(build(module, signature)):
                        signature.add_result(value, f"result{index}")
                    signature.finish()
                _multiply(signature.block)
            PadOncePass().run(module)
            DcePass().run(module)
            export_model(module, target, ParameterSource(source))
            options = ort.SessionOptions()
            options.intra_op_num_threads = threads
            # Spinning threads would slow PyTorch's threads down.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            self.session = ort.InferenceSession(
                str(target), options, providers=["CPUExecutionProvider"]
            )

    def call(self, arrays: Mapping[str, Array]) -> Call:
        """Return the run on ``arrays``, without the arrays that it does not read."""
        feeds = {i.name: arrays[i.name] for i in self.session.get_inputs()}
        return lambda: self.session.run(None, feeds)


def _multiply(block: ir.Block) -> None:
    """Replace each Einsum by the matrix product that a rank runs."""
    for op in [view.operation for view in block if view.operation.name == "onnx.Einsum"]:
        terms = parse_equation(attribute(op, "equation"), [len(sizes_of(x)) for x in op.operands])
        with ir.InsertionPoint(op):
            product = as_matrices(Build(op.location, _OPSET), list(op.operands), *terms)
        assert product is not None, op
        op.results[0].replace_all_uses_with(product)
        op.erase()


def _model(nodes: Sequence[onnx.NodeProto], arrays: Mapping[str, Array], output: str) -> Any:
    inputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, held.shape)
        for name, held in arrays.items()
    ]
    results = [onnx.ValueInfoProto(name=output)]
    graph = helper.make_graph(nodes, "one", inputs, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)


def _ways(held: Convolution) -> Iterator[tuple[str, Callable[[Build, Any, Any, Any], Any]]]:
    """Yield every form of dX and dW, as functions of (make, x, w, dy)."""
    windows, groups, sizes = held.windows, held.groups, [held.size] * 2
    yield (
        "dX transposed",
        lambda m, x, w, dy: sliding.convolve_back(m, dy, w, windows, sizes, groups),
    )
    if held.stride == 1:
        back = [Window(w.dim, w.taps, 1, 1, w.taps - 1 - w.begin, 0) for w in windows]
        yield (
            "dX convolution",
            lambda m, x, w, dy: sliding.convolve(
                m, dy, flip_kernel(m, w, groups), back, sizes, groups
            ),
        )
    yield "dW products", lambda m, x, w, dy: sliding.by_products(m, x, dy, windows, groups)
    yield "dW convolution", lambda m, x, w, dy: sliding.by_convolution(m, x, dy, windows, groups)


def _convolution(held: Convolution, threads: int) -> dict[str, Call]:
    arrays = held.arrays()
    x, w, dy = (torch.tensor(array) for array in arrays.values())
    nodes = [helper.make_node("Identity", [name], [f"{name}_"]) for name in arrays]

    def theirs(*wanted: bool) -> Call:
        options = ([held.stride] * 2, [held.padding] * 2, [1, 1], False, [0, 0], held.groups)
        backward = torch.ops.aten.convolution_backward
        return lambda: backward(dy, x, w, None, *options, [*wanted, False])

    calls = {"dX PyTorch": theirs(True, False), "dW PyTorch": theirs(False, True)}
    for name, way in _ways(held):
        function = Function(
            _model(nodes, arrays, "x_"),
            threads,
            lambda _, signature, way=way: [
                way(Marker().at("", _OPSET, "backward"), *signature.arguments)
            ],
        )
        calls[name] = function.call(arrays)
    return calls


def _operator(held: Operator, threads: int) -> dict[str, Call]:
    arrays = {f"x{i}": np.abs(_normal(*shape)) for i, shape in enumerate(held.shapes)}
    node = helper.make_node(held.name, list(arrays), ["y"], name="node", **held.attributes)

    def build(module: ir.Module, signature: Signature) -> Any:
        marker, versions = signature.marker, opsets(module)
        values = list(signature.arguments)
        wanted = {value for value in values[:3] if is_float(value)}
        seed = tensor_type([], ir.IntegerType.get_signless(64))
        buffers: dict[Any, Any] = {}
        y = marker.builder("y", _OPSET, "forward").unary("Identity", signature.outputs["y"])
        training = Training(lambda: signature.argument("seed", seed), buffers.__setitem__)
        reverse = Reverse(tape(signature.block, versions, marker, training), wanted, marker, _OPSET)
        reverse.run(y, signature.argument("dy", y.type))
        return [y, *(reverse.gradient(value) for value in values if value in wanted)]

    def theirs() -> Any:
        result = held.torch(*operands)
        return torch.autograd.grad(result, operands[:3], dy)

    operands = [torch.tensor(array, requires_grad=True) for array in arrays.values()]
    dy = torch.randn_like(held.torch(*operands))
    function = Function(_model([node], arrays, "y"), threads, build)
    feeds = {**arrays, "dy": dy.numpy(), "seed": np.array(1, np.int64)}
    return {"PyTorch": theirs, "here": function.call(feeds)}


def _timed(calls: Mapping[str, Call], rounds: int) -> dict[str, float]:
    """Return the least time of each call in milliseconds, after a warm-up call."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if number:
                found[name].append(1e3 * (time.perf_counter() - start))
    return {name: min(held) for name, held in found.items()}


def _built_forms(held: Convolution) -> set[str]:
    """Return the forms that training builds."""
    dense = held.groups > 1 and held.stride == 1
    wide = held.inputs // held.groups >= sliding.WIDE
    return {
        "dX convolution" if dense else "dX transposed",
        "dW products" if wide else "dW convolution",
    }


def _report(what: str, times: Mapping[str, float], taken: set[str]) -> None:
    print(what)
    for name, value in times.items():
        theirs = times[f"{name[:2]} PyTorch"] if name[:2] in ("dX", "dW") else times["PyTorch"]
        mark = "  <" if name in taken else ""
        print(f"  {name:16} {value:8.2f} ms {value / theirs:8.2f}{mark}", flush=True)


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="part of the name of an operator")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse()
    torch.set_num_threads(arguments.threads)
    for layer in CONVOLUTIONS if arguments.only.lower() in "convolution" else []:
        calls = _convolution(layer, arguments.threads)
        _report(str(layer), _timed(calls, arguments.rounds), _built_forms(layer))
    for held in OPERATORS:
        if arguments.only.lower() in held.name.lower():
            calls = _operator(held, arguments.threads)
            what = f"{held.name} {'x'.join(map(str, held.shapes[0]))}, forward and backward"
            _report(what, _timed(calls, arguments.rounds), set())


if __name__ == "__main__":
    sys.exit(run_command(main))
