"""Halo exchange: ranks that hold neighbouring parts of a dimension give each other their edges.

Every rank all-gathers the edges of all parts along the axes that split the dimension, with what
stands for padding at both ends, and picks those beside its own part. With ``w`` elements of halo
per part and ``p`` parts, ``(p - 1) w`` elements come to each rank: two would do, but edges are
short, and the programs of all ranks are the same. The op then runs without padding along the
dimension on a part that holds all its windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensoropt.compiler.layout.rule import InnerStep
from tensoropt.compiler.sharding.rule.arithmetic import BROADCAST_VERSION, Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.windows import Window, count, windows_of
from tensoropt.dialects.build import ints_attr
from tensoropt.dialects.mlir import ir

__all__ = ["crossed", "halo_of", "inner_exchange", "with_halo"]

_TYPES = frozenset(("float16", "float32", "float64", "int8", "uint8"))
_FIRST = 2


def halo_of(info: OpInfo) -> Window | None:
    """Return the windows along which parts can be split if they get the edges of their neighbours.

    ``None`` unless there are as many elements per window as the stride, so that the windows of
    every part lie in it alike, or where `ceil_mode` could add one to each. Only along the first
    spatial dimension: rows of an image lie together, columns do not, and a choice between the two
    makes the search longer for little.
    """
    tensor = info.operand(0)
    old = info.standard_version < BROADCAST_VERSION
    windows = windows_of(info)
    cropped = any(min(window.begin, window.end) < 0 for window in windows)
    if not windows or cropped or tensor is None or tensor.dtype not in _TYPES or old:
        return None
    return windows[0] if _is_alike(info, windows[0]) else None


def _is_alike(info: OpInfo, window: Window) -> bool:
    long, windows = info.shape(0)[_FIRST], info.result_shape()[_FIRST]
    if windows is None or long != windows * window.stride or window.begin >= window.extent:
        return False
    return window.reach >= 0 or not info.attribute("ceil_mode", 0)


def inner_exchange(
    info: OpInfo, factors: Sequence[FactorMap], window: Window | None
) -> tuple[InnerStep, ...]:
    """Return what the exchange along the dimension of ``window`` costs, nothing without edges.

    Edges are picked, all-gathered, padded and picked from, then the part is copied between them.
    """
    tensor, width = info.operand(0), 0 if window is None else window.begin + window.after
    if tensor is None or window is None or not width:
        return ()
    along = {
        factor.operands[0]: index for index, factor in enumerate(factors) if 0 in factor.operands
    }
    split, others = along.pop(_FIRST), tuple(along.values())
    points = count([factors[index].factor(info).size for index in others])
    whole = tensor.elements * tensor.item_bytes
    each = whole // (count([tensor.sizes[_FIRST]]) * points)
    copied = (width, width, *(side for side in (window.begin, window.after) if side))
    return (
        InnerStep((split,), others, width * each, "all_gather"),
        *(InnerStep((split,), others, rows * each, "copy") for rows in copied),
        InnerStep((split,), (split, *others), window.stride * each, "copy"),
    )


def crossed(local: LocalOp) -> Window | None:
    """Return the windows that the cuts of the strategy at hand go through, if they do.

    So they do where a cut dimension has padding, too.
    """
    window = next(iter(windows_of(local.info)), None)
    cut = local.strategy.operands[0].axes_splitting(_FIRST)
    return window if cut and window is not None and not window.is_local else None


def with_halo(local: LocalOp, fill: float) -> tuple[dict[int, ir.Value], dict[str, ir.Attribute]]:
    """Return operand 0 with its halo and the attributes that go with it, as ``clone`` takes them.

    ``fill`` is what padding holds. Both are empty where every window lies in one part.
    """
    window = crossed(local)
    if window is None:
        return {}, {}
    windows = [replace(window, begin=0, end=0), *windows_of(local.info)[1:]]
    pads = [held.begin for held in windows] + [held.end for held in windows]
    attributes = {"pads": ints_attr(pads), "auto_pad": ir.StringAttr.get("NOTSET")}
    return {0: _widened(local, window, fill)}, attributes


def _widened(local: LocalOp, window: Window, fill: float) -> ir.Value:
    """Return operand 0 between the edges of its neighbours.

    The edges of all parts lie as their starts (``after`` each) and ends (``begin`` each), with as
    much of ``fill`` in front as an end has and behind as a start has: so that the place of a
    neighbour's edge is linear in that of the part.
    """
    import numpy as np

    make, x, before, after = Arithmetic(local), local.operands[0], window.begin, window.after
    if not before + after:
        return x
    axes = local.strategy.operands[0].axes_splitting(_FIRST)
    size = ir.RankedTensorType(x.type).get_dim_size(_FIRST)
    edges = np.concatenate([np.arange(after), np.arange(size - before, size)])
    own = make.take(x, local.constant(edges), _FIRST)
    widened = make.pad(local.all_gather(own, _FIRST, axes), _FIRST, (before, after), fill)
    place = np.arange(local.mesh.extent(axes))[:, None] * (before + after)
    left, right = place + np.arange(before), place + 2 * before + after + np.arange(after)
    sides = [[make.take(widened, local.axis_constant(at, axes), _FIRST)] if at.size else []
             for at in (left, right)]  # fmt: skip
    return make.concat([*sides[0], x, *sides[1]], _FIRST)
