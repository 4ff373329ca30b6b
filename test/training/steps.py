"""A whole training step as one ONNX model on stock ONNX Runtime, its state fed back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from tensoropt.compiler.exporter.rank import export_model
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.pipeline.driver import load, run_phase
from tensoropt.compiler.training.spec import Optimizer, TrainingSpec, parse_loss
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import function
from tensoropt.passes.add_rules import AddRulesPass
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.passes.pipeline import Pipeline
from tensoropt.passes.recompute import RecomputePass

Array = npt.NDArray[Any]
Node = tuple[str, Sequence[str], str, Mapping[str, Any]]


def model_of(
    nodes: Sequence[Node],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    weights: Mapping[str, Array],
) -> onnx.ModelProto:
    """Return a model; nodes are (operator, inputs, result, attributes), named after the result."""
    made = [helper.make_node(op, given, [y], name=y, **held) for op, given, y, held in nodes]
    graph = helper.make_graph(
        made,
        "model",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def spec_of(loss: str, optimizer: str = "sgd", **held: Any) -> TrainingSpec:
    """Return a spec; what is an option of the optimizer goes there."""
    of_optimizer = {k: held.pop(k) for k in list(held) if k in Optimizer.__dataclass_fields__}
    return TrainingSpec(parse_loss(loss), Optimizer(optimizer, **of_optimizer), **held)


def build(
    path: Path, spec: TrainingSpec, *, fuses: bool = False, architectures: str = ""
) -> ir.Module:
    """Return the module of the step of the model in ``path``.

    ``fuses`` is for processors, or for GPUs of all ``architectures``.
    """
    module = load(path, {}, training=True)
    run_phase(module, "prepare", training=True)
    step = BuildTrainingStepPass.from_spec(spec)
    step = replace(step, fuse_attention=fuses, architectures=architectures)
    passes = [step, AddRulesPass()]
    Pipeline([*passes, RecomputePass(spec.recompute)]).run(module)
    return module


def held_by(module: ir.Module, key: str) -> list[dict[str, Any]]:
    """Return what the arguments (``arg_attrs``) or results carry, by name without ``topt.``."""
    return [
        {item.name.removeprefix("topt."): getattr(item.attr, "value", None) for item in own}
        for own in function(module).attributes[key]
    ]


@dataclass
class Step:
    """A step that runs; ``state`` holds what it gives to the next, by name of the argument."""

    model: onnx.ModelProto
    spec: TrainingSpec
    folder: Path
    library: Path | None = None
    fuses: bool = False
    architectures: str = ""
    state: dict[str, Array] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        source, target = self.folder / "model.onnx", self.folder / "step.onnx"
        source.write_bytes(self.model.SerializeToString())
        options = {"fuses": self.fuses, "architectures": self.architectures}
        self.module = build(source, self.spec, **options)
        self.updates = {r["updates"]: r["name"] for r in self._results() if "updates" in r}
        self._export(target, source)
        weights = {t.name: numpy_helper.to_array(t) for t in self.model.graph.initializer}
        self.session = self._session(target)
        shapes = {a.name: a.shape for a in self.session.get_inputs()}
        for own in held_by(self.module, "arg_attrs"):
            if "state" in own:
                zeros = np.zeros(shapes[own["name"]], np.float32)
                self.state[own["name"]] = weights.get(own["name"], zeros)

    def _results(self) -> list[dict[str, Any]]:
        return held_by(self.module, "res_attrs")

    def _export(self, target: Path, source: Path) -> None:
        export_model(self.module, target, ParameterSource(source, training=True))
        proto = onnx.load(target)
        # Gradients too, which accumulators are fed with.
        names = {f"{n.name}_out" for n in proto.graph.node}
        self.sums = {
            own["name"]: f"{own['of']}.grad.Add_out"
            for own in held_by(self.module, "arg_attrs")
            if own.get("state") == "gradient"
        }
        for name in sorted({*self.sums.values()} & names):
            proto.graph.output.add(name=name)
        onnx.save(proto, target)

    def _session(self, target: Path) -> ort.InferenceSession:
        options = self._options()
        if self.library is not None:
            options.register_custom_ops_library(str(self.library))
        return ort.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])

    def _options(self) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        return options

    def run(self, feeds: Mapping[str, Array], **hyper: float) -> dict[str, Array]:
        """Return all that one run gives; ``state`` stays."""
        scalars = {name: np.float32(value) for name, value in hyper.items()}
        names = [result.name for result in self.session.get_outputs()]
        held = {n: np.asarray(x) for n, x in {**self.state, **feeds, **scalars}.items()}
        given = {a.name: held[a.name] for a in self.session.get_inputs()}
        return dict(zip(names, self.session.run(names, given), strict=True))

    def whole(self, feeds: Mapping[str, Array], **hyper: float) -> dict[str, Array]:
        """Return all that a step of one batch gives, with its mean loss; ``state`` stays."""
        weight = self.run(feeds, loss_weight=1.0, **hyper).get("loss.weight", np.float32(1))
        results = self.run(feeds, loss_weight=float(weight) or 1.0, **hyper)
        return {**results, "loss": results["loss"] / weight}

    def step(self, *batches: Mapping[str, Array], **hyper: float) -> list[float]:
        """Run the micro-batches of one step; return the loss of each.

        The weight of all of them, which the update takes, is known only after the last.
        """
        for sum_ in self.sums:
            self.state[sum_] = np.zeros_like(self.state[sum_])
        runs = []
        for feeds in batches:
            last = dict(self.state)
            runs.append(self.run(feeds, loss_weight=1.0, **hyper))
            self.state.update({sum_: runs[-1][name] for sum_, name in self.sums.items()})
        weights = [float(run.get("loss.weight", 1.0)) for run in runs]
        self.state = last
        got = self.run(batches[-1], loss_weight=float(np.mean(weights)) or 1.0, **hyper)
        self.state.update({old: got[new] for old, new in self.updates.items()})
        return [float(run["loss"]) / (w or np.nan) for run, w in zip(runs, weights, strict=True)]
