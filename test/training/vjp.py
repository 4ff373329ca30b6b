"""A model with its vector-Jacobian product, on stock ONNX Runtime; see harness.py."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from tensoropt.compiler.exporter.rank import export_model
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.pipeline.driver import load
from tensoropt.compiler.training.gradients.registry import Training
from tensoropt.compiler.training.marks import Marker
from tensoropt.compiler.training.reverse import Reverse, is_float, tape
from tensoropt.compiler.training.signature import Signature
from tensoropt.dialects.build import element_type, tensor_type
from tensoropt.dialects.kernels import count_missing_kernels
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import opsets
from tensoropt.passes.pipeline import Pipeline, parse_pipeline

__all__ = ["OPSET", "Array", "Run", "Vjp", "node_model", "session_of"]

Array = npt.NDArray[Any]

OPSET = 20
_IR_VERSION = 10

# Each is the gradient of the other, and neither has a CUDA kernel.
_EACH_OTHERS = {"Cosh", "Sinh"}


def node_model(
    op_type: str,
    operands: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    outputs: int | Sequence[bool] = 1,
    literals: Collection[int] = (),
    domain: str = "",
    version: int = OPSET,
) -> onnx.ModelProto:
    """Return a model of one node: operands ``x0``, ... (inputs or literals), results ``y0``, ..."""
    there = [True] * outputs if isinstance(outputs, int) else list(outputs)
    held = {f"x{i}": o for i, o in enumerate(operands) if o is not None}
    node = helper.make_node(
        op_type,
        [f"x{i}" if o is not None else "" for i, o in enumerate(operands)],
        [f"y{i}" if here else "" for i, here in enumerate(there)],
        name=op_type,
        domain=domain,
        **(attributes or {}),
    )
    constant = {f"x{i}" for i in literals}
    nodes = [helper.make_node("Constant", [], [n], value=numpy_helper.from_array(a, n))
             for n, a in held.items() if n in constant]  # fmt: skip
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for n, a in held.items() if n not in constant]  # fmt: skip
    results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([*nodes, node], "node", inputs, results)
    domains = {"": version if not domain else OPSET, **({domain: 1} if domain else {})}
    imports = [helper.make_opsetid(key, value) for key, value in domains.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


def session_of(model: bytes | str) -> ort.InferenceSession:
    """Return a session on stock ONNX Runtime, CPU, one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class Run:
    """What one run gave, by name; an input that nothing depends on has the gradient ``None``."""

    outputs: dict[str, Array]
    gradients: dict[str, Array | None]
    buffers: dict[str, Array]


