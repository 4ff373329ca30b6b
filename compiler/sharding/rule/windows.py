"""Sliding windows: where they lie, and which spatial dimensions of an op can be split.

Where windows tile the input, a part needs nothing of its neighbours. Where they overlap or reach
into padding, it needs their edges: see :mod:`tensoropt.compiler.sharding.rule.halo`.
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
    "evened",
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
    """How many elements along ``dim`` of operand 0 a part reads before it and behind it.

    Where one is negative, so many of its own elements at that end are not read.
    """

    dim: int
    before: int
    after: int

    @property
    def reach(self) -> int:
        """The most that is read of one neighbour."""
        return max(self.before, self.after, 0)

    @property
    def is_short(self) -> bool:
        """Whether some of a part's own elements are not read."""
        return min(self.before, self.after) < 0


@dataclass(frozen=True)
class Window:
    """The windows along dimension ``dim`` of operand 0, lengths in elements of it.

    A window has ``taps`` elements, ``dilation`` apart; windows start ``stride`` apart, the first
    ``begin`` before the input. ``end`` is the padding behind it. Both are negative where elements
    are left out instead.
    """

    dim: int
    taps: int
    stride: int
    dilation: int
    begin: int
    end: int

    @property
    def extent(self) -> int:
        """From the first element of a window to its last, both counted."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def reach(self) -> int:
        """How far the last window of a part ends behind it; negative where it ends before."""
        return self.extent - self.stride - self.begin

    @property
    def after(self) -> int:
        """How much of what follows a part its windows read."""
        return max(self.reach, 0)

    @property
    def halo(self) -> Halo:
        """What a part reads of its neighbours."""
        return Halo(self.dim, self.begin, self.after)

    @property
    def halo_back(self) -> Halo:
        """What a part of the elements that each spread over a window reads of its neighbours.

        Those are of operand 0 of a ConvTranspose, in whose result the windows lie.
        """
        before = max((self.extent - 1 - self.begin) // self.stride, 0)
        return Halo(self.dim, before, -(-self.begin // self.stride))

    @property
    def is_local(self) -> bool:
        """Whether the windows of a part lie in it, so that its op is a plain copy.

        None may read what is left out at the end, which of a part is what others read.
        """
        return max(self.begin, self.end) <= 0 and self.reach <= self.end

    @property
    def least(self) -> int:
        """The fewest windows of a part that holds all that a neighbour reads of it."""
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
    """Return how many windows pooling has over ``size`` elements, and the padding at both ends.

    As ONNX Runtime counts, which differs from the standard: SAME does not see dilations, and may
    leave elements out at both ends where windows are further apart than they are long; with
    ``ceil_mode`` a last window that would begin in the padding is none; there may be no window.
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
    """Say whether `ceil_mode` gives a pool a window that it has not without; so it may where a size
    is not known."""
    windows = windows_of(info)
    return not windows or any(_ceil_adds(info.shape(0)[window.dim], window) for window in windows)


def _ceil_adds(size: int | None, window: Window) -> bool:
    if size is None:
        return True
    row = (size, window.taps, window.stride, window.dilation, window.begin, window.end)
    return padded_windows(*row, ceil_mode=True) != padded_windows(*row)


def kernel_of(info: OpInfo) -> Shape:
    """Return the sizes of a window: those of the weight where no attribute gives them."""
    attribute = info.attribute("kernel_shape")
    return tuple(attribute) if attribute else info.shape(1)[2:]


def windows_of(info: OpInfo) -> tuple[Window, ...]:
    """Return the windows along every spatial dimension; none at all where any is not known."""
    kernel, pads = kernel_of(info), _pads(info)
    if pads is None or None in kernel:
        return ()
    strides, dilations = (_spatial(info, name, len(kernel)) for name in ("strides", "dilations"))
    rows = zip(kernel, strides, dilations, *pads, strict=True)
    return tuple(Window(dim + 2, size or 0, *row) for dim, (size, *row) in enumerate(rows))


