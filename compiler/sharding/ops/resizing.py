"""Operators that change height and width: DepthToSpace, SpaceToDepth, Resize, Upsample."""

from __future__ import annotations

import math

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.factors import FactorMap, linear_in, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.sizes import local_sizes
from tensoropt.compiler.sharding.rule.windows import count
from tensoropt.dialects.mlir import ir

__all__: list[str] = []

# Floating-point operations per element of the result and resized dimension.
_FLOPS = {"nearest": 0.0, "linear": 4.0, "cubic": 16.0}


@sharding_rule("DepthToSpace")
def _depth_to_space(info: OpInfo) -> Rule:
    """Split batch, height, and width as major loops; channels only if they are outside blocks."""
    batch, channels, height, width = info.shape(0)
    crd = info.attribute("mode", "DCR") == "CRD"
    block = info.attribute("blocksize") ** 2
    depth = channels // block if crd and channels is not None else 1
    sizes = enumerate((batch, depth, height, width))
    factors = [FactorMap({0: dim}, {0: dim}, size=size) for dim, size in sizes]
    return rule_of(info, factors, linear=linear_in(info, (0,)))


@sharding_rule("SpaceToDepth")
def _space_to_depth(info: OpInfo) -> Rule:
    """Split batch, height, and width; channels only if the block is their minor part."""
    batch, _, height, width = info.result_shape()
    depth = info.shape(0)[1] if info.attribute("mode", "DCR") == "CRD" else 1
    sizes = enumerate((batch, depth, height, width))
    factors = [FactorMap({0: dim}, {0: dim}, size=size) for dim, size in sizes]
    return rule_of(info, factors, linear=linear_in(info, (0,)))


@sharding_rule("Resize", "Upsample")
def _resize(info: OpInfo) -> Rule | None:
    """Split dimensions that keep their size, and dimensions that repeat every element.

    The scale must be known: a dimension with scale 1.001 may keep its size but read other elements.
    ``None`` without scales or sizes, for a crop, and to keep an aspect ratio.
    """
    scales = _scales(info)
    if scales is None or not _is_local(info):
        return None
    factors = [
        FactorMap({0: dim}, {0: dim}, size=info.shape(0)[dim])
        for dim, scale in enumerate(scales)
        if scale == 1.0 or (scale.is_integer() and _repeats_elements(info))
    ]
    mode, work = info.attribute("mode", "nearest"), 0.0
    points = count([factor.factor(info).size for factor in factors])
    result = info.results[0]
    if result is not None:
        work = _FLOPS[mode] * result.elements / points
    # Interpolated integers are rounded, so their partial sums do not add up.
    exact = mode == "nearest" or (result is not None and "float" in result.dtype)
    linear = linear_in(info, (0,)) if exact else ()
    return rule_of(info, factors, linear=linear, localize=_resize_locally, flops_per_point=work)


def _scales(info: OpInfo) -> list[float] | None:
    """Return the scale of every dimension, NaN if it is unknown; ``None`` if no scale is known."""
    if _has_sizes(info):
        sides = zip(info.shape(0), info.result_shape(), strict=True)
        return [b / a if a and b is not None else math.nan for a, b in sides]
    if info.name == "Upsample" and info.version < 9:
        given = info.attribute("scales")
    else:
        given = info.literal(1 if info.version < 11 else 2)
    axes = _axes(info)
    if given is None or len(given) != len(axes):
        return None
    scales = [1.0] * len(info.shape(0))
    for axis, scale in zip(axes, given, strict=True):
        scales[axis] = float(scale)
    return scales


def _has_sizes(info: OpInfo) -> bool:
    return info.operand(3) is not None


def _axes(info: OpInfo) -> list[int]:
    rank = len(info.shape(0))
    return [axis % rank for axis in info.attribute("axes", range(rank))]


def _is_local(info: OpInfo) -> bool:
    """Return whether every element is computed at its own position, scaled."""
    transform = info.attribute("coordinate_transformation_mode", "half_pixel")
    policy = info.attribute("keep_aspect_ratio_policy", "stretch")
    shifts = ("tf_crop_and_resize", "tf_half_pixel_for_nn")
    return transform not in shifts and bool(policy == "stretch")


def _repeats_elements(info: OpInfo) -> bool:
    """Return whether an integer scale repeats each element; old opsets always round down."""
    transform = info.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = info.attribute("nearest_mode", "round_prefer_floor")
    floors = info.version < 11 or (transform == "asymmetric" and rounding == "floor")
    return bool(floors and info.attribute("mode", "nearest") == "nearest")


def _resize_locally(local: LocalOp) -> list[ir.Value]:
    if not _has_sizes(local.info):
        return local.clone()
    shape = local.local_result_shape()
    axes = _axes(local.info)
    pieces = [local.result_pieces()[dim] for dim in axes]
    return local.clone({3: local_sizes(local, 3, tuple(shape[dim] for dim in axes), pieces)})
