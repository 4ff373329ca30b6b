"""`simplify`: remove no-op operations and rewrite pools and gathers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensoropt.compiler.protos.op_names import OpNamer
from tensoropt.compiler.protos.types import static_shape
from tensoropt.compiler.shapes.refine import replace_value, update_signature
from tensoropt.compiler.shapes.reshapes import shape_literal
from tensoropt.compiler.sharding.rule.describe import describe
from tensoropt.compiler.sharding.rule.windows import ceil_adds, windows_of
from tensoropt.dialects.build import int_attr, ints_attr
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    attribute,
    constant_value,
    function,
    is_no_value,
    opsets,
    walk,
)
from tensoropt.passes.base import Pass
from tensoropt.passes.numbering import forget_removed

__all__ = ["SimplifyPass"]


@dataclass(frozen=True)
class SimplifyPass(Pass):
    """Removes `Identity`, `Dropout` outside training, and casts and transposes that do nothing.

    A `Dropout` is kept if its mask is used or its training mode may be on. With ``keep-dropout``
    every `Dropout` is kept, for building a training step.

    Pools are rewritten so that ONNX Runtime's shape inference, which refuses mismatches, counts
    windows like its kernels: `ceil_mode` is removed if it adds no window (a window that begins in
    the padding does not count), and SAME with dilations becomes explicit padding.

    A `Gather` of all elements in order becomes a `Reshape`, which can be split: exporters index a
    mask by the positions of all samples and tokens. A `CastLike` becomes a `Cast`: it reads a whole
    tensor for its type alone, which ranks would gather. Refuses nothing.
    """

    name: ClassVar[str] = "simplify"
    summary: ClassVar[str] = (
        "Remove operations that return their operand; write out the windows of pools."
    )

    keep_dropout: bool = False

    def run(self, module: ir.Module) -> None:
        versions = opsets(module)
        version = versions.get("", 1)
        namer = OpNamer(module)
        with module.context, ir.Location.unknown():
            for op in map(_with_type, list(walk(function(module)))):
                test = _RETURNS_OPERAND.get(op.name)
                if self.keep_dropout and op.name == "onnx.Dropout":
                    continue
                if test is not None and test(op, version):
                    replace_value(op.results[0], op.operands[0])
                    op.erase()
                elif op.name in _POOLS:
                    _write_out(op, versions)
                elif op.name == "onnx.Gather" and _picks_all_in_order(op, version):
                    _reshape(op, namer)
            update_signature(module)
            forget_removed(module)


def _with_type(op: ir.Operation) -> ir.Operation:
    """Return ``op``, or for a `CastLike` the `Cast` that replaces it, with the same name."""
    kind = op.results[0].type if op.name == "onnx.CastLike" else None
    if not isinstance(kind, ir.RankedTensorType | ir.UnrankedTensorType):
        return op
    element = element_of(str(kind.element_type))
    if element is None:
        return op
    attributes = {**dict(op.attributes.items()), "to": int_attr(element.number)}
    with ir.InsertionPoint(op):
        made = ir.Operation.create(
            "onnx.Cast",
            [kind],
            [op.operands[0]],
            attributes=attributes,
            loc=op.location,
        )
    op.results[0].replace_all_uses_with(made.result)
    op.erase()
    return made


_POOLS = ("onnx.AveragePool", "onnx.LpPool", "onnx.MaxPool")


def _write_out(op: ir.Operation, versions: dict[str, int]) -> None:
    """Change the attributes of a pool if shape inference would count its windows differently."""
    same = str(attribute(op, "auto_pad", "")).startswith("SAME")
    dilated = max(attribute(op, "dilations", ()), default=1) > 1
    ceil = bool(attribute(op, "ceil_mode", 0))
    if not ceil and not (same and dilated):
        return
    info = describe(op, versions)
    if not info.is_ranked:
        return
    if ceil and not ceil_adds(info):
        del op.attributes["ceil_mode"]
    windows = windows_of(info)
    pads = [*(window.begin for window in windows), *(window.end for window in windows)]
    if same and dilated and min(pads, default=-1) >= 0:
        del op.attributes["auto_pad"]
        op.attributes["pads"] = ints_attr(pads)


def _picks_all_in_order(op: ir.Operation, version: int) -> bool:
    source, result = (static_shape(value.type) for value in (op.operands[0], op.results[0]))
    picked = constant_value(op.operands[1])
    if source is None or result is None or picked is None or 0 in result or version < _RESHAPE:
        return False
    return np.array_equal(picked.ravel(), np.arange(source[attribute(op, "axis", 0)]))


_RESHAPE = 5  # first opset in which the shape is an operand


def _reshape(op: ir.Operation, namer: OpNamer) -> None:
    """Replace ``op`` by a `Reshape` to the same shape, with the same name."""
    kind = op.results[0].type
    shape = shape_literal(op, static_shape(kind) or (), namer)
    with ir.InsertionPoint(op):
        made = ir.Operation.create("onnx.Reshape", [kind], [op.operands[0], shape], loc=op.location)
    op.results[0].replace_all_uses_with(made.result)
    op.erase()


def _dropout(op: ir.Operation, version: int) -> bool:
    if len(op.results) > 1 and next(iter(op.results[1].uses), None) is not None:
        return False
    if version < 7:
        return bool(attribute(op, "is_test", 0))
    if version < 12 or len(op.operands) < 3 or is_no_value(op.operands[2]):
        return True
    training = constant_value(op.operands[2])
    return training is not None and not training.any()


def _transpose(op: ir.Operation, version: int) -> bool:
    order = attribute(op, "perm")
    return order is not None and list(order) == sorted(order)


_RETURNS_OPERAND: dict[str, Callable[[ir.Operation, int], bool]] = {
    "onnx.Identity": lambda op, version: True,
    "onnx.Dropout": _dropout,
    "onnx.Cast": lambda op, version: bool(op.operands[0].type == op.results[0].type),
    "onnx.Transpose": _transpose,
}
