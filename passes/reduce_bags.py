"""`reduce-bags`: reduce all bags of an embedding together instead of in a loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tensoropt.compiler.protos.op_names import NamedBuild, OpNamer
from tensoropt.compiler.shapes.bags import Bags, bags_of
from tensoropt.compiler.shapes.refine import refine_types, replace_value
from tensoropt.dialects.build import element_type, int_attr, sizes_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import constant_value, function, opsets
from tensoropt.passes.base import Pass
from tensoropt.passes.fold_constants import fold_rounds
from tensoropt.passes.numbering import forget_removed

__all__ = ["ReduceBagsPass"]

_SCATTERS_SINCE = 18
"""First opset in which ScatterElements supports the reduction max."""


@dataclass(frozen=True)
class ReduceBagsPass(Pass):
    """Reduces all bags of an `nn.EmbeddingBag` together.

    PyTorch's exporters write it as a `Loop` that slices the rows of each bag out of all rows, from
    one offset to the next, and reduces them to their sum, mean or maximum. A `Loop` cannot be
    split. If all bags have one known size, as for a matrix of indices, the rows are reshaped and
    reduced along a dimension. With ``scatter``, the rows of other bags are scattered to their bags,
    by a `ScatterND` that adds, or by a `ScatterElements` for maxima. ONNX Runtime does this element
    by element, more slowly than the `Loop`, but a training step can differentiate it. Weights of
    samples remain products with the rows; rows of the padding index are left out.

    A `Loop` of any other form is kept, as is a `Loop` over an unknown number of bags or rows.
    Before opset 18 nothing is scattered. An empty bag results in zeros, as in PyTorch; the `Loop`
    of the older exporter fails on it unless it adds. Refuses nothing.
    """

    name: ClassVar[str] = "reduce-bags"
    summary: ClassVar[str] = "Reduce all bags of an embedding together instead of in a loop."

    scatter: bool = False

    def run(self, module: ir.Module) -> None:
        version, namer, changed = opsets(module).get("", 1), OpNamer(module), False
        with module.context, ir.Location.unknown():
            for view in list(function(module).regions[0].blocks[0]):
                op = view.operation
                bags = bags_of(op) if op.name == "onnx.Loop" else None
                scatters = self.scatter and version >= _SCATTERS_SINCE
                if bags is not None and (scatters or bags.common_size()):
                    _Rewrite(bags, NamedBuild(namer, op, version)).run()
                    changed = True
            if changed:
                refine_types(module)
                for _ in fold_rounds(module):
                    pass
            forget_removed(module)


@dataclass(frozen=True)
class _Rewrite:
    """Rewrites the op that makes ``bags`` into their reduction."""

    bags: Bags
    make: NamedBuild

    def run(self) -> None:
        """Replace the loop."""
        bags = self.bags
        size = bags.common_size()
        with ir.InsertionPoint(bags.made):
            rows, kept = self._rows()
            made = self._reshaped(rows, size, kept) if size else self._scattered(rows, kept)
        replace_value(bags.made.results[0], made)
        bags.erase()

    def _rows(self) -> tuple[ir.Value, ir.Value | None]:
        """Return the rows of all bags, with padding rows filled, and the mask of other rows if any.

        The mask is ``None`` if there is no padding index.
        """
        make, rows, kept = self.make, self.bags.rows(self.make), self.bags.row_mask(self.make)
        if kept is None:
            return rows, None
        fill = make.scalar(float("-inf") if self.bags.kind == "Max" else 0.0, rows)
        return make.where(make.unsqueeze(kept, [1]), rows, fill), kept

    def _reshaped(self, rows: ir.Value, size: int, kept: ir.Value | None) -> ir.Value:
        make, bags, width = self.make, self.bags, sizes_of(rows)[1]
        each = make.reshape(rows, [bags.count, size, width])
        if kept is None:
            return make.reduce(f"Reduce{bags.kind}", each, [1], keepdims=False)
        kind = "Sum" if bags.kind == "Mean" else bags.kind  # a mean is divided later
        made = make.reduce(f"Reduce{kind}", each, [1], keepdims=False)
        ones = make.reshape(make.cast(kept, _int64()), [bags.count, size])
        return self._finished(made, make.reduce("ReduceSum", ones, [1], keepdims=False))

    def _scattered(self, rows: ir.Value, kept: ir.Value | None) -> ir.Value:
        """Return the rows reduced by scattering them to their bags."""
        bags, make = self.bags, self.make
        offsets = bags.offsets(make)
        slots = self._slots(offsets, sizes_of(rows)[0])
        made = self._summed(rows, slots) if bags.kind != "Max" else self._largest(rows, slots)
        if kept is not None:
            zeros = make.constant(np.zeros(bags.count + 2, np.int64))
            counts = self._elements(zeros, slots, make.cast(kept, _int64()), "add")
            return self._finished(made, counts)
        if bags.kind == "Sum" and bags.empty is None:
            return made
        ends = make.slice(bags.divisor_offsets(make), 0, 1, bags.count + 1)
        return self._finished(made, make.sub(ends, make.slice(offsets, 0, 0, bags.count)))

    def _finished(self, made: ir.Value, sizes: ir.Value) -> ir.Value:
        """Divide sums by ``sizes`` for means, and set the result of empty bags."""
        bags, make = self.bags, self.make
        if bags.kind == "Mean":
            least_one = make.binary("Max", sizes, make.scalar(1, sizes))
            made = make.div(made, make.unsqueeze(make.cast(least_one, element_type(made)), [1]))
        if bags.kind != "Max" and bags.empty is None:
            return made
        empty = make.scalar(0.0, made) if bags.empty is None else bags.empty
        has_rows = make.compare("Greater", sizes, make.scalar(0, sizes))
        return make.where(make.unsqueeze(has_rows, [1]), made, empty)

    def _summed(self, rows: ir.Value, slots: ir.Value) -> ir.Value:
        make = self.make
        zeros = make.expand(make.scalar(0.0, rows), [self.bags.count + 2, sizes_of(rows)[1]])
        operands = [zeros, make.unsqueeze(slots, [1]), rows]
        made = make.onnx("ScatterND", operands, zeros.type, reduction=ir.StringAttr.get("add"))
        return make.slice(made, 0, 1, self.bags.count + 1)

    def _largest(self, rows: ir.Value, slots: ir.Value) -> ir.Value:
        """Return the maximum of each bag; ONNX Runtime's ScatterND would lose some updates."""
        make, (count, width) = self.make, sizes_of(rows)
        least = make.expand(make.scalar(float("-inf"), rows), [self.bags.count + 2, width])
        places = make.expand(make.unsqueeze(slots, [1]), [count, width])
        return self._elements(least, places, rows, "max")

    def _elements(
        self, data: ir.Value, places: ir.Value, updates: ir.Value, reduction: str
    ) -> ir.Value:
        attributes = {"axis": int_attr(0), "reduction": ir.StringAttr.get(reduction)}
        operands = [data, places, updates]
        made = self.make.onnx("ScatterElements", operands, data.type, **attributes)
        return self.make.slice(made, 0, 1, self.bags.count + 1)

    def _slots(self, offsets: ir.Value, count: int) -> ir.Value:
        """Return the number of offsets at or before each row, which is 1 + the number of its bag.

        Slot 0 collects the rows before the first bag, the last slot the rows after all bags.
        """
        make, known = self.make, constant_value(offsets)
        if known is not None:
            return make.constant(np.searchsorted(known, np.arange(count), "right"))
        zeros = make.constant(np.zeros(count + 1, np.int64))
        ones = make.constant(np.ones(self.bags.count + 1, np.int64))
        attributes = {"axis": int_attr(0), "reduction": ir.StringAttr.get("add")}
        begun = make.onnx("ScatterElements", [zeros, offsets, ones], zeros.type, **attributes)
        sums = make.onnx("CumSum", [begun, make.constant(np.array(0, np.int64))], begun.type)
        return make.slice(sums, 0, 0, count)


def _int64() -> ir.Type:
    return ir.IntegerType.get_signless(64)
