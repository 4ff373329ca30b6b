"""`tensoropt.Attention` and its gradient on one rank: their kernel, and its workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensoropt.compiler.cost.kernel import Kernel
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.sharding.ops.attention_parts import BACKWARD, FORWARD, has_halves
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.seen import mean_seen
from tensoropt.dialects import onnx
from tensoropt.dialects.build import element_type, sizes_of
from tensoropt.dialects.elements import element_of
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.support.cudnn_attention import AttentionForm, refusal, workspace_bytes

__all__ = ["attention_workspace_bytes", "fused_attention_of", "has_kernel", "kernel_bytes"]

_QUERY = {onnx.ATTENTION: 0, onnx.ATTENTION_GRADIENT: 1}
"""Places of the query among the operands; key, value and an optional bias are after it."""
_OFFSET = {onnx.ATTENTION: 5, onnx.ATTENTION_GRADIENT: 8}
"""Places of the position of the first query among the operands."""
_TRAINED_BIAS = 3
"""Place of the gradient of the bias among the results."""


def fused_attention_of(info: OpInfo) -> Kernel | None:
    """Return the kernel of an attention or of its gradient, ``None`` for other operators.

    It is measured by the keys that a query sees on average and by the mean size of a head of keys
    and of values.
    """
    form = _form(info, None, None)
    if form is None:
        return None
    seen = mean_seen(0, form.queries, form.window) if form.causal else float(form.keys)
    sizes = (min(seen, form.keys), (form.size + form.value_size) / 2)
    return Kernel("attention_gradient" if form.gradient else "attention", sizes)


def has_kernel(info: OpInfo, strategy: Strategy, mesh: Mesh, architectures: Sequence[int]) -> bool:
    """Return whether GPUs have the kernel for the part of one rank; true for other operators."""
    form = _form(info, strategy, mesh) if architectures else None
    if form is None:
        return True
    places = BACKWARD if form.gradient else FORWARD
    if strategy.joint_axes and form.causal and not has_halves(info, places):
        return False  # in some turns of the ring there are rows without keys, which GPUs refuse
    return not any(refusal(form, number) for number in architectures)


def attention_workspace_bytes(
    info: OpInfo, strategy: Strategy, mesh: Mesh, architectures: Sequence[int]
) -> int:
    """Return the memory that the kernel takes on GPUs besides operands and results.

    It is 0 for other operators. ``architectures`` are compute capabilities times ten; the GPU that
    takes most counts.
    """
    form = _form(info, strategy, mesh) if architectures else None
    return _workspace_bytes(form, architectures)


def kernel_bytes(op: ir.Operation, architectures: Sequence[int]) -> int:
    """Return what `attention_workspace_bytes` returns, for an operation of a rank."""
    name = op.name.removeprefix("onnx.")
    first = _QUERY.get(name)
    if first is None or not architectures:
        return 0
    query, key, value = (sizes_of(op.operands[place]) for place in range(first, first + 3))
    element = element_of(str(element_type(op.operands[first])))
    assert element is not None
    attributes = {key: onnx.attribute(op, key, 0) for key in ("causal", "window")}
    form = _form_of(name, (query, key, value), element.numpy, attributes, len(op.results))
    place = _OFFSET[name]
    is_placed = len(op.operands) > place and not onnx.is_no_value(op.operands[place])
    return _workspace_bytes(replace(form, offset=is_placed), architectures)


def _workspace_bytes(form: AttentionForm | None, architectures: Sequence[int]) -> int:
    if form is None:
        return 0
    return max(workspace_bytes(form, number) for number in architectures)


def _form(info: OpInfo, strategy: Strategy | None, mesh: Mesh | None) -> AttentionForm | None:
    """Return the form of an attention of ours, whole or on one rank; ``None`` for other ops."""
    first = _QUERY.get(info.name)
    if first is None:
        return None
    shapes = []
    for place in range(first, first + 3):
        sizes = info.sizes(place)
        if strategy is not None and mesh is not None:
            sizes = strategy.operands[place].local_shape(sizes, mesh)
        shapes.append([size if isinstance(size, int) else 1 for size in sizes])
    query = info.operand(first)
    assert query is not None
    attributes = {name: int(info.attribute(name, 0)) for name in ("causal", "window")}
    form = _form_of(info.name, shapes, query.dtype, attributes, len(info.results))
    # With split rows or keys, the node of a rank is told the place of its first row.
    whole = info.shape(first)[2], info.shape(first + 1)[2]
    return replace(form, offset=(form.queries, form.keys) != whole)


def _form_of(
    name: str,
    shapes: Sequence[Sequence[int]],
    dtype: str,
    attributes: Mapping[str, int],
    results: int,
) -> AttentionForm:
    """Return the form of an operator with a query, key and value of these ``shapes``."""
    (batch, heads, queries, size), (_, key_heads, keys, _), (*_, value_size) = shapes
    return AttentionForm(
        dtype, batch, heads, key_heads, queries, keys, size, value_size,
        causal=bool(attributes["causal"]), window=attributes["window"],
        trains_bias=results > _TRAINED_BIAS, gradient=name == onnx.ATTENTION_GRADIENT,
    )  # fmt: skip
