"""Halo exchange: ranks with neighbouring parts of a dimension exchange edges.

Neighbours swap edges in pairs: the first with the second, the third with the fourth, and so on,
then the second with the third. Each rank sends and receives one edge per neighbour, which is the
minimum, in one message among two ranks and in two among more. If an op reads on one side only,
every rank sends its edge to the next rank, in one message. A fill value replaces the missing
neighbour of the first and of the last rank. The op then runs without padding along the dimension,
on a part that contains all elements it reads. Several dimensions are exchanged in sequence, each
including the edges already received, so that corners arrive too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.rule import InnerStep, StepKind
from tensoropt.compiler.sharding.rule.arithmetic import BROADCAST_VERSION, Arithmetic
from tensoropt.compiler.sharding.rule.factors import FactorMap
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.windows import Halo, Window, count, windows_of
from tensoropt.dialects.build import ints_attr, shape_of
from tensoropt.dialects.mlir import ir

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["add_halo", "can_exchange", "cut_windows", "halos_of", "inner_exchange", "widen"]

_TYPES = frozenset(("float16", "bfloat16", "float32", "float64", "int8", "uint8"))


def halos_of(info: OpInfo) -> tuple[Window, ...]:
    """Return the windows that can be split if parts receive the edges of their neighbours.

    A dimension is left out unless its stride equals the elements per window, so that the windows
    have the same position in every part. It is also left out if `ceil_mode` could add a window to
    each part.
    """
    windows = windows_of(info)
    cropped = any(min(window.begin, window.end) < 0 for window in windows)
    if cropped or not can_exchange(info):
        return ()
    return tuple(window for window in windows if _is_uniform(info, window))


def can_exchange(info: OpInfo) -> bool:
    """Return whether edges of operand 0 can be sliced, sent, and concatenated to another part."""
    tensor = info.operand(0)
    known = tensor is not None and tensor.dtype in _TYPES
    return known and info.standard_version >= BROADCAST_VERSION


def _is_uniform(info: OpInfo, window: Window) -> bool:
    size, windows = info.shape(0)[window.dim], info.result_shape()[window.dim]
    if windows is None or size != windows * window.stride or window.begin >= window.extent:
        return False
    return window.reach >= 0 or not info.attribute("ceil_mode", 0)


def inner_exchange(
    info: OpInfo, factors: Sequence[FactorMap], halos: Sequence[Halo]
) -> tuple[InnerStep, ...]:
    """Return the inner steps of the exchanges along the dimensions of ``halos``.

    Edges are gathered and sent. Padding is appended to the received edges, and both sides are
    gathered from the result. Finally the part is copied between them. Corners are small and not
    counted. There are no steps if no edge is read or dropped.
    """
    return tuple(step for halo in halos for step in _exchange_steps(info, factors, halo))


def _exchange_steps(info: OpInfo, factors: Sequence[FactorMap], halo: Halo) -> Iterator[InnerStep]:
    tensor = info.operand(0)
    along = {
        factor.operands[0]: index for index, factor in enumerate(factors) if 0 in factor.operands
    }
    if tensor is None or halo.dim not in along or not (halo.reach or halo.is_short):
        return
    split = along.pop(halo.dim)
    others = tuple(along.values())
    points = count([factors[index].factor(info).size for index in others])
    size = count([tensor.sizes[halo.dim]])
    each = tensor.elements * tensor.item_bytes // (size * points)
    sides = [side for side in (halo.before, halo.after) if side > 0]
    if sides:
        kind: StepKind = "exchange" if len(sides) == 2 else "collective_permute"
        yield InnerStep((split,), others, halo.reach * each, kind)
    for rows in (sum(sides), sum(sides), *sides) if sides else ():
        yield InnerStep((split,), others, rows * each, "copy")
    stride = size // count([factors[split].factor(info).size])
    yield InnerStep((split,), (split, *others), stride * each, "copy")


def cut_windows(local: LocalOp) -> list[Window]:
    """Return the windows of spatial dimensions that the strategy splits and that are not local.

    They cross a boundary between parts, or reach into padding.
    """
    layout = local.strategy.operands[0]
    windows = windows_of(local.info)
    return [w for w in windows if layout.axes_splitting(w.dim) and not w.is_local]


def add_halo(
    local: LocalOp, fill: float, given: Sequence[Halo] = ()
) -> tuple[dict[int, ir.Value], dict[str, ir.Attribute]]:
    """Return operand 0 with its halos and the matching attributes, as arguments of ``clone``.

    ``fill`` is the value of padding; ``given`` are the halos of dimensions along which windows are
    split too. Both results are empty if every window is inside one part.
    """
    found = {window.dim: window.halo for window in cut_windows(local)}
    found |= {halo.dim: halo for halo in given}
    if not found:
        return {}, {}
    windows = [
        replace(window, begin=0, end=0) if window.dim in found else window
        for window in windows_of(local.info)
    ]
    pads = [window.begin for window in windows] + [window.end for window in windows]
    attributes = {"pads": ints_attr(pads), "auto_pad": ir.StringAttr.get("NOTSET")}
    return {0: widen(local, list(found.values()), fill)}, attributes


def widen(local: LocalOp, halos: Sequence[Halo], fill: float) -> ir.Value:
    """Return operand 0 extended by its neighbours' edges along the dimensions of ``halos``."""
    x = local.operands[0]
    for halo in halos:
        x = _surround(local, x, halo, fill)
    return x


