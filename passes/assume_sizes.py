"""`assume-sizes`: what open dimensions come to, from the ranges that were given of some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.layout.sizes import Open, Size
from tensoropt.compiler.shapes.refine import inferred_dims, refine_types, update_signature
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.cut import copy_of
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
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

_BOUNDS_SINCE = 10
"""The first opset whose Slice can take a part of a dimension that only a run tells the size of."""

_NUMBER = "topt.number"

_Shape = list[int | None]
_Shapes = dict[tuple[int, int, int], _Shape]
"""The sizes of values by place: the number of an operation, of a region or -1, of the value."""


@dataclass(frozen=True)
class AssumeSizesPass(Pass):
    """Notes in the type of each value what its open dimensions come to: `#topt.sizes`.

    `topt.ranges` of the module says which sizes the dimensions of its inputs may have. What others
    follow from is found by inferring all shapes anew, once with the means of all ranges and once
    with their ends; what has no range is 1, so `12 + sequence` is 13. A dimension of a name is of
    the size of all others of it. Does nothing where there are neither ranges nor such sums. Refuses
    a model whose types do not fit at these sizes.
    """

    name: ClassVar[str] = "assume-sizes"
    summary: ClassVar[str] = "Note what open dimensions come to at the ranges that were given."

    def run(self, module: ir.Module) -> None:
        texts = keys.RANGES.get(module.operation.attributes, {})
        if not texts and not _has_sums(module):
            return
        ranges = parse_ranges([f"{name}={text}" for name, text in texts.items()])
        with module.context, ir.Location.unknown():
            _Assuming(module, ranges).run()


class _Assuming:
    """What is assumed of one module; ``ranges`` are those of its inputs' dimensions."""

    def __init__(self, module: ir.Module, ranges: Mapping[str, Sizes]) -> None:
        self.module, self.ranges = module, ranges
        self.means = {name: mean_of(sizes) for name, sizes in ranges.items()}
        self.ends = {name: _end(sizes) for name, sizes in ranges.items()}
        self.can_slice = onnx.opsets(module)[""] >= _BOUNDS_SINCE

    def run(self) -> None:
        names = inferred_dims(self.module)
        means = _shapes_at(self.module, self.means)
        ends = means if self.ends == self.means else _shapes_at(self.module, self.ends)
        main = onnx.function(self.module)
        for place, value in _values(main, enumerate(onnx.walk(main))):
            kind = value.type
            if isinstance(kind, ir.RankedTensorType) and not kind.has_static_shape:
                own = names.get(value) or [""] * kind.rank
                both = means.get(place), ends.get(place)
                value.set_type(self._type(kind, own, *(x or [None] * kind.rank for x in both)))
        update_signature(self.module)

    def _type(
        self, kind: ir.RankedTensorType, names: Sequence[int | str], means: _Shape, ends: _Shape
    ) -> ir.Type:
        sizes: list[Size] = [
            self._size(str(names[dim]), means[dim], ends[dim])
            if kind.is_dynamic_dim(dim)
            else kind.get_dim_size(dim)
            for dim in range(kind.rank)
        ]
        return tensor_type(sizes, kind.element_type)

    def _size(self, name: str, mean: int | None, end: int | None) -> Size:
        if mean is None or end is None or mean == end == 1:
            return None
        if self._at(name, self.means) != mean or self._at(name, self.ends) != end:
            return Open(mean, end)
        return Open(mean, end, divisor_of(name, self.ranges) if self.can_slice else 1, name)

    def _at(self, name: str, dims: Mapping[str, int]) -> int | str:
        """Return what a name that inference gave a dimension comes to, if it is made of ours."""
        return bound(name, {**dict.fromkeys(terms(name), 1), **dims})


def _has_sums(module: ir.Module) -> bool:
    """Say whether an input is of a size that is known in part, such as 12 + sequence."""
    given = (keys.DIMS.get(own, []) for _, own in onnx.arguments(onnx.function(module)))
    return any(has_number(name) for names in given for name in names)


def _end(sizes: Sizes) -> int:
    return sizes if isinstance(sizes, int) else sizes[-1]


def _shapes_at(module: ir.Module, dims: Mapping[str, int]) -> _Shapes:
    """Return the shapes of all values of ``module`` where open dimensions are ``dims``, or 1."""
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
        raise UserError(f"the model takes no {sizes}: {error}") from None
    return found


def _sized(kind: ir.Type, names: list[str], dims: Mapping[str, int]) -> ir.Type:
    if not isinstance(kind, ir.RankedTensorType) or kind.has_static_shape:
        return kind
    named = names or [""] * kind.rank
    sizes = [
        int(bound(named[dim], {**dict.fromkeys(terms(named[dim]), 1), **dims}))
        if kind.is_dynamic_dim(dim)
        else kind.get_dim_size(dim)
        for dim in range(kind.rank)
    ]
    return ir.RankedTensorType.get(sizes, kind.element_type)


def _note(main: ir.Operation, found: _Shapes) -> None:
    """Take in the shapes of what is left of a function; what was folded has been noted before."""
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
    """Yield the values of a function and of ``numbered`` operations inside it, with places."""
    for index, argument in enumerate(main.regions[0].blocks[0].arguments):
        yield (-1, 0, index), argument
    for number, op in numbered:
        for index, result in enumerate(op.results):
            yield (number, -1, index), result
        for region, body in enumerate(op.regions):
            for index, argument in enumerate(body.blocks[0].arguments):
                yield (number, region, index), argument
