"""Operators that read an image at positions of a grid or of regions."""

from __future__ import annotations

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.factors import FactorMap, linear_in, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.sizes import has_local_sizes, local_sizes
from tensoropt.dialects.mlir import ir

__all__ = ["affine_grid", "grid_sample", "region_average", "region_maximum"]

# Four or more weighted neighbours.
_FLOPS = 8.0


@sharding_rule("GridSample", "com.microsoft.GridSample")
def grid_sample(info: OpInfo) -> Rule:
    """Split batch, channels, and grid positions; the spatial dimensions of the image stay whole."""
    space = range(2, len(info.result_shape()))
    factors = [
        FactorMap({0: 0, 1: 0}, {0: 0}),
        FactorMap({0: 1}, {0: 1}),
        *(FactorMap({1: dim - 1}, {0: dim}) for dim in space),
    ]
    return rule_of(info, factors, linear=linear_in(info, (0,)), flops_per_point=_FLOPS)


@sharding_rule("AffineGrid")
def affine_grid(info: OpInfo) -> Rule | None:
    """Split the batch; positions are counted from the corner of the whole image."""
    if not has_local_sizes(info, 1):
        return None
    space = range(1, len(info.result_shape()) - 1)
    factors = [
        FactorMap({0: 0}, {0: 0}),
        *(FactorMap({}, {0: dim}, can_split=False) for dim in space),
    ]
    return rule_of(info, factors, localize=_localize_grid, flops_per_point=_FLOPS)


def _localize_grid(local: LocalOp) -> list[ir.Value]:
    if local.pieces(0) == 1:
        return local.clone()
    whole = (None,) * len(local.info.result_shape()[1:])
    sizes, pieces = (local.local_result_shape()[0], *whole), local.result_pieces()
    return local.clone({1: local_sizes(local, 1, sizes, pieces)})


@sharding_rule("RoiAlign")
def region_average(info: OpInfo) -> Rule:
    """Split regions and channels; the images that contain the regions stay whole."""
    linear = linear_in(info, (0,)) if info.attribute("mode", "avg") == "avg" else ()
    return rule_of(info, _regions(info, {1: 0, 2: 0}), linear=linear, flops_per_point=_FLOPS)


@sharding_rule("MaxRoiPool")
def region_maximum(info: OpInfo) -> Rule:
    """Split regions and channels; the images that contain the regions stay whole."""
    return rule_of(info, _regions(info, {1: 0}), flops_per_point=1.0)


def _regions(info: OpInfo, places: dict[int, int]) -> list[FactorMap]:
    """Return the factors; a region in padding would name an image that does not exist."""
    space = range(2, len(info.result_shape()))
    return [
        FactorMap(places, {0: 0}, padded=False),
        FactorMap({0: 1}, {0: 1}),
        *(FactorMap({}, {0: dim}, can_split=False) for dim in space),
    ]