def _surround(local: LocalOp, x: ir.Value, halo: Halo, fill: float) -> ir.Value:
    """Return ``x`` extended by its neighbours' edges along one dimension.

    The received edges are concatenated, followed by an edge of ``fill``. Each side is gathered from
    there, at indices that differ between ranks.
    """
    make, dim, size = Arithmetic(local), halo.dim, shape_of(x)[halo.dim] or 0
    first, last = max(-halo.before, 0), size + min(halo.after, 0)
    own = x if (first, last) == (0, size) else make.slice(x, dim, first, last)
    if not halo.reach:
        return own
    axes = local.strategy.operands[0].axes_splitting(dim)
    rounds = _rounds(halo, local.mesh.extent(axes))
    edges = [
        local.collective("collective_permute", _edge(local, x, halo, to, axes), axes, sources=to)
        for to in rounds
    ]
    received = make.pad(make.concat(edges, dim), dim, (0, halo.reach), fill)
    before, after = (
        [make.take(received, local.axis_constant(places, axes), dim)] if places.size else []
        for places in _places(halo, rounds)
    )
    return make.concat([*before, own, *after], dim)


def _rounds(halo: Halo, parts: int) -> list[list[int]]:
    """Return, per message, the source of each part; itself if it has no neighbour."""
    step = 1 if halo.before <= 0 else -1
    if min(halo.before, halo.after) <= 0:
        return [[(part + step) % parts for part in range(parts)]]
    count = min(2, parts - 1)
    pairs = ([((part + odd) ^ 1) - odd for part in range(parts)] for odd in range(count))
    return [
        [other if 0 <= other < parts else part for part, other in enumerate(others)]
        for others in pairs
    ]


def _edge(
    local: LocalOp, x: ir.Value, halo: Halo, others: Sequence[int], axes: Sequence[int]
) -> ir.Value:
    """Return the edge of ``x`` that a rank sends in the message with sources ``others``.

    If neighbours swap, it is the edge next to the neighbour.
    """
    import numpy as np

    make, dim, size = Arithmetic(local), halo.dim, shape_of(x)[halo.dim] or 0
    start, end = np.arange(halo.reach), np.arange(size - halo.reach, size)
    if min(halo.before, halo.after) <= 0:
        return make.take(x, local.constant(start if halo.before <= 0 else end), dim)
    places = [end if other > part else start for part, other in enumerate(others)]
    return make.take(x, local.axis_constant(np.stack(places), axes), dim)


def _places(
    halo: Halo, rounds: Sequence[Sequence[int]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the indices, in all received edges, of the elements before and after each part.

    Shapes: (parts, elements).
    """
    import numpy as np

    parts = range(len(rounds[0]))

    def start(part: int, other: int) -> int:
        known = other in parts
        found = [at for at, others in enumerate(rounds) if known and others[part] == other]
        return (found or [len(rounds)])[0] * halo.reach

    before, after = max(halo.before, 0), max(halo.after, 0)
    left = np.array([[start(part, part - 1) + halo.reach - before] for part in parts])
    right = np.array([[start(part, part + 1)] for part in parts])
    return left + np.arange(before), right + np.arange(after)
