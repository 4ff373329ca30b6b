"""ONNX Runtime's kernels: on CUDA by operator, version and types, read from `cuda_kernels.txt`.

An operator without a bfloat16 kernel is computed in float32, with casts around it. ONNX Runtime has
no bfloat16 kernels on CPUs either, so a graph with such a node would fail to load.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.dialects import onnx
from tensoropt.dialects.elements import element_of, element_text
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.support.collectives import DOMAIN

if TYPE_CHECKING:
    from onnx.defs import OpSchema

__all__ = [
    "EINSUM_SINCE",
    "binding",
    "computes_in",
    "count_missing_kernels",
    "has_kernel",
    "is_bfloat16",
    "is_lacking",
    "runs_on_cpu",
    "runs_on_cuda",
]

_TABLE = Path(__file__).with_name("cuda_kernels.txt")

EINSUM_SINCE = 28
"""First opset with Einsum in bfloat16. In earlier ones ranks have Gemm and MatMul instead of it."""

_FUNCTIONS = """
    CastLike CenterCropPad GroupNormalization Mish NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
    Swish
"""
_INLINED = frozenset(_FUNCTIONS.split())
"""ONNX functions without any kernel, which ONNX Runtime replaces by their bodies."""


@dataclass(frozen=True)
class _Kernel:
    """A kernel for versions ``first`` to ``last``; ``last`` is None if later versions are unknown
    to it."""

    first: int
    last: int | None
    types: Mapping[str, frozenset[str]]

    def fits(self, version: int, types: Mapping[str, str]) -> bool:
        """Return whether ONNX Runtime runs ``version`` of an operator with ``types`` by this
        kernel.

        ONNX Runtime uses an open-ended kernel only for the version that it begins with.
        """
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
        types_by_parameter = {parameter: frozenset(names.split(",")) for parameter, names in pairs}
        found[name].append(_Kernel(int(first), int(last) if last else None, types_by_parameter))
    return found


def has_kernel(name: str, version: int, types: Mapping[str, str]) -> bool:
    """Return whether version ``version`` of an operator has a kernel for ``types``.

    ``name`` includes the operator's domain, if any. ``types`` maps type parameters to names such as
    ``float16``; a parameter that it lacks matches any type.
    """
    return any(kernel.fits(version, types) for kernel in _kernels().get(name, ()))


def computes_in(name: str, opset: int, kind: str) -> bool:
    """Return whether an operator of ``opset`` has a kernel with results of type ``kind``.

    For operators that only ONNX Runtime defines, ``kind`` is compared with type parameter T; a
    kernel without T matches any type. A rank expands operators of tensoropt, which take any type.
    """
    if name.startswith(DOMAIN):
        return True
    schema = None if "." in name else _schema(name, opset)
    if schema is not None:
        return has_kernel(name, schema.since_version, {schema.outputs[0].type_str: kind})
    kernels = _kernels().get(name, ())
    return any(kind in kernel.types.get("T", {kind}) for kernel in kernels)


def runs_on_cuda(name: str, opset: int) -> bool:
    """Return whether ONNX Runtime computes an operator of ``opset`` in float32 on CUDA."""
    return name in _INLINED or computes_in(name, opset, "float")


def runs_on_cpu(domain: str, op_type: str) -> bool:
    """Return whether ONNX Runtime has a kernel for an operator of its own, for some type."""
    return (domain, op_type) in _cpu_operators()


@cache
def _cpu_operators() -> frozenset[tuple[str, str]]:
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

    kernels = get_all_opkernel_def()
    own = [kernel for kernel in kernels if kernel.provider == "CPUExecutionProvider"]
    return frozenset((kernel.domain, kernel.op_name) for kernel in own)


def _schema(op_type: str, opset: int) -> OpSchema | None:
    """Return ONNX's schema, or None if it has none.

    ONNX Runtime defines operators of its own in ONNX's domain.
    """
    from onnx.defs import SchemaError, get_schema

    try:
        return get_schema(op_type, opset)
    except SchemaError:
        return None


def binding(schema: OpSchema, operands: Sequence[str], results: Sequence[str]) -> dict[str, str]:
    """Return the type of each type parameter of an ONNX schema; empty names mark omitted values."""
    found = {}
    for formals, names in ((schema.inputs, operands), (schema.outputs, results)):
        for i, name in enumerate(names):
            if name:
                found[formals[min(i, len(formals) - 1)].type_str] = name
    return found


def is_bfloat16(kind: ir.Type) -> bool:
    """Return whether ``kind`` is a tensor of bfloat16."""
    ranked = isinstance(kind, ir.RankedTensorType)
    return ranked and isinstance(ir.RankedTensorType(kind).element_type, ir.BF16Type)


def is_lacking(
    op_type: str,
    opset: int,
    operands: Sequence[ir.Type],
    results: Sequence[ir.Type],
    attributes: Mapping[str, ir.Attribute],
) -> bool:
    """Return whether a standard op has a bfloat16 operand or result but no kernel for it."""
    is_standard = op_type != "Constant" and "." not in op_type
    if not is_standard or not any(map(is_bfloat16, (*operands, *results))):
        return False
    if op_type == "Einsum" and _is_lowered(opset, attributes["equation"]):
        return False
    if op_type == "ScatterElements" and "reduction" in attributes:
        return True  # its kernel adds all 16-bit elements as float16
    types = [tuple(_name(kind) for kind in kinds) for kinds in (operands, results)]
    return not _has_kernel(op_type, opset, *types)


def _is_lowered(opset: int, attribute: ir.Attribute) -> bool:
    """Return whether ranks compute an Einsum as a matrix product: of two operands without `...`,
    and no letter is in one operand alone."""
    equation = str(ir.StringAttr(attribute).value).replace(" ", "")
    terms, arrow, result = equation.partition("->")
    left, comma, right = terms.partition(",")
    if not arrow or not comma or "," in right or "." in equation or opset >= EINSUM_SINCE:
        return False
    return set(left) ^ set(right) <= set(result)


@cache
def _has_kernel(
    op_type: str, opset: int, operands: tuple[str, ...], results: tuple[str, ...]
) -> bool:
    schema = _schema(op_type, opset)
    if schema is None:
        return op_type in _kernels()
    return has_kernel(op_type, schema.since_version, binding(schema, operands, results))


def count_missing_kernels(module: ir.Module) -> Counter[str]:
    """Return the number of ops that ONNX Runtime runs on the CPU, by operator. Linear in the ops.

    An op of another domain counts if no kernel supports the type of its first result. Recomputed
    ops of a training step do not count.
    """
    opset = onnx.opsets(module)[""]
    block = onnx.function(module).regions[0].blocks[0]
    ops = [op.operation for op in block if onnx.is_onnx(op.operation)]
    ops = [op for op in ops if onnx.phase(op) != "recompute"]
    return Counter(op.name.removeprefix("onnx.") for op in ops if _lacks_kernel(op, opset))


def _lacks_kernel(op: ir.Operation, opset: int) -> bool:
    name = op.name.removeprefix("onnx.")
    is_own = name.startswith(DOMAIN) or name in ("Constant", "NoValue")
    if is_own or name in _INLINED or len(op.regions):
        return False
    if "." in name:
        return not computes_in(name, opset, _name(op.results[0].type))
    kinds = [tuple(_name(v.type) for v in values) for values in (op.operands, op.results)]
    if name == "Einsum" and _is_lowered(opset, op.attributes["equation"]):
        return False
    return _pads_unevenly(op) or not _has_kernel(name, opset, *kinds)


def _pads_unevenly(op: ir.Operation) -> bool:
    """Return whether the op is a transposed convolution with padding that cuDNN does not
    support."""
    if op.name != "onnx.ConvTranspose":
        return False
    pads = list(onnx.attribute(op, "pads", ()))
    is_even = pads[: len(pads) // 2] == pads[len(pads) // 2 :]
    return not is_even or str(onnx.attribute(op, "auto_pad", "NOTSET")).startswith("SAME")


def _name(kind: ir.Type) -> str:
    """Return ONNX's name of a tensor's element type, or "" if there is none."""
    if not isinstance(kind, ir.RankedTensorType):
        return ""
    element = element_of(element_text(kind))
    return element.name.lower() if element is not None else ""
