"""Gradients of operators that change height and width: DepthToSpace, SpaceToDepth, Resize."""

from __future__ import annotations

from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.dialects.build import (
    element_type,
    ints_attr,
    onnx_attr,
    shape_of,
    sizes_of,
    tensor_type,
)
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

# Attributes that define the interpolation.
_ATTRIBUTES = (
    "antialias",
    "coordinate_transformation_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "mode",
    "nearest_mode",
)
_ROI, _SCALES, _SIZES = 1, 2, 3


@gradient("DepthToSpace")
def depth_to_space(b: Backward) -> Gradients:
    """dY with each block moved back into the channels."""
    batch, channels, height, width = b.shape(0)
    block = b.info.attribute("blocksize")
    parts = [batch, channels // block**2, height, block, width, block]
    crd = b.info.attribute("mode", "DCR") == "CRD"
    order = [0, 1, 3, 5, 2, 4] if crd else [0, 3, 5, 1, 2, 4]
    moved = b.make.transpose(b.make.reshape(b.dy, parts), order)
    return [b.make.reshape(moved, b.shape(0))]


@gradient("SpaceToDepth")
def space_to_depth(b: Backward) -> Gradients:
    """dY with the blocks moved from the channels back to their positions."""
    batch, channels, height, width = b.shape(0)
    block = b.info.attribute("blocksize")
    crd = b.info.attribute("mode", "DCR") == "CRD"
    depth = [channels, block, block] if crd else [block, block, channels]
    parts = [batch, *depth, height // block, width // block]
    order = [0, 1, 4, 2, 5, 3] if crd else [0, 3, 4, 1, 5, 2]
    moved = b.make.transpose(b.make.reshape(b.dy, parts), order)
    return [b.make.reshape(moved, b.shape(0))]


@gradient("Resize")
def resize(b: Backward) -> Gradients:
    """dY times the interpolation weights, dimension by dimension.

    Resizing is linear, and separable over dimensions.
    """
    policy = b.info.attribute("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        raise b.unsupported(f"expected keep_aspect_ratio_policy 'stretch', got: '{policy}'")
    dx = b.dy
    for at, dim in enumerate(_axes(b)):
        times = _copies(b, at, dim)
        if times is None:
            dx = _apply_weights(b, dx, at, dim)
        elif times > 1:
            shape = sizes_of(dx)
            parts = [*shape[:dim], shape[dim] // times, times, *shape[dim + 1 :]]
            dx = b.make.reduce("ReduceSum", b.make.reshape(dx, parts), [dim + 1], keepdims=False)
    return b.first(dx)


def _axes(b: Backward) -> list[int]:
    """Return the dimensions that scales, sizes and regions apply to."""
    rank = len(b.shape(0))
    return [axis % rank for axis in b.info.attribute("axes", range(rank))]


def _copies(b: Backward, at: int, dim: int) -> int | None:
    """Return the number of copies of every element, or ``None`` if it may not be constant."""
    size, made = b.shape(0)[dim], b.info.result_shape()[dim]
    assert made is not None
    scales = b.literal(_SCALES)
    scale = made / size if b.has(_SIZES) else None if scales is None else float(scales[at])
    places = b.info.attribute("coordinate_transformation_mode", "half_pixel")
    if scale is None or not scale.is_integer() or places == "tf_crop_and_resize":
        return None
    rounding = b.info.attribute("nearest_mode", "round_prefer_floor")
    repeats = (places, rounding) == ("asymmetric", "floor")
    repeats |= places == "half_pixel" and rounding.startswith("round")
    nearest = b.info.attribute("mode", "nearest") == "nearest"
    return int(scale) if scale == 1.0 or (nearest and repeats) else None


def _apply_weights(b: Backward, dy: ir.Value, at: int, dim: int) -> ir.Value:
    """Return the product of ``dy`` along ``dim`` with the weights of the operand's elements."""
    make, last = b.make, len(shape_of(dy)) - 1
    weights = make.cast(_weights(b, at, dim), element_type(dy))
    if last == 0:
        return make.squeeze(make.matmul(weights, make.unsqueeze(dy, [1])), [1])
    if dim == last - 1:
        return make.matmul(weights, dy)
    order = [d for d in range(last + 1) if d != dim] + [dim]
    product = make.matmul(make.transpose(dy, order), make.swapped(weights))
    return make.transpose(product, [order.index(d) for d in range(last + 1)])


def _weights(b: Backward, at: int, dim: int) -> ir.Value:
    """Return the weights along ``dim`` [operand's, result's]: resized unit vectors.

    They depend only on constants, so ONNX Runtime computes them when it loads the graph.
    """
    import numpy as np

    make, size, made = b.make, b.shape(0)[dim], b.info.result_shape()[dim] or 0
    zeros = make.expand(make.constant(np.zeros((), np.float32)), [size, size])
    units = make.reshape(make.unary("EyeLike", zeros), [1, size, 1, size])
    absent = region = make.no_value()
    if b.info.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        roi, count = b.operand(_ROI), len(_axes(b))
        region = make.concat([make.slice(roi, 0, i, i + 1) for i in (at, at + count)], 0)
    operands = [units, region]
    if b.has(_SIZES):
        operands += [absent, make.ints([made])]
    else:
        operands.append(make.slice(b.operand(_SCALES), 0, at, at + 1))
    result = tensor_type([1, size, 1, made], element_type(units))
    known = {name: b.info.attribute(name) for name in _ATTRIBUTES}
    attributes = {name: onnx_attr(value) for name, value in known.items() if value is not None}
    weights = make.onnx("Resize", operands, result, axes=ints_attr([3]), **attributes)
    return make.reshape(weights, [size, made])
