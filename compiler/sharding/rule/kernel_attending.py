"""Attention to the keys of one turn by the kernel of `tensoropt.Attention`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.attending import Gradients, Joining, Part
from tensoropt.dialects.build import element_type, int_attr, shape_of, tensor_type
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import ATTENTION, ATTENTION_GRADIENT

__all__ = ["Hidden", "KernelAttending", "combine_over_ranks"]

_LAST = 3
"""The dimension of the elements of a head."""


class Hidden(NamedTuple):
    """The operands of the kernel that hide keys, or drop their weights; ``None`` hides none.

    ``bias`` broadcasts to `b h s t`, ``lengths`` are the keys of each sequence, int64 [b], and
    ``offset`` is the place of the first row among the keys, int64 [1]. Seeds of dropout are int64,
    `b h s 1` and `1 1 1 t`.
    """

    bias: ir.Value | None = None
    lengths: ir.Value | None = None
    offset: ir.Value | None = None
    row_seeds: ir.Value | None = None
    key_seeds: ir.Value | None = None

    def start_at(self, make: Arithmetic, first: ir.Value) -> Hidden:
        """Return the keys that are hidden among those from the key ``first`` on, int64 [1]."""
        lengths, offset = self.lengths, self.offset
        if lengths is not None:
            rest = make.sub(lengths, first)
            lengths = make.binary("Max", rest, make.scalar(0, rest))
        offset = None if offset is None else make.sub(offset, first)
        return self._replace(lengths=lengths, offset=offset)

    def operands(self, make: Arithmetic) -> list[ir.Value]:
        """Return the operands of the kernel, without those omitted at the end."""
        present = [number for number, value in enumerate(self) if value is not None]
        count = max(present, default=-1) + 1
        return [make.no_value() if value is None else value for value in self[:count]]


@dataclass(frozen=True)
class KernelAttending(Joining):
    """Builder of attention by the kernel; queries are `b h s d`, keys `b g t d`, values `b g t e`.

    ``attributes`` are those of the kernel. Rows are hidden from keys by their places only if there
    is a mask. Totals of a :class:`Part` are `b h s 1`, minus infinity for rows that see no key.
    """

    make: Arithmetic
    attributes: Mapping[str, ir.Attribute]

    key_dim: ClassVar[int] = -2
    sends_ahead: ClassVar[bool] = True

    def all(self, q: ir.Value, k: ir.Value, v: ir.Value, mask: Hidden | None = None) -> Part:
        """Return the attention to all keys that ``mask`` does not hide."""
        return self._attend(q, k, v, mask or Hidden(), self._places(mask))

    def causal(self, q: ir.Value, k: ir.Value, v: ir.Value) -> Part:
        """Return the attention to the keys at or before each row."""
        return self._attend(q, k, v, Hidden(), self.attributes)

    def finite(self, total: ir.Value) -> ir.Value:
        """Return logarithms of sums without minus infinity."""
        return self.make.finite(total)

    def at_keys(self, mask: Hidden, places: ir.Value) -> Hidden:
        """Return the mask of the keys at consecutive ``places``; ``mask`` is of all keys."""
        by_key = {"bias": mask.bias, "key_seeds": mask.key_seeds}
        taken = {
            name: self.make.take(value, places, _LAST)
            for name, value in by_key.items()
            if value is not None
        }
        return mask.start_at(self.make, self.make.slice(places, 0, 0, 1))._replace(**taken)

    def all_gradients(
        self, q: ir.Value, k: ir.Value, v: ir.Value, rows: Sequence[ir.Value],
        mask: Hidden | None = None,
    ) -> Gradients:  # fmt: skip
        """Return the gradients of attention to all keys that ``mask`` does not hide.

        ``rows`` are the totals, the result, and the gradient of the result.
        """
        return self._differentiate(q, k, v, rows, mask or Hidden(), self._places(mask))

    def causal_gradients(
        self, q: ir.Value, k: ir.Value, v: ir.Value, rows: Sequence[ir.Value]
    ) -> Gradients:
        """Return the gradients of attention to the keys at or before each row."""
        return self._differentiate(q, k, v, rows, Hidden(), self.attributes)

    def _places(self, mask: Hidden | None) -> Mapping[str, ir.Attribute]:
        """Return the attributes, without those that hide keys by their places unless masked."""
        hidden = dict.fromkeys(("causal", "window"), int_attr(0))
        return self.attributes if mask else {**self.attributes, **hidden}

    def _attend(
        self, q: ir.Value, k: ir.Value, v: ir.Value, mask: Hidden, names: Mapping[str, ir.Attribute]
    ) -> Part:
        make, lead = self.make, shape_of(q)[:_LAST]
        kinds = [
            tensor_type([*lead, shape_of(v)[_LAST]], element_type(q)),
            tensor_type(lead, ir.F32Type.get()),
        ]
        y, lse = make.onnx_many(ATTENTION, [q, k, v, *mask.operands(make)], kinds, **names)
        return Part(make.wide(y), make.unsqueeze(lse, [_LAST]))

    def _differentiate(
        self, q: ir.Value, k: ir.Value, v: ir.Value, rows: Sequence[ir.Value], mask: Hidden,
        names: Mapping[str, ir.Attribute],
    ) -> Gradients:  # fmt: skip
        make, (total, y, dy) = self.make, rows
        operands = [dy, q, k, v, y, make.squeeze(total, [_LAST]), *mask.operands(make)]
        kinds = [x.type for x in (q, k, v)]
        found = make.onnx_many(ATTENTION_GRADIENT, operands, kinds, **names)
        return Gradients(*map(make.wide, found))


def combine_over_ranks(make: Arithmetic, part: Part, axes: Sequence[int]) -> Part:
    """Return the rank's term of the attention to the keys of all ranks along ``axes``.

    The sum of the terms of ``y`` is the result; ``total`` is complete. A term is
    ``exp(l_i - l) y_i`` for the logarithm ``l`` of the sum of all exponentials, 0 without any key.
    """
    local = make.local
    largest = make.finite(local.all_reduce(part.total, axes, "max"))
    own = make.unary("Exp", make.sub(part.total, largest))
    whole = local.all_reduce(own, axes, "sum")
    weight = make.div(own, make.binary("Max", whole, make.scalar(1.0, whole)))
    return Part(make.mul(part.y, weight), make.add(make.unary("Log", whole), largest))
