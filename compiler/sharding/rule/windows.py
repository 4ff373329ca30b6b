"""Sliding windows: their positions, and the spatial dimensions that can be split.

If windows tile the input, a part needs no data from its neighbours. If they overlap or reach into
padding, it needs their edges: see :mod:`tensoropt.compiler.sharding.rule.halo`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensoropt.compiler.layout.sizes import Size, mean_of
from tensoropt.compiler.sharding.rule.factors import FactorMap
from tensoropt.compiler.sharding.rule.op_info import OpInfo, Shape

__all__ = [
    "Halo",
    "Window",
    "ceil_adds",
    "count",
    "even_padding",
    "kernel_of",
    "padded_windows",
    "spatial_loops",
    "tap_halo",
    "window_loop",
    "windows_back_of",
    "windows_of",
]


@dataclass(frozen=True)
class Halo:
    """Numbers of elements along ``dim`` of operand 0 that a part reads before and after its own.

    If one is negative, that many elements of the part itself are not read at that end.
    """

    dim: int
    before: int
    after: int

    @property
    def reach(self) -> int:
        """Largest number of elements read from one neighbour."""
        return max(self.before, self.after, 0)

    @property
    def is_short(self) -> bool:
        """True if some of a part's own elements are not read."""
        return min(self.before, self.after) < 0


