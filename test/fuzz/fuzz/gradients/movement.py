"""What moves, repeats, joins and cuts elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fuzz.gradients.draft import Draft, UnfitError, Value, maker

__all__: list[str] = []

_FAR = (2**63 - 1, -(2**63), 2**31 - 1, 1000, -1000)


@maker(2)
def reshape(d: Draft) -> None:
    x = d.pick()
    shape = _factors(d, x.size)
    given = list(shape)
    zeros = 0 in shape
    if not zeros and given and d.chance(0.4):
        given[d.whole(0, len(given) - 1)] = -1
    for dim in range(min(len(given), x.rank)):
        if given[dim] == x.shape[dim] and not zeros and d.chance(0.3):
            given[dim] = 0
    held = {"allowzero": 1} if zeros else {}
    if zeros and -1 in given:
        raise UnfitError
    d.add("Reshape", [x, d.ints(given)], lambda x, _: x.reshape(shape), held)


def _factors(d: Draft, size: int) -> list[int]:
    """Return a shape of ``size`` elements."""
    if size == 0:
        return [0 if d.chance(0.5) else d.whole(1, 3), 0]
    shape, left = [], size
    while left > 1:
        factor = d.choice([n for n in range(2, left + 1) if left % n == 0])
        shape.append(factor)
        left //= factor
    shape += [1] * d.whole(0, 1)
    return [int(n) for n in d.rng.permutation(shape)][:5] if len(shape) <= 5 else [size]


@maker(0.5)
def reshape_by_shape(d: Draft) -> None:
    """To the shape of another value, which is computed."""
    x = d.pick()
    y = d.choice([v for v in d.floats() if v.size == x.size])
    kind = d.add("Shape", [y], lambda y: torch.tensor(y.shape))
    if d.chance(0.3):
        one = d.ints([1])
        kind = d.add("Concat", [one, kind], lambda *xs: torch.cat(xs), {"axis": 0})
    shape = kind.tensor.tolist()
    if 0 in shape:
        raise UnfitError
    d.add("Reshape", [x, kind], lambda x, _: x.reshape(shape))


@maker(0.7)
def flatten(d: Draft) -> None:
    x = d.pick()
    axis = d.whole(-x.rank, x.rank)
    at = axis % x.rank if axis < 0 else axis
    shape = [math.prod(x.shape[:at]), math.prod(x.shape[at:])]
    d.add("Flatten", [x], lambda x: x.reshape(shape), {"axis": axis})


@maker(1)
def squeeze(d: Draft) -> None:
    x = d.pick(range(1, 5), lambda v: 1 in v.shape)
    ones = [dim for dim, n in enumerate(x.shape) if n == 1]
    if d.chance(0.3):
        shape = [n for n in x.shape if n != 1]
        d.add("Squeeze", [x], lambda x: x.reshape(shape))
        return
    gone = [dim for dim in ones if d.chance(0.6)] or ones[:1]
    shape = [n for dim, n in enumerate(x.shape) if dim not in gone]
    axes = d.ints([d.signed(dim, x.rank) for dim in gone])
    d.add("Squeeze", [x, axes], lambda x, _: x.reshape(shape))


@maker(1)
def unsqueeze(d: Draft) -> None:
    x = d.pick(range(4))
    count = d.whole(1, 2)
    rank = x.rank + count
    dims = sorted(int(i) for i in d.rng.permutation(rank)[:count])
    sizes = iter(x.shape)
    shape = [1 if dim in dims else next(sizes) for dim in range(rank)]
    axes = [d.signed(dim, rank) for dim in d.rng.permutation(dims)]
    d.add("Unsqueeze", [x, d.ints(axes)], lambda x, _: x.reshape(shape))


@maker(1.5)
def transpose(d: Draft) -> None:
    x = d.pick(range(1, 6))
    if d.chance(0.2):
        d.add("Transpose", [x], lambda x: x.permute(*reversed(range(x.ndim))))
        return
    order = [int(dim) for dim in d.rng.permutation(x.rank)]
    d.add("Transpose", [x], lambda x: x.permute(order), {"perm": order})


@maker(1)
def expand(d: Draft) -> None:
    x = d.pick()
    shape = [d.size() if n == 1 else n for n in x.shape]
    given = [1 if d.chance(0.2) and own == n else n for own, n in zip(x.shape, shape, strict=True)]
    extra = [d.whole(1, 3)] if x.rank < 4 and d.chance(0.3) else []
    cut = d.whole(0, len(given)) if not extra and shape == x.shape else 0
    whole = [*extra, *shape]
    d.add("Expand", [x, d.ints([*extra, *given][cut:])], lambda x, _: x.expand(whole).clone())


@maker(1)
def tile(d: Draft) -> None:
    x = d.pick(range(1, 5))
    times = [d.choice([1, 1, 2, 3]) for _ in range(x.rank)]
    d.add("Tile", [x, d.ints(times)], lambda x, _: x.repeat(times))


@maker(2)
def concat(d: Draft) -> None:
    x = d.pick(range(1, 5))
    axis = d.axis(x.rank)
    parts = [x]
    for _ in range(d.whole(0, 3)):
        shape = list(x.shape)
        shape[axis] = d.size()
        parts.append(x if d.chance(0.15) else d.like(shape))
    parts = [parts[int(i)] for i in d.rng.permutation(len(parts))]
    d.add("Concat", parts, lambda *xs: torch.cat(xs, axis), {"axis": axis})


@maker(2)
def split(d: Draft) -> None:
    x = d.pick(range(1, 5))
    axis = d.axis(x.rank)
    size, count = x.shape[axis], d.whole(1, 3)
    held: dict[str, int] = {"axis": axis}
    operands = [x]
    if d.chance(0.5):
        cuts = sorted(d.whole(0, size) for _ in range(count - 1))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
        operands.append(d.ints(sizes))
    else:
        each = -(-size // count)
        sizes = [each] * (count - 1)
        sizes.append(size - sum(sizes))
        held["num_outputs"] = count
        if min(sizes) < 0 or (sizes[-1] == 0 and size):
            raise UnfitError
    function = lambda x, *_: x.split(sizes, axis)  # noqa: E731
    made = d.add_many("Split", operands, function, held, there=[True] * count)
    d.used.update(v.name for v in made[1:] if d.chance(0.3))  # nothing need depend on a part


@maker(3)
def slice_(d: Draft) -> None:
    x = d.pick(range(1, 5))
    dims = sorted(int(i) for i in d.rng.permutation(x.rank)[: d.whole(1, x.rank)])
    whole, rows = [slice(None)] * x.rank, []
    picks: dict[int, list[int]] = {}
    for dim in dims:
        start, end, step = _bounds(d, x.shape[dim])
        rows.append((start, end, dim, step))
        picks[dim] = _taken(x.shape[dim], start, end, step)
    starts, ends, axes, steps = ([row[i] for row in rows] for i in range(4))
    operands: list[Value | None] = [x, d.ints(starts), d.ints(ends)]
    plain, ordered = all(step == 1 for step in steps), dims == list(range(len(dims)))
    if not (plain and ordered and d.chance(0.5)):
        given = None if ordered and d.chance(0.3) else d.ints([d.signed(a, x.rank) for a in axes])
        operands.append(given)
        operands += [] if plain and given is not None and d.chance(0.3) else [d.ints(steps)]
    del whole

    def cut(x: Any, *_: Any) -> Any:
        for dim, taken in picks.items():
            x = x.index_select(dim, torch.tensor(taken, dtype=torch.long))
        return x

    d.add("Slice", operands, cut)


def _bounds(d: Draft, size: int) -> tuple[int, int, int]:
    """Return start, end and step, which may lie far outside."""
    step = d.choice([1, 1, 1, 2, 3, -1, -1, -2, -3])
    start, end = (d.choice(_FAR) if d.chance(0.2) else d.whole(-size - 1, size + 1) for _ in "ab")
    if step < 0 and start < end and d.chance(0.7):
        start, end = end, start
    return start, end, step


def _taken(size: int, start: int, end: int, step: int) -> list[int]:
    """Return the elements that ONNX Runtime takes: it reads the largest numbers as "to the end".

    A start before the first element is the first, also where a step goes back.
    """
    if end in (2**63 - 1, 2**31 - 1):
        end = -(2**63) if step < 0 else size
    return list(range(size)[slice(max(start, -size), end, step)])


@maker(2)
def pad(d: Draft) -> None:
    x = d.pick(range(1, 5))
    mode = d.choice(["constant", "constant", "reflect", "edge", "wrap"])
    if x.size == 0:
        raise UnfitError
    axes = [int(i) for i in d.rng.permutation(x.rank)[: d.whole(1, x.rank)]]
    ends = [_ends(d, mode, x.shape[axis]) for axis in axes]
    fill: Value | None = None
    if mode == "constant":
        fill = d.choice([None, d.fixed(d.number(-1, 1)), d.scalar()])
    pads = [a for a, _ in ends] + [b for _, b in ends]
    operands: list[Value | None] = [x, d.ints(pads), fill]
    if axes == list(range(x.rank)) and d.chance(0.5):
        operands = operands[: 3 if fill is not None else 2]
    else:
        operands.append(d.ints([d.signed(a, x.rank) for a in axes]))
    held = {} if mode == "constant" and d.chance(0.5) else {"mode": mode}
    d.add("Pad", operands, lambda x, _, fill=None, *__: _padded(x, fill, mode, axes, ends), held)


def _ends(d: Draft, mode: str, size: int) -> tuple[int, int]:
    if mode == "reflect":
        return d.whole(0, size - 1), d.whole(0, size - 1)
    if mode != "constant":
        return d.whole(0, min(2, size)), d.whole(0, min(2, size))
    low = -((size - 1) // 2)
    return d.whole(low, 2), d.whole(low, 2)


def _padded(x: Any, fill: Any, mode: str, axes: list[int], ends: list[tuple[int, int]]) -> Any:
    """Return what Pad gives, by picking elements: those of constants are beyond the others."""
    for axis, (before, behind) in zip(axes, ends, strict=True):
        size = x.shape[axis]
        if mode == "constant":
            shape = list(x.shape)
            shape[axis] = 1
            blank = (x.new_zeros(()) if fill is None else fill).expand(shape)
            places = [size] * max(before, 0) + list(range(size))[
                max(-before, 0) : size - max(-behind, 0)
            ]
            places += [size] * max(behind, 0)
            x = torch.cat([x, blank], axis)
        else:
            places = np.pad(np.arange(size), (before, behind), mode=mode).tolist()  # type: ignore[call-overload]
        x = x.index_select(axis, torch.tensor(places, dtype=torch.long))
    return x


@maker(0.5)
def blocks(d: Draft) -> None:
    block, mode = d.whole(1, 3), d.choice(["DCR", "CRD"])
    if d.chance(0.5):
        x = d.like([d.whole(1, 2), d.whole(1, 2) * block**2, d.whole(1, 3), d.whole(1, 3)])
        d.add(
            "DepthToSpace",
            [x],
            lambda x: _to_space(x, block, mode),
            {"blocksize": block, "mode": mode},
        )
        return
    x = d.like([d.whole(1, 2), d.whole(1, 3), block * d.whole(1, 2), block * d.whole(1, 2)])

    def to_depth(x: Any) -> Any:
        n, c, h, w = x.shape
        y = x.reshape(n, c, h // block, block, w // block, block).permute(0, 3, 5, 1, 2, 4)
        return y.reshape(n, c * block**2, h // block, w // block)

    d.add("SpaceToDepth", [x], to_depth, {"blocksize": block})


def _to_space(x: Any, block: int, mode: str) -> Any:
    if mode == "CRD":
        return functional.pixel_shuffle(x, block)
    n, c, h, w = x.shape
    y = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // block**2, h * block, w * block)


@maker(0.5)
def triangle(d: Draft) -> None:
    x = d.pick(range(2, 5))
    k, upper = d.whole(-2, 2), d.whole(0, 1)
    function = torch.triu if upper else torch.tril
    operands = [x] if k == 0 and d.chance(0.5) else [x, d.ints(k)]
    d.add("Trilu", operands, lambda x, *_: function(x, k), {"upper": upper})


@maker(0.4)
def reverse_sequence(d: Draft) -> None:
    x = d.pick(range(2, 5))
    time = d.whole(0, 1)
    steps, batch = x.shape[time], x.shape[1 - time]
    if x.size == 0:
        raise UnfitError
    lengths = [d.whole(1, steps) for _ in range(batch)]

    def reversed_(x: Any, _: Any) -> Any:
        y = x.movedim((1 - time, time), (0, 1))
        parts = [torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(y, lengths, strict=True)]
        return torch.stack(parts).movedim((0, 1), (1 - time, time))

    held = {"time_axis": time, "batch_axis": 1 - time}
    d.add("ReverseSequence", [x, d.ints(lengths)], reversed_, held)


@maker(0.4)
def center_crop_pad(d: Draft) -> None:
    x = d.pick(range(1, 4))
    if x.size == 0:
        raise UnfitError
    axes = [int(i) for i in d.rng.permutation(x.rank)[: d.whole(1, x.rank)]]
    sizes = [d.whole(1, 6) for _ in axes]

    def fitted(x: Any, _: Any) -> Any:
        for axis, size in zip(axes, sizes, strict=True):
            less = x.shape[axis] - size
            if less >= 0:
                x = x.narrow(axis, less // 2, size)
            else:
                ends = (-less // 2, -less - -less // 2)
                x = _padded(x, None, "constant", [axis], [ends])
        return x

    held = {"axes": [d.signed(a, x.rank) for a in axes]}
    d.add("CenterCropPad", [x, d.ints(sizes)], fitted, held)