def windows_back_of(info: OpInfo) -> tuple[Window, ...]:
    """Return where the elements of operand 0 of a ConvTranspose lie in its result.

    The operator's page: total padding follows from the sizes where `auto_pad` or `output_shape`
    say so; of an odd one the smaller half is in front with SAME_UPPER, else the larger.
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
    """Return the padding before and behind every spatial dimension, `auto_pad` resolved."""
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
    """Return how SAME pads each spatial dimension of pooling, which has no weight."""
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
    """Return how much SAME pads each spatial dimension, ``None`` where a size is not known."""
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
    """Return what is read of neighbours where image and weight of a Conv are cut alike.

    So they can be where there are as many elements as taps times the gap between these: each part
    of the taps meets, in all windows, what lies beside a part of the image. ``None`` elsewhere.
    """
    size, count = info.shape(0)[window.dim], info.result_shape()[window.dim]
    if not size or not count or window.begin < 0 or size != window.taps * window.dilation:
        return None
    after = (count - 1) * window.stride - window.begin - (window.dilation - 1)
    return Halo(window.dim, window.begin, after)


def evened(begin: int, end: int, stride: int) -> tuple[int, int, int, int]:
    """Return padding of both ends, of the output, and elements to cut off in front and behind.

    They stand for padding of a ConvTranspose by ``begin`` and ``end``, which may be negative:
    ONNX Runtime's kernel for CUDA asks for as much at both ends. Padding of the output is less than
    a stride, so that there are as many windows as before.
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
    """Return a factor over the windows of each spatial dimension, of input and result alike.

    ``windows`` is how many there are; ``side`` names the tensor, operand or result, that has one
    element per window. A factor can be split where the windows tile the other tensor: the part of a
    rank then holds whole windows. ``exact`` asks for tiles without gaps. So it can along the
    dimensions of ``halos``, in parts that are at least as long as what their neighbours read.
    """
    factors, least = [], {window.dim: window.least for window in halos}
    for dim, size in enumerate(kernel, start=2):
        split = FactorMap({0: dim}, {0: dim}, size=windows[dim - 2])
        if _tiles(info, dim - 2, size, windows, exact):
            factors.append(split)
        elif dim in least:
            factors.append(replace(split, least=least[dim]))
        else:
            factors.append(FactorMap(*_on_side(side, dim), can_split=False))
    return factors


def _on_side(side: str, dim: int) -> tuple[dict[int, int], dict[int, int]]:
    return ({0: dim}, {}) if side == "operand" else ({}, {0: dim})


def _tiles(info: OpInfo, dim: int, size: int | None, windows: Shape, exact: bool) -> bool:
    """Say whether windows along ``dim`` neither overlap nor reach into padding."""
    long = max(info.shape(0)[dim + 2] or 0, info.result_shape()[dim + 2] or 0)
    stride = _spatial(info, "strides", len(windows))[dim]
    if size is None or windows[dim] is None or long != (windows[dim] or 0) * stride:
        return False
    if _is_padded(info, dim):
        return False
    extent = (size - 1) * _spatial(info, "dilations", len(windows))[dim] + 1
    return extent == stride if exact else extent <= stride


def _is_padded(info: OpInfo, dim: int) -> bool:
    """Say whether windows reach into padding; what SAME adds to Conv is nothing where they tile."""
    if len(info.operands) == 1 and str(info.attribute("auto_pad", "")).startswith("SAME"):
        windows = windows_of(info)
        return not windows or not windows[dim].is_local
    pads = info.attribute("pads", ())
    return bool(pads) and any(pads[dim :: len(pads) // 2])


def _spatial(info: OpInfo, name: str, rank: int) -> list[int]:
    return list(info.attribute(name, ())) or [1] * rank


def window_loop(sizes: Sequence[Size]) -> FactorMap:
    """Return the factor over what stays whole: the elements of a window."""
    return FactorMap({}, size=count(sizes), can_split=False)


def count(sizes: Sequence[Size]) -> int:
    """Return the product of ``sizes`` at the mean of ranges; 0, or one not known, counts as 1."""
    return math.prod(mean_of([size]) or 1 for size in sizes)
