"""Attention as one operation with a kernel of ours: the forms that have one, and its node."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensoropt.dialects import onnx
from tensoropt.dialects.build import (
    Build,
    element_type,
    float_attr,
    int_attr,
    is_float,
    shape_of,
    sizes_of,
    tensor_type,
)
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import ATTENTION, ATTENTION_WITH_DROPOUT
from tensoropt.dialects.topt import keys
from tensoropt.runtime.support.cudnn_attention import (
    AttentionForm,
    read_architectures,
    refusal,
)

__all__ = ["Attended", "AttentionKernels"]

_RANK = 4


@dataclass(frozen=True)
class Attended:
    """The operands and options of an attention.

    Queries are `b h s d`, keys `b g t d`, values `b g t e`; the bias broadcasts to `b h s t`, and
    has all keys. Scores are scaled, and bounded by ``softcap`` if it is not 0. Weights are dropped
    with the probability ``ratio``.
    """

    q: ir.Value
    k: ir.Value
    v: ir.Value
    bias: ir.Value | None = None
    scale: float = 1.0
    softcap: float = 0.0
    causal: bool = False
    ratio: float = 0.0

    @property
    def is_valid(self) -> bool:
        """True if the operands are floats of one type, and their sizes fit together."""
        q, k, v, bias = self.q, self.k, self.v, self.bias
        values = (q, k, v, *(() if bias is None else (bias,)))
        if any(element_type(x) != element_type(q) for x in values):
            return False
        if any(len(shape_of(x)) != _RANK or None in shape_of(x) for x in (q, k, v)):
            return False
        (batch, heads, rows, size), (key_batch, shared, keys, _), value = map(sizes_of, (q, k, v))
        if 0 in (batch, heads, rows, size, shared, keys, value[3]) or heads % shared:
            return False
        if (key_batch, sizes_of(k)[3]) != (batch, size) or value[:3] != [batch, shared, keys]:
            return False
        if bias is None:
            return True
        if None in shape_of(bias) or len(shape_of(bias)) > _RANK:
            return False
        lead = _padded(bias)
        fits = (one in (1, all_) for one, all_ in zip(lead, (batch, heads, rows), strict=False))
        return lead[3] == keys and all(fits)

    def form(self, dtype: str, *, gradient: bool) -> AttentionForm:
        """Return the form of a valid attention that computes in ``dtype``.

        The search may split the rows of queries, and then a causal node is told its first row.
        """
        (batch, heads, rows, size), (_, shared, keys, _) = sizes_of(self.q), sizes_of(self.k)
        lead = None
        if self.bias is not None:
            *lead_sizes, _ = _padded(self.bias)
            lead = (lead_sizes[0], lead_sizes[1], lead_sizes[2])
        return AttentionForm(
            dtype, batch, heads, shared, rows, keys, size, sizes_of(self.v)[3],
            causal=self.causal, softcap=self.softcap, bias_sizes=lead,
            trains_bias=self.bias is not None and _depends_on_weights(self.bias),
            offset=self.causal, dropout=self.ratio > 0, gradient=gradient,
        )  # fmt: skip

    def build(self, make: Build) -> ir.Value:
        """Return the result of the operation, which is valid."""
        *lead, _ = sizes_of(self.q)
        kinds = [
            tensor_type([*lead, sizes_of(self.v)[3]], element_type(self.q)),
            tensor_type(lead, ir.F32Type.get()),
        ]
        operands = [self.q, self.k, self.v]
        if self.bias is not None:
            operands.append(make.shaped(self.bias, _padded(self.bias)))
        attributes = {"scale": float_attr(self.scale), "causal": int_attr(int(self.causal))}
        if self.softcap:
            attributes["softcap"] = float_attr(self.softcap)
        if self.ratio:
            attributes["ratio"] = float_attr(self.ratio)
        name = ATTENTION_WITH_DROPOUT if self.ratio else ATTENTION
        return make.onnx_many(name, operands, kinds, **attributes)[0]


@dataclass(frozen=True)
class AttentionKernels:
    """The kernels that ranks have: of processors, or of GPUs of all ``architectures``.

    ``architectures`` are compute capabilities times ten, separated by commas. Values in float32 are
    converted to ``precision`` later. ``refused`` has the names of attention without a kernel, by
    the reason. A step that ``trains`` needs the kernel of the gradient, too.
    """

    precision: str = "float32"
    architectures: str = ""
    trains: bool = True
    refused: dict[str, list[str]] = field(default_factory=dict)

    def fit(self, attended: Attended, op: ir.Operation) -> bool:
        """Return whether an attention has a kernel; note the reason if ``op`` has none."""
        if not attended.is_valid:
            return False
        reason = self._reason(attended)
        if reason is not None:
            self.refused.setdefault(reason, []).append(onnx.node_name(op) or op.name)
        return reason is None

    def _reason(self, attended: Attended) -> str | None:
        element = element_of(str(element_type(attended.q)))
        assert element is not None
        dtype = self.precision if element.numpy == "float32" else element.numpy
        if not self.architectures:
            return None if dtype == "float32" else f"elements of type {dtype}"
        directions = (False, True) if self.trains else (False,)
        forms = [attended.form(dtype, gradient=gradient) for gradient in directions]
        numbers = read_architectures(self.architectures)
        reasons = (refusal(form, number) for number in numbers for form in forms)
        return next((reason for reason in reasons if reason is not None), None)


def _depends_on_weights(value: ir.Value) -> bool:
    """Return whether a value may get a gradient: it is computed from weights that are not fixed."""
    visited, pending = set[ir.Value](), [value]
    while pending:
        value = pending.pop()
        if value in visited:
            continue
        visited.add(value)
        op = onnx.owner(value)
        if op is not None:
            pending += op.operands
        elif isinstance(value.owner, ir.Block) and _is_trained(value.owner, value):
            return True
    return False


def _is_trained(block: ir.Block, value: ir.Value) -> bool:
    pairs = onnx.arguments(block.owner.operation)
    marks = next((attributes for argument, attributes in pairs if argument == value), None)
    is_weight = marks is not None and keys.PARAM.on(marks) and not keys.FIXED.on(marks)
    return is_weight and is_float(value)


def _padded(bias: ir.Value) -> list[int]:
    """Return the sizes of a bias with four dimensions."""
    sizes = sizes_of(bias)
    return [*[1] * (_RANK - len(sizes)), *sizes]
