"""Gradients of operators that only move elements: the inverse movement."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.sharding.rule.factors import axis_of
from tensoropt.compiler.training.gradients.registry import Backward, Gradients, gradient
from tensoropt.dialects import onnx
from tensoropt.dialects.build import int_attr, sizes_of

__all__: list[str] = []


@gradient("Identity")
def identity(b: Backward) -> Gradients:
    """dY."""
    return [b.dy]


@gradient("Reshape", "Flatten")
def reshape(b: Backward) -> Gradients:
    """dY in the shape of the operand."""
    return b.first(b.make.reshape(b.dy, b.shape(0)))


@gradient("Squeeze")
def squeeze(b: Backward) -> Gradients:
    """dY with the dimensions of size 1 inserted again."""
    return b.first(b.make.unsqueeze(b.dy, _named_dims(b, b.shape(0))))


@gradient("Unsqueeze")
def unsqueeze(b: Backward) -> Gradients:
    """dY without the new dimensions."""
    return b.first(b.make.squeeze(b.dy, _named_dims(b, sizes_of(b.dy))))


def _named_dims(b: Backward, shape: Sequence[int]) -> list[int]:
    """Return the axes of operand 1, or all dimensions of size 1 if it is omitted."""
    axes = b.info.literal_ints(1) if b.has(1) else None
    if axes is None:
        return [dim for dim, size in enumerate(shape) if size == 1]
    return sorted(axis % len(shape) for axis in axes)


@gradient("Transpose")
def transpose(b: Backward) -> Gradients:
    """dY with its dimensions in the original order."""
    rank = len(b.shape(0))
    order = b.info.attribute("perm", tuple(reversed(range(rank))))
    return [b.make.transpose(b.dy, [order.index(dim) for dim in range(rank)])]


@gradient("Expand")
def expand(b: Backward) -> Gradients:
    """dY, summed over broadcast dimensions."""
    return b.first(b.unbroadcast(b.dy, 0))


@gradient("Tile")
def tile(b: Backward) -> Gradients:
    """dY summed over the copies, which are the major part of each dimension."""
    make, shape = b.make, b.shape(0)
    copies = [made // size if size else 1 for made, size in zip(sizes_of(b.dy), shape, strict=True)]
    parts: list[int] = []
    dims = []
    for copy, size in zip(copies, shape, strict=True):
        if copy > 1:
            dims.append(len(parts))
            parts.append(copy)
        parts.append(size)
    if not dims:
        return b.first(b.dy)
    return b.first(make.reduce("ReduceSum", make.reshape(b.dy, parts), dims, keepdims=False))


@gradient("Concat")
def concat(b: Backward) -> Gradients:
    """The parts of dY: one Split if all are wanted."""
    axis = axis_of(b.info, 0, len(b.shape(0)))
    sizes = [b.shape(i)[axis] for i in range(len(b.operands))]
    if all(b.wanted) and len(sizes) > 1:
        types = [operand.type for operand in b.operands]
        attributes = {"axis": int_attr(axis)}
        return b.make.onnx_many("Split", [b.dy, b.make.ints(sizes)], types, **attributes)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        b.make.slice(b.dy, axis, start, start + size) if want else None
        for start, size, want in zip(starts, sizes, b.wanted, strict=True)
    ]


@gradient("Split")
def split(b: Backward) -> Gradients:
    """The gradients of the parts joined, with zeros for parts that nothing depends on."""
    make, axis = b.make, axis_of(b.info, 0, len(b.shape(0)))
    given, sizes = [b.gradient(i) for i in range(len(b.results))], _part_sizes(b, axis)
    present = [(i, dy) for i, dy in enumerate(given) if dy is not None]
    at, first = present[0]
    if len(present) == 1:
        ends = sum(sizes[:at]), sum(sizes[at + 1 :])
        return b.first(make.pad(first, axis, ends, 0.0))
    shapes = ([*b.shape(0)[:axis], size, *b.shape(0)[axis + 1 :]] for size in sizes)
    zero = make.scalar(0, first)
    pairs = zip(shapes, given, strict=True)
    return b.first(
        make.concat([make.expand(zero, s) if dy is None else dy for s, dy in pairs], axis)
    )


def _part_sizes(b: Backward, axis: int) -> list[int]:
    """Return the sizes of all parts of a Split along ``axis``, including omitted parts."""
    results = [result for result in b.results if result is not None]
    count, size = len(results), b.shape(0)[axis]
    if not b.has(1):
        each = -(-size // count)
        return [max(0, min(each, size - at * each)) for at in range(count)]
    sizes = b.info.literal_ints(1)
    if sizes is None and any(map(onnx.is_no_value, results)):
        raise b.unsupported(
            "expected operand 1, the sizes, to be a constant, got: a computed value"
        )
    return [sizes_of(result)[axis] for result in results] if sizes is None else sizes


@gradient("Trilu")
def trilu(b: Backward) -> Gradients:
    """The same triangle of dY."""
    diagonal = [b.operand(1)] if b.has(1) else []
    upper = int_attr(b.info.attribute("upper", 1))
    return b.first(b.make.onnx("Trilu", [b.dy, *diagonal], b.dy.type, upper=upper))


@gradient("ReverseSequence")
def reverse_sequence(b: Backward) -> Gradients:
    """dY reversed in the same way: the operator is its own inverse."""
    axes = {"batch_axis": 1, "time_axis": 0}
    attributes = {name: int_attr(b.info.attribute(name, default)) for name, default in axes.items()}
    return b.first(b.make.onnx("ReverseSequence", [b.dy, b.operand(1)], b.dy.type, **attributes))
