"""Sliding windows: where they tile the input, a spatial dimension can be split with no halo."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.sharding.loops import Loop
from tensoropt.compiler.sharding.op_info import OpInfo, Shape

__all__ = ["count", "spatial_loops", "window_loop"]


def spatial_loops(
    info: OpInfo, kernel: Sequence[int | None], windows: Shape, *, side: str, exact: bool = False
) -> list[Loop]:
    """Return a loop over the windows of each spatial dimension, of input and result alike.

    ``windows`` is how many there are; ``side`` names the tensor, operand or result, that has one
    element per window. A loop can be split where the windows tile the other tensor: the part of a
    rank then holds whole windows. ``exact`` asks for tiles without gaps.
    """
    tiled = [_tiles(info, dim, size, windows, exact) for dim, size in enumerate(kernel)]
    return [
        Loop({0: dim + 2}, {0: dim + 2}, size=windows[dim])
        if tile
        else Loop(*_on_side(side, dim + 2), can_split=False)
        for dim, tile in enumerate(tiled)
    ]


def _on_side(side: str, dim: int) -> tuple[dict[int, int], dict[int, int]]:
    return ({0: dim}, {}) if side == "operand" else ({}, {0: dim})


def _tiles(info: OpInfo, dim: int, size: int | None, windows: Shape, exact: bool) -> bool:
    """Say whether windows along ``dim`` neither overlap nor reach into padding."""
    long = max(info.shape(0)[dim + 2] or 0, info.result_shape()[dim + 2] or 0)
    stride = _spatial(info, "strides", dim, 1)
    if size is None or windows[dim] is None or long != (windows[dim] or 0) * stride:
        return False
    if _is_padded(info, dim):
        return False
    extent = (size - 1) * _spatial(info, "dilations", dim, 1) + 1
    return extent == stride if exact else extent <= stride


def _is_padded(info: OpInfo, dim: int) -> bool:
    """Say whether padding is written out; what SAME adds is nothing where windows tile."""
    pads = info.attribute("pads", ())
    return bool(pads) and any(pads[dim :: len(pads) // 2])


def _spatial(info: OpInfo, name: str, dim: int, default: int) -> int:
    held = info.attribute(name, ())
    return int(held[dim]) if held else default


def window_loop(sizes: Sequence[int | None]) -> Loop:
    """Return the loop over what stays whole: the elements of a window."""
    return Loop({}, size=count(sizes), can_split=False)


def count(sizes: Sequence[int | None]) -> int:
    """Return the product of ``sizes``; a symbolic one counts as 1."""
    total = 1
    for size in sizes:
        total *= size or 1
    return total
