"""Construction of the training step: forward graph, loss, gradients and update in one function.

`@main` becomes (inputs, labels, learning rate, ..., parameters, moments) -> (loss, new parameters,
new moments). State results of one step are arguments of the next: `topt.state` marks the arguments
and `topt.updates` the results. Ops of phase "update" read only the gradients (`topt.gradient_of`)
from other phases, so the runtime can run them separately, in place, or not at all. With several
micro-batches, gradients are sums that may be partial over the ranks until the update (decision 57).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.gradients.kernel_attention import AttentionKernels
from tensoropt.compiler.training.gradients.registry import TRAINING_OPSET, Training
from tensoropt.compiler.training.losses import build_loss
from tensoropt.compiler.training.marks import Marker, Marking, number_of
from tensoropt.compiler.training.precision import compute_in
from tensoropt.compiler.training.reverse import Reverse, tape
from tensoropt.compiler.training.signature import Signature
from tensoropt.compiler.training.spec import TrainingSpec
from tensoropt.compiler.training.update import Update
from tensoropt.dialects import onnx
from tensoropt.dialects.build import element_type, is_float, tensor_type
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["build_training_step"]


def build_training_step(
    module: ir.Module, spec: TrainingSpec, kernels: AttentionKernels | None = None
) -> None:
    """Turn the forward `@main` of a prepared ``module`` into the training step of ``spec``.

    Attention operators with one of the ``kernels`` become `tensoropt.Attention`. Linear in the
    operations. Raises UserError for a symbolic dimension, an opset before ``TRAINING_OPSET``, a
    loss that does not exist, an op without a gradient, and if the loss depends on no parameter.
    """
    _check(module)
    with module.context, ir.Location.unknown():
        _Step(module, spec, kernels).build()


def _check(module: ir.Module) -> None:
    opset = onnx.opsets(module)[""]
    if opset < TRAINING_OPSET:
        raise UserError(
            f"training needs a model of opset {TRAINING_OPSET} or later, got: {opset}; "
            "onnx.version_converter converts it"
        )
    block = onnx.function(module).regions[0].blocks[0]
    for op in block:
        for value in op.operation.results:
            _check_static(value.type, f"node '{onnx.node_name(op.operation)}'")
    for argument in block.arguments:
        _check_static(argument.type, "an input")


def _check_static(kind: ir.Type, where: str) -> None:
    if isinstance(kind, ir.ShapedType) and not kind.has_static_shape:
        raise UserError(
            f"training needs static shapes, got: {kind} of {where}; "
            "expected --dim NAME=SIZE for every symbolic dimension"
        )


class _Step:
    def __init__(
        self, module: ir.Module, spec: TrainingSpec, kernels: AttentionKernels | None
    ) -> None:
        self.module, self.spec, self.kernels = module, spec, kernels
        self.marker = Marker()
        self.versions = onnx.opsets(module)
        self.opset = self.versions[""]
        self.signature = Signature(module, self.marker)
        self.buffers: dict[ir.Value, ir.Value] = {}

    def build(self) -> None:
        parameters = self._parameters()
        self._narrow()
        with ir.InsertionPoint(self.signature.block):
            make = self._builder("loss", "forward")
            loss, weight = build_loss(make, self.signature, self.spec.loss)
            training = Training(self._seed, self.buffers.__setitem__, kernels=self.kernels)
            taped = tape(self.signature.block, self.versions, self.marker, training)
            self._note_scored()
            parameters = [w for w in parameters if w not in self.buffers]
            reverse = Reverse(taped, set(parameters), self.marker, self.opset)
            reverse.run(loss, self._seed_gradient(loss))
            self.signature.add_result(loss, self.signature.free_name("loss"))
            if weight is not None:
                name = self.signature.free_name("loss.weight")
                self.signature.add_result(weight, name)
            finished = len(self.marker.made)
            gradients = {w: g for w in parameters if (g := reverse.gradient(w)) is not None}
            if not gradients:
                fixed = len(self._weights()) - len(parameters)
                raise UserError(
                    "the loss depends on no parameter, expected one to train; the model has "
                    f"{len(parameters)} to train and {fixed} that are fixed or frozen"
                )
            reduced = {w: self._gradient(w, g) for w, g in gradients.items()}
            for op in self.marker.made[finished:]:
                _move_up(op)
            Update(self.signature, self.marker, self.spec, reduced).build()
            for old, new in self.buffers.items():
                self.signature.set_state(old, "buffer")
                self.signature.replace(old, new, self.signature.number_of(old))
            self.signature.finish()
            if self.spec.micro_batches > 1:
                keys.MICRO_BATCHES.set(self.signature.function.attributes, self.spec.micro_batches)
            if self.spec.recompute != "none":
                keys.RECOMPUTE.set(self.signature.function.attributes, self.spec.recompute)

    def _builder(self, name: str, phase: str, follows: int | None = None) -> Marking:
        return self.marker.builder(name, self.opset, phase, follows)

    def _weights(self) -> list[ir.Value]:
        return [v for v in self.signature.arguments if self.signature.is_parameter(v)]

    def _narrow(self) -> None:
        """Make the model compute in narrow types; the loss output keeps its type, as labels do."""
        if self.spec.precision == "float32":
            return
        outputs, name = self.signature.outputs, self.spec.loss.output
        elements = {key: element_type(value) for key, value in outputs.items() if key == name}
        block, precision = self.signature.block, self.spec.precision
        compute_in(block, self._weights(), self.marker, self.opset, precision)
        with ir.InsertionPoint(block):
            for key, element in elements.items():
                outputs[key] = self._builder("loss", "forward").cast(outputs[key], element)

    def _note_scored(self) -> None:
        """Note the attention operators without a kernel; the pass has noted others."""
        attributes = self.module.operation.attributes
        scored = dict(keys.SCORED.get(attributes, {}))
        for reason, names in () if self.kernels is None else self.kernels.refused.items():
            scored[reason] = [*scored.get(reason, []), *names]
        if scored:
            keys.SCORED.set(attributes, scored)

    def _parameters(self) -> list[ir.Value]:
        """Return the weights to train: neither marked `topt.fixed` nor frozen."""
        signature, patterns = self.signature, self.spec.freeze
        return [
            v
            for v in self._weights()
            if not keys.FIXED.on(signature.arguments[v])
            and is_float(v)
            and not any(fnmatch.fnmatchcase(signature.name_of(v), pattern) for pattern in patterns)
        ]

    def _seed(self) -> ir.Value:
        return self.signature.hyper("seed", tensor_type([], ir.IntegerType.get_signless(64)))

    def _seed_gradient(self, loss: ir.Value) -> ir.Value:
        """Return the gradient of the loss: of the mean over micro-batches, times the loss scale."""
        make = self._builder("loss.grad", "backward")
        share = 1.0 / self.spec.micro_batches
        if not self.spec.scales_loss:
            return make.scalar(share, loss)
        scale = self.signature.hyper("loss_scale")
        scale = make.scaled(scale, share) if share != 1.0 else make.unary("Identity", scale)
        return make.cast(scale, element_type(loss))

    def _gradient(self, w: ir.Value, g: ir.Value) -> ir.Value:
        """Return the gradient for the update: without frozen rows, added to earlier
        micro-batches."""
        name = self.signature.name_of(w)
        make = self._builder(f"{name}.grad", "backward")
        for own, rows in self.spec.freeze_rows:
            if own == name:
                g = make.mul(g, make.constant(_row_factors(g, rows)))
        if self.spec.micro_batches == 1:
            return self._mark_gradient(make.unary("Identity", g), name)
        sum_ = self.signature.state(w, "gradient", w.type)
        gradient = self._mark_gradient(make.add(sum_, g), name)
        self.signature.mark(
            sum_, keys.FOLLOWS.item(number_of(ir.OpResult(gradient).owner.operation))
        )
        return gradient

    @staticmethod
    def _mark_gradient(gradient: ir.Value, name: str) -> ir.Value:
        keys.GRADIENT_OF.set(ir.OpResult(gradient).owner.attributes, name)
        return gradient


def _row_factors(g: ir.Value, rows: Sequence[int]) -> npt.NDArray[np.generic]:
    """Return a factor for each row of a gradient: 0 for ``rows``, 1 for all other rows."""
    kind = ir.RankedTensorType(g.type)
    element = element_of(str(kind.element_type))
    assert element is not None
    factors = np.ones((kind.shape[0], *[1] * (kind.rank - 1)), element.dtype)
    factors[list(rows)] = 0
    return factors


def _move_up(op: ir.Operation) -> None:
    """Move ``op`` right after its last operand's op, so a gradient is reduced immediately.

    Until it is reduced, every rank holds its full-size contribution.
    """
    latest = None
    for value in op.operands:
        made = onnx.owner(value)
        if made is not None and (latest is None or latest.is_before_in_block(made)):
            latest = made
    if latest is not None:
        op.move_after(latest)
