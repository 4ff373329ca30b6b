"""Building the training step: forward graph, loss, gradients and the update, in one function.

`@main` becomes (inputs, labels, learning rate, ..., parameters, moments) -> (loss, new parameters,
new moments). What leaves a step goes into the next one: `topt.state` marks such arguments and
`topt.updates` the results. The ops of phase "update" read nothing of the other phases but the
gradients (`topt.gradient_of`), so that the runtime can run them apart, in place, or not at all.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from tensoropt.compiler.errors import UserError
from tensoropt.compiler.training.gradients.registry import TRAINING_OPSET, Training
from tensoropt.compiler.training.losses import build_loss
from tensoropt.compiler.training.marks import Marker, Marking
from tensoropt.compiler.training.optimizers import MOMENTS, Hyper, update
from tensoropt.compiler.training.reverse import Reverse, is_float, tape
from tensoropt.compiler.training.signature import Signature
from tensoropt.compiler.training.spec import TrainingSpec
from tensoropt.dialects import onnx
from tensoropt.dialects.build import int_attr, tensor_type
from tensoropt.dialects.mlir import ir

__all__ = ["build_training_step"]


def build_training_step(module: ir.Module, spec: TrainingSpec) -> None:
    """Make the forward `@main` of a prepared ``module`` the training step of ``spec``.

    Linear in the operations. Raises UserError for a symbolic dimension, an opset before
    ``TRAINING_OPSET``, a loss that is not there, an op without a gradient, and when the loss
    depends on no parameter.
    """
    _check(module)
    with module.context, ir.Location.unknown():
        _Step(module, spec).build()


def _check(module: ir.Module) -> None:
    opset = onnx.opsets(module)[""]
    if opset < TRAINING_OPSET:
        raise UserError(
            f"training needs a model of opset {TRAINING_OPSET} or later, got: {opset}; "
            "onnx.version_converter converts it"
        )
    for op in onnx.function(module).regions[0].blocks[0]:
        for value in op.operation.results:
            kind = value.type
            if isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape:
                raise UserError(
                    f"training needs static shapes, got: {kind} of node "
                    f"'{onnx.node_name(op.operation)}'; expected --dim NAME=SIZE for every "
                    "symbolic dimension"
                )


class _Step:
    def __init__(self, module: ir.Module, spec: TrainingSpec) -> None:
        self.module, self.spec = module, spec
        self.marker = Marker()
        self.versions = onnx.opsets(module)
        self.opset = self.versions[""]
        self.signature = Signature(module, self.marker)
        self.inputs: dict[str, Any] = {}
        self.buffers: dict[Any, Any] = {}

    def build(self) -> None:
        parameters = self._parameters()
        with ir.InsertionPoint(self.signature.block):
            loss = build_loss(self._make("loss", "forward"), self.signature, self.spec.loss)
            training = Training(self._seed, self.buffers.__setitem__)
            taped = tape(self.signature.block, self.versions, self.marker, training)
            reverse = Reverse(taped, set(parameters), self.marker, self.opset)
            reverse.run(loss, self._seed_gradient(loss))
            self.signature.give(loss, self.signature.free_name("loss"))
            self._update({w: g for w in parameters if (g := reverse.gradient(w)) is not None})
            self._give_buffers()
            self.signature.finish()

    def _make(self, name: str, phase: str, follows: int | None = None) -> Marking:
        return self.marker.at(name, self.opset, phase, follows)

    def _parameters(self) -> list[Any]:
        """Return the weights that training may change."""
        held = self.signature
        floats = [v for v in held.arguments if held.is_parameter(v) and is_float(v)]
        patterns = self.spec.freeze
        return [
            v
            for v in floats
            if not any(fnmatch.fnmatchcase(held.name_of(v), pattern) for pattern in patterns)
        ]

    def _input(self, name: str, type_: ir.Type) -> Any:
        """Return a scalar that every step is given, such as the learning rate."""
        if name not in self.inputs:
            hyper = ir.StringAttr.get(name)
            unique = self.signature.free_name(name)
            self.inputs[name] = self.signature.argument(unique, type_, hyper=hyper)
        return self.inputs[name]

    def _scalar(self, name: str) -> Any:
        return self._input(name, tensor_type([], ir.F32Type.get()))

    def _seed(self) -> Any:
        return self._input("seed", tensor_type([], ir.IntegerType.get_signless(64)))

    def _seed_gradient(self, loss: Any) -> Any:
        make = self._make("loss.grad", "backward")
        return make.scalar(1.0 / self.spec.micro_batches, loss)

    def _update(self, gradients: Mapping[Any, Any]) -> None:
        if not gradients:
            raise UserError("the loss depends on no parameter, expected one to train")
        held = {w: self._gradient(w, g) for w, g in gradients.items()}
        hyper = self._hyper()
        for w, g in held.items():
            self._update_one(w, g, hyper)

    def _gradient(self, w: Any, g: Any) -> Any:
        """Return what the update reads, made by the op that all of the update follows."""
        name = self.signature.name_of(w)
        make = self._make(f"{name}.grad", "backward")
        held = make.unary("Identity", g)
        onnx_op = onnx.owner(held)
        assert onnx_op is not None
        onnx_op.attributes["topt.gradient_of"] = ir.StringAttr.get(name)
        return held

    def _hyper(self) -> Hyper:
        rate = self._scalar("learning_rate")
        optimizer = self.spec.optimizer
        if not optimizer.name.startswith("adam"):
            return Hyper(rate)
        make, step = self._make("adam", "update"), self._scalar("step")
        one = make.scalar(1.0, step)
        first, second = (
            make.sub(one, make.binary("Pow", make.scalar(beta, step), step))
            for beta in (optimizer.beta1, optimizer.beta2)
        )
        return Hyper(rate, first, second)

    def _update_one(self, w: Any, g: Any, hyper: Hyper) -> None:
        leader = onnx.owner(g)
        assert leader is not None
        number = int(leader.attributes["topt.id"].value)
        signature, name = self.signature, self.signature.name_of(w)
        make = self._make(f"{name}.update", "update", number)
        moments = {
            kind: signature.argument(
                signature.free_name(f"{name}.{kind}"),
                w.type,
                state=ir.StringAttr.get(kind),
                of=ir.StringAttr.get(name),
                follows=int_attr(number),
            )
            for kind in MOMENTS[self.spec.optimizer.name]
        }
        new, changed = update(make, self.spec.optimizer, hyper, w, g, moments)
        signature.mark(w, param=None, state=ir.StringAttr.get("parameter"))
        self._replace(w, new, signature.number_of(w))
        for kind, value in changed.items():
            self._replace(moments[kind], value, number)

    def _replace(self, old: Any, new: Any, follows: int) -> None:
        """Give ``new`` away as what ``old`` is in the next step."""
        name = self.signature.name_of(old)
        self.signature.give(
            new,
            self.signature.free_name(f"{name}.new"),
            updates=ir.StringAttr.get(name),
            follows=int_attr(follows),
        )

    def _give_buffers(self) -> None:
        for old, new in self.buffers.items():
            self.signature.mark(old, param=None, state=ir.StringAttr.get("buffer"))
            self._replace(old, new, self.signature.number_of(old))
