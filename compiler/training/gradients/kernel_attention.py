"""Attention as one operation with a kernel of ours."""

from __future__ import annotations

from tensoropt.dialects.build import (
    Build,
    element_type,
    float_attr,
    int_attr,
    shape_of,
    sizes_of,
    tensor_type,
)
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import ATTENTION

__all__ = ["attend_in_kernel", "fits_kernel"]

_RANK = 4


def fits_kernel(q: ir.Value, k: ir.Value, v: ir.Value, bias: ir.Value | None = None) -> bool:
    """Return whether the kernel has the form of an attention.

    Queries are `b h s d`, keys `b g t d`, values `b g t e`, all in float32; the bias broadcasts to
    `b h s t`, and has all keys.
    """
    values = (q, k, v, *(() if bias is None else (bias,)))
    if any(element_type(x) != ir.F32Type.get() for x in values):
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


def attend_in_kernel(
    make: Build, q: ir.Value, k: ir.Value, v: ir.Value, bias: ir.Value | None = None, *,
    scale: float, softcap: float = 0.0, causal: bool = False,
) -> ir.Value:  # fmt: skip
    """Return attention as one operation; the operands fit the kernel."""
    *lead, _ = sizes_of(q)
    kinds = [
        tensor_type([*lead, sizes_of(v)[3]], element_type(q)),
        tensor_type(lead, ir.F32Type.get()),
    ]
    operands = [q, k, v]
    if bias is not None:
        operands.append(make.shaped(bias, _padded(bias)))
    attributes = {"scale": float_attr(scale), "causal": int_attr(int(causal))}
    if softcap:
        attributes["softcap"] = float_attr(softcap)
    return make.onnx_many(ATTENTION, operands, kinds, **attributes)[0]


def _padded(bias: ir.Value) -> list[int]:
    """Return the sizes of a bias with four dimensions."""
    sizes = sizes_of(bias)
    return [*[1] * (_RANK - len(sizes)), *sizes]
