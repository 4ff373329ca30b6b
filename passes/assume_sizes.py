"""`assume-sizes`: derive the sizes of open dimensions from given ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.layout.sizes import Open, Size
from tensoropt.compiler.shapes.refine import inferred_dims, refine_types, update_signature
from tensoropt.compiler.shapes.tied_sums import free_sums, tie_sums
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.cut import copy_of
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.opsets import SLICE_OPERANDS_SINCE
from tensoropt.dialects.sizes import tensor_type
from tensoropt.dialects.topt import keys
from tensoropt.passes.base import Pass
from tensoropt.passes.fold_constants import fold_rounds
from tensoropt.runtime.plan.dims import (
    Sizes,
    bound,
    divisor_of,
    has_number,
    mean_of,
    parse_ranges,
    terms,
)

__all__ = ["AssumeSizesPass"]

_NUMBER = "topt.number"
_ATTENTION, _MASK = "onnx.Attention", 3

_Shape = list[int | None]
_Shapes = dict[tuple[int, int, int], _Shape]
"""The shapes of values by place: (operation number, region number or -1, value number)."""


@dataclass(frozen=True)
class AssumeSizesPass(Pass):
    """Adds the assumed sizes of open dimensions to the type of each value, as `#topt.sizes`.

    The module's `topt.ranges` has the ranges of input dimensions. The sizes of other dimensions
    follow from two runs of shape inference, at the means of all ranges and at their ends. A
    dimension without a range counts as 1, so `12 + sequence` is 13. Dimensions with the same name
    have the same size. A sum under names of its own, such as the length of a mask, is tied to the
    dimensions of caches and tokens if only their sum fits. Does nothing if the module has
    neither ranges nor such sums. Refuses a model with types that do not fit at these sizes.
    """

    name: ClassVar[str] = "assume-sizes"
    summary: ClassVar[str] = "Derive the sizes of open dimensions from the given ranges."

    def run(self, module: ir.Module) -> None:
        texts = keys.RANGES.get(module.operation.attributes, {})
        # A sum, such as 12 + sequence, is partly known without a range.
        main = onnx.function(module)
        dims = (name for _, own in onnx.arguments(main) for name in keys.DIMS.get(own, []))
        if not texts and not any(map(has_number, dims)):
            return
        ranges = parse_ranges([f"{name}={text}" for name, text in texts.items()])
        with module.context, ir.Location.unknown():
            _Assuming(module, ranges).run()


class _Assuming:
    """The pass on one module; ``ranges`` are the ranges of its input dimensions by name."""

    def __init__(self, module: ir.Module, ranges: Mapping[str, Sizes]) -> None:
        self.module, self.ranges = module, ranges
        self.means = {name: mean_of(sizes) for name, sizes in ranges.items()}
        self.ends = {
            name: sizes if isinstance(sizes, int) else sizes[-1] for name, sizes in ranges.items()
        }
        self.can_slice = onnx.opsets(module)[""] >= SLICE_OPERANDS_SINCE

    def run(self) -> None:
        tie_sums(self.module, self.ranges, self._fits)
        names = inferred_dims(self.module)
        means = _shapes_at(self.module, self.means)
        ends = means if self.ends == self.means else _shapes_at(self.module, self.ends)
        main = onnx.function(self.module)
        for place, value in _values(main, enumerate(onnx.walk(main))):
            kind = value.type
            if isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape:
                unknown: _Shape = [None] * kind.rank
                mean, end = means.get(place) or unknown, ends.get(place) or unknown
                own = names.get(value) or [""] * kind.rank
                sizes: list[Size] = [
                    self._size(str(own[dim]), mean[dim], end[dim])
                    if kind.is_dynamic_dim(dim)
                    else kind.get_dim_size(dim)
                    for dim in range(kind.rank)
                ]
                value.set_type(tensor_type(sizes, kind.element_type))
        update_signature(self.module)

    def _fits(self, sizes: Mapping[str, int]) -> bool:
        """Return whether all shapes fit at these sizes, and masks to the keys of their attention.

        Inference does not compare the latter.
        """
        try:
            shapes = _shapes_at(self.module, sizes)
        except UserError:
            return False
        main = onnx.function(self.module)
        places = {value: place for place, value in _values(main, enumerate(onnx.walk(main)))}
        return all(
            _last(shapes, places, op.operands[_MASK]) in (None, _last(shapes, places, cached, -2))
            for op in onnx.walk(main)
            if op.name == _ATTENTION and len(op.operands) > _MASK
            for cached in list(op.results)[1:2]
        )

    def _size(self, name: str, mean: int | None, end: int | None) -> Size:
        if mean is None or end is None or mean == end == 1:
            return None
        if _size_at(name, self.means) != mean or _size_at(name, self.ends) != end:
            return Open(mean, end)
        return Open(mean, end, divisor_of(name, self.ranges) if self.can_slice else 1, name)


def _last(
    shapes: _Shapes, places: Mapping[ir.Value, tuple[int, int, int]], value: ir.Value, dim: int = -1
) -> int | None:
    shape = shapes.get(places[value]) if value in places else None
    return shape[dim] if shape and len(shape) >= -dim else None


def _size_at(name: str, dims: Mapping[str, int]) -> int | str:
    """Return the size of an inferred dimension name at ``dims``; unknown terms count as 1."""
    return bound(name, {**dict.fromkeys(terms(name), 1), **dims})


def _shapes_at(module: ir.Module, dims: Mapping[str, int]) -> _Shapes:
    """Return the shapes of all values of ``module`` with open dimensions set to ``dims``, or 1."""
    probe = copy_of(module)
    main, found = onnx.function(probe), _Shapes()
    for number, op in enumerate([*onnx.walk(main)]):
        op.attributes[_NUMBER] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
    for value, own in onnx.arguments(main):
        value.set_type(_sized(value.type, keys.DIMS.get(own, []), dims))
    update_signature(probe)
    try:
        refine_types(probe)
        _note(main, found)
        for _ in fold_rounds(probe):
            _note(main, found)
    except UserError as error:
        sizes = ", ".join(f"{name}={size}" for name, size in dims.items())
        raise UserError(f"the model takes no {sizes}: {error}{_hint(module, dims)}") from None
    return found


def _hint(module: ir.Module, dims: Mapping[str, int]) -> str:
    """Return the flags for the sums that have no sizes of their own."""
    free = free_sums(module, dims)
    if not free:
        return ""
    flags = " ".join(f"--dim {term}=SIZES" for name in free for term in terms(name))
    return f"; {', '.join(map(repr, free))} has no sizes, expected those too: {flags}"


def _sized(kind: ir.Type, names: list[str], dims: Mapping[str, int]) -> ir.Type:
    if not isinstance(kind, ir.RankedTensorType) or kind.has_static_shape:
        return kind
    named = names or [""] * kind.rank
    sizes = [
        int(_size_at(named[dim], dims)) if kind.is_dynamic_dim(dim) else kind.get_dim_size(dim)
        for dim in range(kind.rank)
    ]
    return ir.RankedTensorType.get(sizes, kind.element_type)


def _note(main: ir.Operation, found: _Shapes) -> None:
    """Add the shapes of the values of a function; folded values were added in earlier calls."""
    numbered = ((op, op.attributes[_NUMBER]) for op in onnx.walk(main) if _NUMBER in op.attributes)
    for place, value in _values(main, ((ir.IntegerAttr(n).value, op) for op, n in numbered)):
        kind = value.type
        if isinstance(kind, ir.RankedTensorType):
            found[place] = [
                None if kind.is_dynamic_dim(dim) else kind.get_dim_size(dim)
                for dim in range(kind.rank)
            ]


def _values(
    main: ir.Operation, numbered: Iterable[tuple[int, ir.Operation]]
) -> Iterator[tuple[tuple[int, int, int], ir.Value]]:
    """Yield the values of a function and of its ``numbered`` operations, with their places."""
    for index, argument in enumerate(main.regions[0].blocks[0].arguments):
        yield (-1, 0, index), argument
    for number, op in numbered:
        for index, result in enumerate(op.results):
            yield (number, -1, index), result
        for region, body in enumerate(op.regions):
            for index, argument in enumerate(body.blocks[0].arguments):
                yield (number, region, index), argument
