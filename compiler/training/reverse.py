"""Reverse-mode differentiation of `@main`: the tape of its forward ops, walked backwards.

Griewank and Walther, Evaluating Derivatives, ch. 3: the gradient of a value is the sum of the
contributions of its uses. Each op maps the gradients of its results to gradients of its operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tensoropt.compiler.sharding.rule.describe import describe
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.gradients.registry import (
    Backward,
    FormMaker,
    ForwardOp,
    Gradients,
    Training,
    decomposition_of,
    forward_form_of,
    gradient_of,
)
from tensoropt.compiler.training.marks import Marker, Marking, follow, number_of, set_gradients
from tensoropt.dialects import onnx
from tensoropt.dialects.build import is_float, shape_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["Reverse", "Taped", "tape"]


@dataclass
class Taped:
    """A forward op as the backward pass needs it.

    The backward ops follow ``leader``. ``results`` is ``None`` at unused results. ``saved``
    contains the values that the training form of the op saved for its gradient.
    """

    info: OpInfo
    name: str
    leader: ir.Operation
    op: ir.Operation | None
    operands: list[ir.Value]
    results: list[ir.Value | None]
    saved: dict[str, ir.Value] = field(default_factory=dict)


def tape(
    block: ir.Block, versions: dict[str, int], marker: Marker, training: Training
) -> list[Taped]:
    """Mark and list the ops of ``block``, rewriting each op to its training form if it has one.

    An op is decomposed or rewritten even if no gradient passes through it: normalization and
    dropout behave differently in training. Linear in the operations.
    """
    return _Tape(block, versions, marker, training).run()


class _Tape:
    def __init__(
        self, block: ir.Block, versions: dict[str, int], marker: Marker, training: Training
    ) -> None:
        self.block, self.versions = block, versions
        self.marker, self.training = marker, training
        self.taped: list[Taped] = []

    def run(self) -> list[Taped]:
        for op in list(self.block):
            self._visit(op.operation)
        return self.taped

    def _visit(self, op: ir.Operation) -> None:
        if op.name in ("func.return", onnx.NO_VALUE):
            return
        name = op.name.removeprefix("onnx.")
        decompose, form = decomposition_of(name), forward_form_of(name)
        if decompose is not None:
            for new in self._build(op, self._forward(op, None), decompose):
                self._visit(new)
        elif form is not None:
            self._apply_form(op, form)
        else:
            if not keys.ID.on(op.attributes):
                self.marker.adopt(op, "forward")
            info = describe(op, self.versions)
            # Values that the branches of an If read can contribute to the loss too.
            operands = onnx.read_values(op)
            self.taped.append(Taped(info, _label(op), op, op, operands, [*op.results]))

    def _forward(self, op: ir.Operation, follows: int | None) -> ForwardOp:
        make = self.marker.builder(_label(op), self.versions[""], "forward", follows)
        return ForwardOp(op, describe(op, self.versions), list(op.operands), make, self.training)

    def _apply_form(self, op: ir.Operation, maker: FormMaker) -> None:
        operands, info, name = list(op.operands), describe(op, self.versions), _label(op)
        forward = self._forward(op, None)
        results: list[ir.Value | None] = []
        made = self._build(op, forward, maker, results)
        if not made:
            return
        leader = forward.leader
        if leader is None:
            leader = next((new for new in made if new.name != onnx.CONSTANT), made[0])
        for new in made:
            if new != leader:
                follow(new, leader)
        self.taped.append(Taped(info, name, leader, None, operands, results, forward.saved))

    def _build(
        self,
        op: ir.Operation,
        forward: ForwardOp,
        maker: FormMaker,
        results: list[ir.Value | None] | None = None,
    ) -> list[ir.Operation]:
        """Build the replacement of ``op`` before it, erase ``op`` and return the new ops."""
        start = len(self.marker.made)
        with ir.InsertionPoint(op):
            values = list(maker(forward))
        for old, new in zip(op.results, values, strict=True):
            if new is not None:
                old.replace_all_uses_with(new)
        op.erase()
        if results is not None:
            results.extend(values)
        return self.marker.made[start:]


def _label(op: ir.Operation) -> str:
    return onnx.node_name(op) or onnx.split_name(op.name)[1]


class Reverse:
    """The backward pass over a tape; ops are built at the current insertion point.

    Gradients are computed for the arguments ``wanted``.
    """

    def __init__(
        self,
        taped: Sequence[Taped],
        wanted: set[ir.Value],
        marker: Marker,
        opset: int,
    ) -> None:
        self.taped, self.marker, self.opset = taped, marker, opset
        self.active = _active_values(taped, wanted)
        self.parts: dict[ir.Value, list[ir.Value]] = {}
        self.sums: dict[ir.Value, ir.Value] = {}
        self.fours: dict[ir.Operation, list[int]] = {}

    def run(self, loss: ir.Value, seed: ir.Value) -> None:
        """Compute the gradients of ``loss`` from its own, ``seed``. Linear in the operations.

        Raises UserError, with the name of the node, for an op that has no gradient and is between
        an active argument and the loss.
        """
        self.parts[loss] = [seed]
        for taped in reversed(self.taped):
            self._differentiate(taped)

    def gradient(self, value: ir.Value) -> ir.Value | None:
        """Return the gradient of a value, or ``None`` if the loss does not depend on it."""
        if value not in self.sums and value in self.parts:
            first, *others = self.parts[value]
            op = onnx.owner(value)
            name = "" if op is None else _label(op)
            make = self.marker.builder(f"{name}.grad", self.opset, "backward")
            # The first contribution comes from the last use, which is often the end of a residual
            # connection; it is added last because the others may share partial sums.
            if len(others) > 1:
                others = [make.onnx("Sum", others, value.type)]
            if others:
                first = make.onnx("Sum", [first, *others], value.type)
            self.sums[value] = first
        return self.sums.get(value)

    def _differentiate(self, taped: Taped) -> None:
        # If two results are one value, only the first has the gradient. Nothing depends on a tensor
        # without elements, so no rule is passed a gradient of one.
        gradients = [
            None if r is None or r in taped.results[:at] or _is_empty(r) else self.gradient(r)
            for at, r in enumerate(taped.results)
        ]
        wanted = [v in self.active and not _is_empty(v) for v in taped.operands]
        if not any(wanted) or all(dy is None for dy in gradients):
            return
        rule = gradient_of(taped.info.name)
        if rule is None:
            raise UserError(
                f"node '{taped.name}' ({taped.info.name}) is between a parameter and the loss "
                "but has no gradient; expected an operator that can be differentiated "
                "(docs/training.md lists them), or its parameters frozen"
            )
        make = self.marker.builder(
            f"{taped.name}.grad", self.opset, "backward", number_of(taped.leader)
        )
        operands, results = taped.operands, taped.results
        given = Backward(taped.info, make, operands, results, gradients, wanted, taped.saved)
        found = rule(given)
        given.check_requested()
        found = _replace_passed_on(make, gradients, found)
        for operand, want, part in zip(operands, wanted, found, strict=True):
            if want and part is not None:
                assert part.type == operand.type, (
                    f"{taped.info.name}: gradient of type {part.type} for {operand.type}"
                )
                self.parts.setdefault(operand, []).append(part)
        fours = self.fours.setdefault(taped.leader, [])
        for result, dy in zip(results, gradients, strict=True):
            if result is not None and dy is not None and onnx.owner(dy) is not None:
                fours += [*_reference(result), *_reference(dy)]
        set_gradients(taped.leader, fours)


def _replace_passed_on(
    make: Marking, gradients: Gradients, found: Gradients
) -> list[ir.Value | None]:
    """Return the gradients from a rule, with an Identity in place of each one it merely passed on.

    The copy follows the op, so its placement is independent of other readers of the op's gradient.
    """
    own: dict[ir.Value, ir.Value] = {}
    given = {dy for dy in gradients if dy is not None}
    for part in found:
        if part is not None and part in given and part not in own:
            own[part] = make.unary("Identity", part)
    return [own.get(part, part) if part is not None else None for part in found]


def _active_values(taped: Sequence[Taped], wanted: set[ir.Value]) -> set[ir.Value]:
    """Return every value that depends on one of ``wanted`` other than through integers.

    Intermediate values of a training form are excluded: only its own gradient reads them.
    """
    active = set(wanted)
    for op in taped:
        if any(operand in active for operand in op.operands):
            active.update(r for r in op.results if r is not None and _may_depend(r))
    return active


def _may_depend(value: ir.Value) -> bool:
    """Return whether a value can have a gradient, or contain such values, as a sequence can."""
    if isinstance(value.type, ir.RankedTensorType):
        return is_float(value)
    return not onnx.is_no_value(value)


def _is_empty(value: ir.Value) -> bool:
    """Return whether a value is a tensor without elements."""
    return isinstance(value.type, ir.RankedTensorType) and 0 in shape_of(value)


def _reference(value: ir.Value) -> tuple[int, int]:
    op = onnx.owner(value)
    assert op is not None, "the gradient of an argument is not the result of an op"
    return number_of(op), ir.OpResult(value).result_number
