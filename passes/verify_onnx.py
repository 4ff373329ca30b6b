"""`verify-onnx`: check every `onnx.*` operation against ONNX's schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.protos.attribute_checks import Uses, kind_problem, value_problem
from tensoropt.compiler.support.errors import did_you_mean
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    CONSTANT,
    NO_VALUE,
    UNBOUNDED,
    YIELD,
    Schema,
    attribute,
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


@dataclass(frozen=True)
class VerifyOnnxPass(Pass):
    """Checks operators, numbers of operands and results, and names, kinds and values of attributes.

    The schemas are the versions in `topt.opset`, from the standard and, for its own domains, from
    ONNX Runtime. Refuses the first operation that does not match its schema; changes nothing.
    """

    name: ClassVar[str] = "verify-onnx"
    summary: ClassVar[str] = "Check every onnx operation against ONNX's schemas."

    def run(self, module: ir.Module) -> None:
        versions = opsets(module)
        for op in walk(function(module)):
            if op.name == CONSTANT:
                if "value" not in op.attributes:
                    raise self.fail(op, "has no attribute 'value', expected a dense literal")
            elif is_onnx(op) and op.name not in (NO_VALUE, YIELD):
                self._check(op, self._schema(op, versions))

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
        problem = kind_problem(found, kinds) or value_problem(_uses(op))
        if problem is not None:
            raise self.fail(op, problem)

    def _count(self, op: ir.Operation, what: str, count: int, bounds: tuple[int, int]) -> None:
        least, most = bounds
        if least <= count <= most:
            return
        wanted = f"{least}" if least == most else f"{least} to {most}"
        wanted = f"at least {least}" if most >= UNBOUNDED else wanted
        raise self.fail(op, f"has a wrong number of {what}, expected {wanted}, got: {count}")


def _uses(op: ir.Operation) -> Uses:
    """Return the properties of ``op`` that the checks of attribute values need."""
    values = {name: attribute(op, name) for name in attributes(op)}
    ranks = [
        value.type.rank if isinstance(value.type, ir.RankedTensorType) else None
        for value in op.operands
    ]
    domain, op_type = split_name(op.name)
    return Uses(f"{domain}.{op_type}" if domain else op_type, values, ranks, len(op.results))


_CLASSES = (
    (ir.IntegerAttr, "INT"),
    (ir.FloatAttr, "FLOAT"),
    (ir.StringAttr, "STRING"),
    (ir.DenseI64ArrayAttr, "INTS"),
    (ir.DenseF32ArrayAttr, "FLOATS"),
    (ir.TypeAttr, "TYPE_PROTO"),
)


def _kind(value: ir.Attribute) -> str:
    """Return the kind of ONNX attribute that an MLIR attribute represents."""
    for cls, kind in _CLASSES:
        if isinstance(value, cls):
            return kind
    if isinstance(value, ir.ArrayAttr):
        items = list(value)
        return f"{_kind(items[0])}S" if items else "EMPTY"
    return "TENSOR" if str(value).startswith("dense<") else str(value)
