"""Halo exchange: ranks that hold neighbouring parts of a dimension give each other their edges.

Neighbours swap edges in pairs: the first with the second, the third with the fourth, and so on,
then the second with the third. So a rank sends and gets one edge per neighbour, which is the least
that there is, in one message among two ranks and in two among more. Where an op reads on one side
only, every rank sends its edge on to the next one, in one message. What stands for padding takes
the place of the neighbour that the first and the last rank lack. The op then runs without padding
along the dimension on a part that holds all that it reads. Along several dimensions one exchange
follows the other, and takes on what came with those before it: so corners come from where they lie.
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

__all__ = ["can_exchange", "crossed", "halos_of", "inner_exchange", "widened", "with_halo"]

_TYPES = frozenset(("float16", "float32", "float64", "int8", "uint8"))


def halos_of(info: OpInfo) -> tuple[Window, ...]:
    """Return the windows that parts can be split along if they get the edges of their neighbours.

    Those of a dimension are left out unless there are as many elements per window as the stride, so
    that the windows of every part lie in it alike, and where `ceil_mode` could add one to each.
    """
    windows = windows_of(info)
    cropped = any(min(window.begin, window.end) < 0 for window in windows)
    if cropped or not can_exchange(info):
        return ()
    return tuple(window for window in windows if _is_alike(info, window))


def can_exchange(info: OpInfo) -> bool:
    """Say whether edges of operand 0 can be cut off, sent and put around another part."""
    tensor = info.operand(0)
    known = tensor is not None and tensor.dtype in _TYPES
    return known and info.standard_version >= BROADCAST_VERSION


def _is_alike(info: OpInfo, window: Window) -> bool:
    long, windows = info.shape(0)[window.dim], info.result_shape()[window.dim]
    if windows is None or long != windows * window.stride or window.begin >= window.extent:
        return False
    return window.reach >= 0 or not info.attribute("ceil_mode", 0)


def inner_exchange(
    info: OpInfo, factors: Sequence[FactorMap], halos: Sequence[Halo]
) -> tuple[InnerStep, ...]:
    """Return what the exchanges along the dimensions of ``halos`` cost, nothing without edges.

    Edges are picked and sent, padding is put behind them and picked from, then the part is copied
    between them. Corners, which are few, are left out.
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
        yield InnerStep((split,), others, halo.reach * each, _kind(halo))
    for rows in (sum(sides), sum(sides), *sides) if sides else ():
        yield InnerStep((split,), others, rows * each, "copy")
    stride = size // count([factors[split].factor(info).size])
    yield InnerStep((split,), (split, *others), stride * each, "copy")


def _kind(halo: Halo) -> StepKind:
    return "exchange" if min(halo.before, halo.after) > 0 else "collective_permute"


def crossed(local: LocalOp) -> list[Window]:
    """Return the windows that the cuts of the strategy at hand go through.

    So they do where a cut dimension has padding, too.
    """
    layout = local.strategy.operands[0]
    windows = windows_of(local.info)
    return [w for w in windows if layout.axes_splitting(w.dim) and not w.is_local]


def with_halo(
    local: LocalOp, fill: float, given: Sequence[Halo] = ()
) -> tuple[dict[int, ir.Value], dict[str, ir.Attribute]]:
    """Return operand 0 with its halos and the attributes that go with it, as ``clone`` takes them.

    ``fill`` is what padding holds, ``given`` the halos of dimensions along which windows are cut
    too. Both are empty where every window lies in one part.
    """
    found = {window.dim: window.halo for window in crossed(local)}
    found |= {halo.dim: halo for halo in given}
    if not found:
        return {}, {}
    windows = [
        replace(window, begin=0, end=0) if window.dim in found else window
        for window in windows_of(local.info)
    ]
    pads = [held.begin for held in windows] + [held.end for held in windows]
    attributes = {"pads": ints_attr(pads), "auto_pad": ir.StringAttr.get("NOTSET")}
    return {0: widened(local, list(found.values()), fill)}, attributes


def widened(local: LocalOp, halos: Sequence[Halo], fill: float) -> ir.Value:
    """Return operand 0 between the edges of its neighbours along the dimensions of ``halos``."""
    x = local.operands[0]
    for halo in halos:
        x = _between(local, x, halo, fill)
    return x


def _between(local: LocalOp, x: ir.Value, halo: Halo, fill: float) -> ir.Value:
    """Return ``x`` between the edges of its neighbours along one dimension.

    The edges that came lie behind each other, and behind them as much of ``fill``: each side is
    picked there, at places that differ between ranks.
    """
    make, dim, size = Arithmetic(local), halo.dim, shape_of(x)[halo.dim] or 0
    first, last = max(-halo.before, 0), size + min(halo.after, 0)
    own = x if (first, last) == (0, size) else make.slice(x, dim, first, last)
    if not halo.reach:
        return own
    axes = local.strategy.operands[0].axes_splitting(dim)
    rounds = _rounds(halo, local.mesh.extent(axes))
    came = [local.collective_permute(_edge(local, x, halo, to, axes), axes, to) for to in rounds]
    held = make.pad(make.concat(came, dim), dim, (0, halo.reach), fill)
    before, after = (
        [make.take(held, local.axis_constant(places, axes), dim)] if places.size else []
        for places in _places(halo, rounds)
    )
    return make.concat([*before, own, *after], dim)


def _rounds(halo: Halo, parts: int) -> list[list[int]]:
    """Return, per message, from which part each gets an edge: itself where it has no neighbour."""
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
    """Return the edge of ``x`` that a rank sends in a message in which it hears of ``others``.

    Where neighbours swap, that is the one beside the neighbour.
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
    """Return where each part finds what is before it and behind it, among all that came.

    Shapes: (parts, elements).
    """
    import numpy as np

    parts = range(len(rounds[0]))

    def came(part: int, other: int) -> int:
        known = other in parts
        found = [at for at, others in enumerate(rounds) if known and others[part] == other]
        return (found or [len(rounds)])[0] * halo.reach

    before, after = max(halo.before, 0), max(halo.after, 0)
    left = np.array([[came(part, part - 1) + halo.reach - before] for part in parts])
    right = np.array([[came(part, part + 1)] for part in parts])
    return left + np.arange(before), right + np.arange(after)