@dataclass(frozen=True)
class Window:
    """Windows along dimension ``dim`` of operand 0; all lengths are in its elements.

    A window has ``taps`` elements, ``dilation`` apart. Windows start ``stride`` apart, the first of
    them ``begin`` before the input. ``end`` is the padding after the input. ``begin`` and ``end``
    are negative if elements are left out instead.
    """

    dim: int
    taps: int
    stride: int
    dilation: int
    begin: int
    end: int

    @property
    def extent(self) -> int:
        """Length from the first element of a window to its last, inclusive."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def reach(self) -> int:
        """Distance from the end of a part to the end of its last window; negative if inside."""
        return self.extent - self.stride - self.begin

    @property
    def after(self) -> int:
        """Number of elements after a part that its windows read."""
        return max(self.reach, 0)

    @property
    def halo(self) -> Halo:
        """Halo of the elements that a part reads from its neighbours."""
        return Halo(self.dim, self.begin, self.after)

    @property
    def halo_back(self) -> Halo:
        """Halo of a part of operand 0 of a ConvTranspose, with windows in its result."""
        before = max((self.extent - 1 - self.begin) // self.stride, 0)
        return Halo(self.dim, before, -(-self.begin // self.stride))

    @property
    def is_local(self) -> bool:
        """True if the windows of a part are inside it, so that the local op is a plain copy.

        No window may read the elements left out at the end, which other windows of the part read.
        """
        return max(self.begin, self.end) <= 0 and self.reach <= self.end

    @property
    def least(self) -> int:
        """Fewest windows of a part that contains every element its neighbours read from it."""
        return max(1, -(-max(self.begin, self.after) // self.stride))


def padded_windows(
    size: int,
    taps: int,
    stride: int,
    dilation: int,
    begin: int,
    end: int,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
) -> tuple[int, int, int]:
    """Return the number of windows of a pool over ``size`` elements, and the padding at both ends.

    Count as ONNX Runtime does, which differs from the standard. SAME ignores dilations, and may
    leave out elements at both ends if the stride exceeds the window. With ``ceil_mode``, a last
    window that would begin in the padding does not count. The number of windows may be 0.
    """
    if auto_pad == "VALID":
        begin = end = 0
    elif auto_pad.startswith("SAME"):
        total = (-(-size // stride) - 1) * stride + taps - size
        begin = int((total + (auto_pad == "SAME_LOWER")) / 2)
        end = total - begin
    room = size + begin + end - (taps - 1) * dilation - 1
    if not ceil_mode:
        return int(room / stride) + 1, begin, end
    count = -(-room // stride) + 1
    return count - ((count - 1) * stride >= size + begin), begin, end


def ceil_adds(info: OpInfo) -> bool:
    """Return whether `ceil_mode` adds a window to a pool; true if a size is unknown."""
    windows = windows_of(info)
    for window in windows:
        size = info.shape(0)[window.dim]
        if size is None:
            return True
        row = (size, window.taps, window.stride, window.dilation, window.begin, window.end)
        if padded_windows(*row, ceil_mode=True) != padded_windows(*row):
            return True
    return not windows


def kernel_of(info: OpInfo) -> Shape:
    """Return the sizes of a window: the attribute `kernel_shape`, or the sizes of the weight."""
    attribute = info.attribute("kernel_shape")
    return tuple(attribute) if attribute else info.shape(1)[2:]


def windows_of(info: OpInfo) -> tuple[Window, ...]:
    """Return the windows along every spatial dimension; empty if any of them is unknown."""
    kernel, pads = kernel_of(info), _pads(info)
    if pads is None or None in kernel:
        return ()
    strides, dilations = (_spatial(info, name, len(kernel)) for name in ("strides", "dilations"))
    rows = zip(kernel, strides, dilations, *pads, strict=True)
    return tuple(Window(dim + 2, size or 0, *row) for dim, (size, *row) in enumerate(rows))


def windows_back_of(info: OpInfo) -> tuple[Window, ...]:
    """Return the windows in the result of a ConvTranspose over which operand 0 is spread.

    With `auto_pad` or `output_shape`, the total padding follows from the sizes (ONNX
    specification). If the total is odd, SAME_UPPER puts the smaller half in front, every other mode
    the larger half.
    """
    rank = len(info.shape(0)) - 2
    strides, dilations = (
        list(info.attribute(name, ())) or [1] * rank for name in ("strides", "dilations")
    )
    rows = enumerate(zip(kernel_of(info), strides, dilations, strict=True), 2)
    windows = [Window(d, k or 0, stride, dilation, 0, 0) for d, (k, stride, dilation) in rows]
    return tuple(replace(w, begin=_begin_back(info, w)) for w in windows)


def _begin_back(info: OpInfo, window: Window) -> int:
    dim, rank = window.dim - 2, len(info.shape(0)) - 2
    mode = str(info.attribute("auto_pad", "NOTSET"))
    given = bool(info.attribute("output_shape"))
    if not given and not mode.startswith("SAME"):
        return int((info.attribute("pads", ()) or [0] * 2 * rank)[dim]) if mode == "NOTSET" else 0
    extra = (info.attribute("output_padding", ()) or [0] * rank)[dim]
    whole = ((info.shape(0)[window.dim] or 0) - 1) * window.stride + window.extent + extra
    total: int = max(0, whole - (info.result_shape()[window.dim] or 0))
    return total // 2 if mode == "SAME_UPPER" else total - total // 2


def _pads(info: OpInfo) -> tuple[list[int], list[int]] | None:
    """Return the padding before and after every spatial dimension, with `auto_pad` resolved."""
    mode, rank = str(info.attribute("auto_pad", "NOTSET")), len(info.shape(0)) - 2
    if not mode.startswith("SAME"):
        pads = list(info.attribute("pads", ())) if mode == "NOTSET" else []
        pads = pads or [0] * 2 * rank
        return pads[:rank], pads[rank:]
    if len(info.operands) == 1:
        return _same_pools(info, mode)
    totals = _same_totals(info)
    if totals is None:
        return None
    smaller, larger = [n // 2 for n in totals], [n - n // 2 for n in totals]
    return (smaller, larger) if mode == "SAME_UPPER" else (larger, smaller)


def _same_pools(info: OpInfo, mode: str) -> tuple[list[int], list[int]] | None:
    """Return the SAME padding of each spatial dimension of a pool, which has no weight."""
    kernel, sizes = kernel_of(info), info.shape(0)[2:]
    if None in (*kernel, *sizes):
        return None
    strides = _spatial(info, "strides", len(kernel))
    rows = [
        padded_windows(size or 0, taps or 0, stride, 1, 0, 0, auto_pad=mode)[1:]
        for size, taps, stride in zip(sizes, kernel, strides, strict=True)
    ]
    return [begin for begin, _ in rows], [end for _, end in rows]


def _same_totals(info: OpInfo) -> list[int] | None:
    """Return the total SAME padding of each spatial dimension, or ``None`` if a size is unknown."""
    kernel, sizes, made = kernel_of(info), info.shape(0)[2:], info.result_shape()[2:]
    if None in (*kernel, *sizes, *made):
        return None
    strides, dilations = (_spatial(info, name, len(kernel)) for name in ("strides", "dilations"))
    rows = zip(kernel, sizes, made, strides, dilations, strict=True)
    return [
        max(0, ((m or 0) - 1) * stride + ((k or 0) - 1) * dilation + 1 - (n or 0))
        for k, n, m, stride, dilation in rows
    ]


def tap_halo(info: OpInfo, window: Window) -> Halo | None:
    """Return the halo for splitting image and weight of a Conv along the same dimension.

    The split is possible if the size of the image is taps times dilation: the taps of a part then
    read, over all windows, only the neighbourhood of one part of the image. Return ``None``
    otherwise.
    """
    size, count = info.shape(0)[window.dim], info.result_shape()[window.dim]
    if not size or not count or window.begin < 0 or size != window.taps * window.dilation:
        return None
    after = (count - 1) * window.stride - window.begin - (window.dilation - 1)
    return Halo(window.dim, window.begin, after)


def even_padding(begin: int, end: int, stride: int) -> tuple[int, int, int, int]:
    """Return equal padding of both ends, output padding, and elements to crop in front and after.

    Together they are equivalent to padding a ConvTranspose by ``begin`` and ``end``, which may be
    negative. ONNX Runtime's CUDA kernel requires equal padding at both ends. The output padding is
    less than a stride, so the number of windows does not change.
    """
    if begin - end < stride:
        return begin, max(0, begin - end), 0, max(0, end - begin)
    return max(0, end), max(0, -end), begin - max(0, end), 0


def spatial_loops(
    info: OpInfo,
    kernel: Sequence[int | None],
    windows: Shape,
    *,
    side: str,
    exact: bool = False,
    halos: Sequence[Window] = (),
) -> list[FactorMap]:
    """Return one factor per spatial dimension, over its windows, shared by input and result.

    ``windows`` are the numbers of windows; ``side`` names the tensor, operand or result, with one
    element per window. A factor can be split if the windows tile the other tensor, because the part
    of a rank then contains whole windows. ``exact`` requires tiles without gaps. A dimension in
    ``halos`` can also be split, into parts at least as long as the elements that their neighbours
    read.
    """
    factors, least = [], {window.dim: window.least for window in halos}
    for dim, size in enumerate(kernel, start=2):
        split = FactorMap({0: dim}, {0: dim}, size=windows[dim - 2])
        if _tiles(info, dim - 2, size, windows, exact):
            factors.append(split)
        elif dim in least:
            factors.append(replace(split, least=least[dim]))
        else:
            sides = ({0: dim}, {}) if side == "operand" else ({}, {0: dim})
            factors.append(FactorMap(*sides, can_split=False))
    return factors


def _tiles(info: OpInfo, dim: int, size: int | None, windows: Shape, exact: bool) -> bool:
    """Return whether windows along ``dim`` neither overlap nor reach into padding."""
    long = max(info.shape(0)[dim + 2] or 0, info.result_shape()[dim + 2] or 0)
    stride = _spatial(info, "strides", len(windows))[dim]
    if size is None or windows[dim] is None or long != (windows[dim] or 0) * stride:
        return False
    if _is_padded(info, dim):
        return False
    extent = (size - 1) * _spatial(info, "dilations", len(windows))[dim] + 1
    return extent == stride if exact else extent <= stride


def _is_padded(info: OpInfo, dim: int) -> bool:
    """Return whether windows reach into padding; SAME adds none if the windows of a Conv tile."""
    if len(info.operands) == 1 and str(info.attribute("auto_pad", "")).startswith("SAME"):
        windows = windows_of(info)
        return not windows or not windows[dim].is_local
    pads = info.attribute("pads", ())
    return bool(pads) and any(pads[dim :: len(pads) // 2])


def _spatial(info: OpInfo, name: str, rank: int) -> list[int]:
    return list(info.attribute(name, ())) or [1] * rank


def window_loop(sizes: Sequence[Size]) -> FactorMap:
    """Return the factor over loops that stay whole: the elements of a window."""
    return FactorMap({}, size=count(sizes), can_split=False)


def count(sizes: Sequence[Size]) -> int:
    """Return the product of ``sizes`` at the mean of ranges; 0 or an unknown size counts as 1."""
    return math.prod(mean_of([size]) or 1 for size in sizes)