@dataclass
class Vjp:
    """A model with its vector-Jacobian product, on stock ONNX Runtime.

    ``wanted`` names the inputs or weights that gradients are of, all floating point inputs if it
    is not given; ``cotangents`` the outputs that have one, all floating point ones if not given.
    """

    model: onnx.ModelProto
    wanted: Collection[str] | None = None
    cotangents: Collection[str] | None = None
    gradients: dict[str, str | None] = field(default_factory=dict, init=False)
    buffers: dict[str, str] = field(default_factory=dict, init=False)
    weighted: list[str] = field(default_factory=list, init=False)
    text: str = field(default="", init=False)

    SEED = np.array(2026, np.int64)
    _seed_value = None

    def __post_init__(self) -> None:
        """Import the model, differentiate it and load the result."""
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "model.onnx"), Path(folder, "vjp.onnx")
            source.write_bytes(self.model.SerializeToString())
            module = load(source, {})
            before = "verify-onnx,infer-shapes,reduce-bags{scatter=true},unpack-sequences"
            self._run(before, module)
            with module.context, ir.Location.unknown():
                self._differentiate(module)
            self._run("dce", module)
            self.text = str(module)
            self._check_kernels(module)
            export_model(module, target, ParameterSource(source))
            nodes = onnx.load(target).graph.node
            self.ops = [node.op_type for node in nodes if not node.name.startswith("loss.")]
            self.session = session_of(str(target))

    def _check_kernels(self, module: ir.Module) -> None:
        """Fail where what is made for the model has no CUDA kernels, but what it has itself."""
        own = {node.op_type for node in self.model.graph.node}
        own |= _EACH_OTHERS if own & _EACH_OTHERS else set()
        left = count_missing_kernels(module).keys() - own
        assert not left, f"{sorted(left)} have no CUDA kernels"

    def _run(self, passes: str, module: ir.Module) -> None:
        Pipeline(parse_pipeline(passes, module.context)).run(module)

    def _differentiate(self, module: ir.Module) -> None:
        marker = Marker()
        self._marker, self._opset = marker, opsets(module)[""]
        signature = self._signature = Signature(module, marker)
        buffers: dict[Any, Any] = {}
        inputs = {signature.name_of(v): v for v in signature.arguments}
        names = [n for n, v in inputs.items() if self._is_wanted(v, n)]
        with ir.InsertionPoint(signature.block):
            loss = self._loss()
            training = Training(self._seed, buffers.__setitem__)
            taped = tape(signature.block, opsets(module), marker, training)
            reverse = Reverse(taped, {inputs[n] for n in names}, marker, self._opset)
            reverse.run(
                loss, marker.builder("loss.grad", self._opset, "backward").scalar(1.0, loss)
            )
            self._give({n: reverse.gradient(inputs[n]) for n in names}, buffers)

    def _is_wanted(self, value: Any, name: str) -> bool:
        if self.wanted is not None:
            return name in self.wanted
        return is_float(value) and not self._signature.is_parameter(value)

    def _loss(self) -> Any:
        """Return the sum of all outputs times their cotangents; only its gradient is kept."""
        make = self._marker.builder("loss", self._opset, "forward")
        # The tape replaces ops; what reads their results is told, a variable of ours is not.
        held = {n: make.unary("Identity", v) for n, v in self._signature.outputs.items()}
        self._outputs = held
        chosen = [n for n, v in held.items() if is_float(v) and self._is_chosen(n)]
        assert chosen, f"no floating point output among {list(held)}"
        terms = [self._term(make, name, held[name]) for name in chosen]
        total = terms[0]
        for term in terms[1:]:
            total = make.add(total, make.cast(term, element_type(total)))
        return total

    def _is_chosen(self, output: str) -> bool:
        return self.cotangents is None or output in self.cotangents

    def _term(self, make: Any, name: str, value: Any) -> Any:
        weight = self._signature.argument(f"d_{name}", value.type)
        self.weighted.append(name)
        product, rank = make.mul(value, weight), len(ir.RankedTensorType(value.type).shape)
        return make.reduce("ReduceSum", product, range(rank), keepdims=False) if rank else product

    def _seed(self) -> Any:
        if self._seed_value is None:
            kind = tensor_type([], ir.IntegerType.get_signless(64))
            self._seed_value = self._signature.argument("seed", kind)
        return self._seed_value

    def _give(self, gradients: Mapping[str, Any], buffers: Mapping[Any, Any]) -> None:
        """Return outputs, gradients and new buffers, in this order."""
        signature = self._signature
        for name, value in self._outputs.items():
            signature.add_result(value, name)
        self.gradients = {n: None if g is None else f"g_{n}" for n, g in gradients.items()}
        for name, value in gradients.items():
            if value is not None:
                signature.add_result(_own(self._marker, self._opset, value), f"g_{name}")
        for old, new in buffers.items():
            name = signature.name_of(old)
            self.buffers[name] = f"b_{name}"
            signature.add_result(new, f"b_{name}")
        signature.finish()

    def feeds(
        self, inputs: Mapping[str, Array], cotangents: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return what the session is fed; an input that became unused is left out."""
        held = {**inputs, **{f"d_{n}": cotangents[n] for n in self.weighted}, "seed": self.SEED}
        return {i.name: held[i.name] for i in self.session.get_inputs()}

    def run(self, inputs: Mapping[str, Array], cotangents: Mapping[str, Array]) -> Run:
        """Return what the graph gives for inputs and one cotangent per output that has one."""
        names = [o.name for o in self.session.get_outputs()]
        got = dict(zip(names, self.session.run(None, self.feeds(inputs, cotangents)), strict=True))
        return Run(
            {n: got[n] for n in self._outputs},
            {n: None if g is None else got[g] for n, g in self.gradients.items()},
            {n: got[b] for n, b in self.buffers.items()},
        )


def _own(marker: Marker, opset: int, value: Any) -> Any:
    """Return a gradient as the result of an op: an argument may not be a result as it is."""
    make = marker.builder("gradient", opset, "backward")
    return make.unary("Identity", value) if isinstance(value.owner, ir.Block) else value
