"""For which operators and types ONNX Runtime has CUDA kernels; `cuda_kernels.txt` lists them.

A narrow type that an operator lacks is computed in float32, with casts around it: ONNX Runtime has
no bfloat16 kernels on CPUs either, so that a graph with such a node could not be loaded at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.dialects import onnx
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir

if TYPE_CHECKING:
    from onnx.defs import OpSchema

__all__ = ["binding", "computes_in", "has_kernel", "is_lacking", "on_cuda", "without_kernels"]

_TABLE = Path(__file__).with_name("cuda_kernels.txt")

_FUNCTIONS = """
    CastLike CenterCropPad GroupNormalization Mish NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
    Swish
"""
_TAKEN_APART = frozenset(_FUNCTIONS.split())
"""Functions of the standard without any kernel, which ONNX Runtime replaces by their nodes."""


@dataclass(frozen=True)
class _Kernel:
    """``last`` is None where later versions of the operator are not known to it."""

    first: int
    last: int | None
    types: Mapping[str, frozenset[str]]

    def fits(self, version: int, types: Mapping[str, str]) -> bool:
        """ONNX Runtime takes an open-ended kernel for the version that it begins with only."""
        if self.first != version and not (self.first < version <= (self.last or 0)):
            return False
        return all(types[p] in kind for p, kind in self.types.items() if p in types)


@cache
def _kernels() -> Mapping[str, Sequence[_Kernel]]:
    found: dict[str, list[_Kernel]] = defaultdict(list)
    for line in _TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        name, versions, *types = line.split()
        first, last = versions.split("-")
        pairs = (text.split("=") for text in types)
        held = {parameter: frozenset(names.split(",")) for parameter, names in pairs}
        found[name].append(_Kernel(int(first), int(last) if last else None, held))
    return found


def has_kernel(name: str, version: int, types: Mapping[str, str]) -> bool:
    """Say whether version ``version`` of an operator has a kernel for ``types``.

    ``name`` has its domain in front, if any; ``types`` are such as ``float16``, by the operator's
    type parameters. One that is not given may be anything.
    """
    return any(kernel.fits(version, types) for kernel in _kernels().get(name, ()))


def computes_in(name: str, opset: int, kind: str) -> bool:
    """Say whether an operator of ``opset`` has a kernel whose results are of type ``kind``.

    Of an operator that only ONNX Runtime knows that is its parameter T, or any.
    """
    schema = None if "." in name else _schema(name, opset)
    if schema is not None:
        return has_kernel(name, schema.since_version, {schema.outputs[0].type_str: kind})
    held_types = (kernel.types for kernel in _kernels().get(name, ()))
    return any(kind in types.get("T", {kind}) for types in held_types)


def on_cuda(name: str, opset: int) -> bool:
    """Say whether ONNX Runtime computes an operator of ``opset`` in float32 on CUDA."""
    return name in _TAKEN_APART or computes_in(name, opset, "float")


def _schema(op_type: str, opset: int) -> OpSchema | None:
    """Return ONNX's schema, None where it has none: ONNX Runtime's own are in its domain too."""
    from onnx.defs import SchemaError, get_schema

    try:
        return get_schema(op_type, opset)
    except SchemaError:
        return None


def binding(held: OpSchema, operands: Sequence[str], results: Sequence[str]) -> dict[str, str]:
    """Return the types by parameter of an ONNX schema; an empty one is of a value left out."""
    found = {}
    for formals, names in ((held.inputs, operands), (held.outputs, results)):
        for i, name in enumerate(names):
            if name:
                found[formals[min(i, len(formals) - 1)].type_str] = name
    return found


def is_lacking(
    op_type: str,
    opset: int,
    operands: Sequence[ir.Type],
    results: Sequence[ir.Type],
    attributes: Mapping[str, ir.Attribute],
) -> bool:
    """Say whether a standard op has a bfloat16 operand or result but no kernel for that."""
    types = [[_name(kind) for kind in kinds] for kinds in (operands, results)]
    is_standard = op_type != "Constant" and "." not in op_type
    if not is_standard or not any("bfloat16" in names for names in types):
        return False
    if op_type == "ScatterElements" and "reduction" in attributes:
        return True  # its kernel takes elements of 16 bits for float16, and adds them so
    return not _has_kernel(op_type, opset, *map(tuple, types))


@cache
def _has_kernel(
    op_type: str, opset: int, operands: tuple[str, ...], results: tuple[str, ...]
) -> bool:
    schema = _schema(op_type, opset)
    if schema is None:
        return op_type in _kernels()
    return has_kernel(op_type, schema.since_version, binding(schema, operands, results))


def without_kernels(module: ir.Module) -> Counter[str]:
    """Return how many ops of each operator ONNX Runtime leaves to the CPU. Linear in the ops.

    Those of other domains count where no kernel knows the type of the first result; what a training
    step computes anew does not count.
    """
    opset = onnx.opsets(module)[""]
    block = onnx.function(module).regions[0].blocks[0]
    ops = [op.operation for op in block if onnx.is_onnx(op.operation)]
    ops = [op for op in ops if onnx.phase(op) != "recompute"]
    return Counter(op.name.removeprefix("onnx.") for op in ops if _stays_behind(op, opset))


def _stays_behind(op: ir.Operation, opset: int) -> bool:
    name = op.name.removeprefix("onnx.")
    is_own = name.startswith(onnx.OWN_DOMAIN) or name in ("Constant", "NoValue")
    if is_own or name in _TAKEN_APART or len(op.regions):
        return False
    if "." in name:
        return not computes_in(name, opset, _name(op.results[0].type))
    kinds = [tuple(_name(v.type) for v in values) for values in (op.operands, op.results)]
    return _pads_unevenly(op) or not _has_kernel(name, opset, *kinds)


def _pads_unevenly(op: ir.Operation) -> bool:
    """Say whether this is a transposed convolution that cuDNN has no padding for."""
    if op.name != "onnx.ConvTranspose":
        return False
    pads = list(onnx.attribute(op, "pads", ()))
    is_even = pads[: len(pads) // 2] == pads[len(pads) // 2 :]
    return not is_even or str(onnx.attribute(op, "auto_pad", "NOTSET")).startswith("SAME")


def _name(kind: ir.Type) -> str:
    """Return ONNX's name of the elements of a tensor, empty where there is none."""
    if not isinstance(kind, ir.RankedTensorType):
        return ""
    element = element_of(str(ir.RankedTensorType(kind).element_type))
    return element.name.lower() if element is not None else ""
