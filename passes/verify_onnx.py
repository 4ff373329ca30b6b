"""`verify-onnx`: check every `onnx.*` operation against ONNX's schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.errors import did_you_mean
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    CONSTANT,
    NO_VALUE,
    YIELD,
    Schema,
    attributes,
    function,
    is_onnx,
    known_ops,
    opsets,
    region_names,
    schema,
    split_name,
    walk,
)
from tensoropt.passes.base import Pass

__all__ = ["VerifyOnnxPass"]

_UNBOUNDED = 2**31 - 1

# AttributeProto.AttributeType (onnx.proto) -> its name there.
_KINDS = {
    1: "FLOAT",
    2: "INT",
    3: "STRING",
    4: "TENSOR",
    5: "GRAPH",
    6: "FLOATS",
    7: "INTS",
    8: "STRINGS",
    9: "TENSORS",
    13: "TYPE_PROTO",
    14: "TYPE_PROTOS",
}


@dataclass(frozen=True)
class VerifyOnnxPass(Pass):
    """Checks operators, numbers of operands and results, and names and kinds of attributes.

    The schemas are those of the versions in `topt.opset`: the standard's, and ONNX Runtime's for
    its own domains. Refuses the first operation that does not follow its schema; changes nothing.
    """

    name: ClassVar[str] = "verify-onnx"
    summary: ClassVar[str] = "Check every onnx operation against ONNX's schemas."

    def run(self, module: ir.Module) -> None:
        versions = opsets(module)
        for op in walk(function(module)):
            if op.name == CONSTANT:
                self._constant(op)
            elif is_onnx(op) and op.name not in (NO_VALUE, YIELD):
                self._check(op, self._schema(op, versions))

    def _constant(self, op: ir.Operation) -> None:
        if "value" not in op.attributes:
            raise self.fail(op, "has no attribute 'value', expected a dense literal")

    def _schema(self, op: ir.Operation, versions: dict[str, int]) -> Schema:
        domain, op_type = split_name(op.name)
        if domain not in versions:
            known = ", ".join(name or "ai.onnx" for name in sorted(versions))
            raise self.fail(
                op, f"is of a domain without a version in topt.opset, expected one of: {known}"
            )
        found = schema(domain, op_type, versions[domain])
        if found is None:
            near = did_you_mean(op_type, known_ops(domain))
            raise self.fail(
                op, f"is unknown in version {versions[domain]} of '{domain or 'ai.onnx'}'{near}"
            )
        return found

    def _check(self, op: ir.Operation, found: Schema) -> None:
        self._count(op, "operands", len(op.operands), (found.min_inputs, found.max_inputs))
        self._count(op, "results", len(op.results), (found.min_outputs, found.max_outputs))
        regions = region_names(op)
        if len(regions) != len(op.regions):
            raise self.fail(
                op,
                f"has a wrong topt.regions, expected {len(op.regions)} names, got: {len(regions)}",
            )
        kinds = {name: _kind(op.attributes[name]) for name in attributes(op)}
        kinds.update(dict.fromkeys(regions, "GRAPH"))
        for name, kind in kinds.items():
            self._attribute(op, found, name, kind)
        for name in sorted(found.required - kinds.keys()):
            raise self.fail(op, f"has no attribute '{name}', which ONNX requires")

    def _count(self, op: ir.Operation, what: str, count: int, bounds: tuple[int, int]) -> None:
        least, most = bounds
        if least <= count <= most:
            return
        wanted = f"{least}" if least == most else f"{least} to {most}"
        wanted = f"at least {least}" if most >= _UNBOUNDED else wanted
        raise self.fail(op, f"has a wrong number of {what}, expected {wanted}, got: {count}")

    def _attribute(self, op: ir.Operation, found: Schema, name: str, kind: str) -> None:
        if name not in found.attributes:
            near = did_you_mean(name, found.attributes)
            raise self.fail(op, f"has an unknown attribute '{name}'{near}")
        wanted = _KINDS.get(found.attributes[name], "a sparse tensor")
        # An empty list does not say what it is a list of.
        if kind != wanted and not (kind == "EMPTY" and wanted in ("STRINGS", "TENSORS")):
            raise self.fail(
                op, f"has a wrong kind of attribute '{name}', expected {wanted}, got: {kind}"
            )


_CLASSES = (
    (ir.IntegerAttr, "INT"),
    (ir.FloatAttr, "FLOAT"),
    (ir.StringAttr, "STRING"),
    (ir.DenseI64ArrayAttr, "INTS"),
    (ir.DenseF32ArrayAttr, "FLOATS"),
    (ir.TypeAttr, "TYPE_PROTO"),
)


def _kind(value: ir.Attribute) -> str:
    """Return the kind of ONNX attribute that an MLIR attribute stands for."""
    for cls, kind in _CLASSES:
        if isinstance(value, cls):
            return kind
    if isinstance(value, ir.ArrayAttr):
        items = list(value)
        return f"{_kind(items[0])}S" if items else "EMPTY"
    return "TENSOR" if str(value).startswith("dense<") else str(value)
