"""Recognition of loops over the bags of an embedding, as PyTorch's exporters write `EmbeddingBag`.

The body of a loop is interpreted on descriptions instead of numbers: the number of a step, an
offset, the rows between two offsets, their reduction. If the result of a loop is none of these, it
is not a loop over bags.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.protos.types import static_shape
from tensoropt.dialects.build import Build, sizes_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    attribute,
    constant_value,
    is_no_value,
    made_by,
    region_names,
)

__all__ = ["Bags", "bags_of"]

Array = npt.NDArray[np.generic]
Kind = Literal["Sum", "Mean", "Max"]


class _OtherError(Exception):
    """No description fits the result of an op, or a loop is not a loop over bags."""


@dataclass(frozen=True)
class _Outer:
    """A tensor from outside the loop."""

    value: ir.Value


@dataclass(frozen=True)
class _Number:
    """A literal."""

    array: Array

    @property
    def integer(self) -> int:
        if self.array.size != 1 or self.array.dtype.kind != "i":
            raise _OtherError
        return int(self.array.item())


@dataclass(frozen=True)
class _Count:
    """The number of the step plus ``more``."""

    more: int


@dataclass(frozen=True)
class _Offset:
    """``offsets[step + more]``, or ``last`` in the last step."""

    offsets: ir.Value
    more: int
    last: int | None = None


@dataclass(frozen=True)
class _Factor:
    """All rows of ``value``, or of ``table`` at the indices ``value``, or of a list as a column."""

    value: ir.Value
    table: _Outer | None = None
    is_column: bool = False

    def build(self, make: Build) -> ir.Value:
        """Return the rows of all bags."""
        if self.table is not None:
            return make.take(self.table.value, self.value, 0)
        return make.unsqueeze(self.value, [1]) if self.is_column else self.value


@dataclass(frozen=True)
class _Padding:
    """The row index that marks padding, in a table with ``rows`` rows."""

    indices: _Outer
    index: int
    rows: int


@dataclass(frozen=True)
class _Rows:
    """The rows of a product from one offset to another, or to a known end, without padding."""

    factors: tuple[_Factor, ...]
    start: _Offset
    end: _Offset | int
    padding: _Padding | None = None


# The inner loop that collects the positions of rows that are not padding.


@dataclass(frozen=True)
class _Position:
    """The position of a row plus ``more``."""

    more: int


@dataclass(frozen=True)
class _Index:
    """The index of a row; ``table`` is added if it is negative."""

    indices: _Outer
    table: int | None = None


@dataclass(frozen=True)
class _Positions:
    """The positions collected so far, plus the current one (``adds``) if it is not ``padding``."""

    adds: bool = False
    padding: _Padding | None = None


@dataclass(frozen=True)
class _Unpadded:
    """The positions of the rows between two offsets that are not padding, or their count."""

    padding: _Padding
    start: _Offset
    end: _Offset
    is_count: bool = False


@dataclass(frozen=True)
class _Length:
    """A known end minus an offset."""

    end: int
    start: _Offset


@dataclass(frozen=True)
class _Test:
    """A condition on a step, a bag, a length or an index."""

    about: Literal[
        "continues",
        "last",
        "empty",
        "positive",
        "begins",
        "more rows",
        "negative",
        "padding",
        "unpadded",
    ]
    bound: int = 0
    offsets: tuple[_Offset, ...] = ()
    padding: _Padding | None = None


@dataclass(frozen=True)
class _Reduced:
    """A reduction of rows.

    ``divisor`` is the length that divides the sum in the last step. ``empty`` replaces the result
    if there are no rows; ``None`` stands for zeros.
    """

    kind: Kind
    rows: _Rows
    keeps_rank: bool
    divisor: _Length | None = None
    empty: _Outer | None = None


@dataclass(frozen=True)
class _Zeros:
    """Zeros, of any shape."""


@dataclass(frozen=True)
class _Items:
    """The results of earlier steps."""


@dataclass(frozen=True)
class _Other:
    """Any other value; no bag depends on it."""


_Known = (
    _Outer | _Number | _Count | _Offset | _Rows | _Length | _Test | _Reduced | _Zeros | _Items
    | _Other | _Position | _Index | _Positions | _Unpadded
)  # fmt: skip


@dataclass(frozen=True)
class Bags:
    """``count`` bags of rows, each reduced to its sum, mean or maximum.

    ``loop`` is the op that computes them; ``made`` is the op of the result: the loop itself, or the
    op that joins its sequence. ``empty`` (a row) is the result of an empty bag, ``None`` for zeros.
    """

    loop: ir.Operation
    made: ir.Operation
    count: int
    reduced: _Reduced

    @property
    def kind(self) -> Kind:
        return self.reduced.kind

    @property
    def empty(self) -> ir.Value | None:
        return None if self.reduced.empty is None else self.reduced.empty.value

    @property
    def row_count(self) -> int:
        return sizes_of(self.reduced.rows.factors[0].value)[0]

    def rows(self, make: Build) -> ir.Value:
        """Return the rows of all bags."""
        first, *others = (factor.build(make) for factor in self.reduced.rows.factors)
        for other in others:
            first = make.mul(first, other)
        return first

    def row_mask(self, make: Build) -> ir.Value | None:
        """Return the mask of rows that are not padding, or ``None`` if no row is padding."""
        padding = self.reduced.rows.padding
        if padding is None:
            return None
        indices = padding.indices.value
        same = [
            make.compare("Equal", indices, make.scalar(index, indices))
            for index in (padding.index, padding.index - padding.rows)
        ]
        return make.unary("Not", make.binary("Or", *same))

    def offsets(self, make: Build) -> ir.Value:
        """Return the start of each bag, followed by the end of the last."""
        end = self.reduced.rows.end
        assert isinstance(end, _Offset), "the rows of a bag end at an offset"
        return self._with_end(make, end.last)

    def divisor_offsets(self, make: Build) -> ir.Value:
        """Return the offsets with the lengths of bags as differences."""
        divisor = self.reduced.divisor
        return self.offsets(make) if divisor is None else self._with_end(make, divisor.end)

    def _with_end(self, make: Build, end: int | None) -> ir.Value:
        offsets = self.reduced.rows.start.offsets
        if end is None or end == _last_offset(offsets):
            return offsets
        last = make.cast(make.ints([end]), ir.RankedTensorType(offsets.type).element_type)
        return make.concat([make.slice(offsets, 0, 0, self.count), last], 0)

    def common_size(self) -> int | None:
        """Return the number of rows of each bag if it is constant and every row is in a bag."""
        offsets, end = constant_value(self.reduced.rows.start.offsets), self.reduced.rows.end
        if offsets is None or not isinstance(end, _Offset):
            return None
        divisor = self.reduced.divisor
        ends = {self.row_count, end.last, None if divisor is None else divisor.end}
        size = self.row_count // self.count
        even = np.arange(self.count + 1) * size
        known = offsets[: self.count + 1]
        whole = size > 0 and ends <= {self.row_count, None} and size * self.count == self.row_count
        return size if whole and np.array_equal(known, even) else None

    def erase(self) -> None:
        """Erase the loop after its last use."""
        is_joined = self.loop != self.made
        self.made.erase()
        if is_joined:
            self.loop.erase()


def _last_offset(offsets: ir.Value) -> int | None:
    """Return the last offset if it is known, from a literal or from one appended by `Concat`."""
    op, known = made_by(offsets, "Concat"), constant_value(offsets)
    if known is None and op is not None:
        known = constant_value(op.operands[len(op.operands) - 1])
    return None if known is None or known.ndim != 1 or not known.size else int(known[-1])


def bags_of(loop: ir.Operation) -> Bags | None:
    """Return the bags that a `Loop` reduces, or ``None`` for any other loop."""
    try:
        found = _sequence_bags(loop) if len(loop.operands) > 2 else _scan_bags(loop)
    except _OtherError:
        return None
    return found if _is_known(found) else None


def _is_known(bags: Bags) -> bool:
    """Return whether all sizes are known, and there is one offset per bag plus an end."""
    rows = bags.reduced.rows
    shapes = [static_shape(f.value.type) for f in rows.factors]
    shapes += [static_shape(f.table.value.type) for f in rows.factors if f.table is not None]
    if (
        rows.padding is not None
        and static_shape(rows.padding.indices.value.type) != (shapes[0] or [])[:1]
    ):
        return False
    if None in shapes or bags.count < 1 or not isinstance(rows.end, _Offset):
        return False
    known = [shape for shape in shapes if shape is not None]
    same = len({shape[0] for shape in known[: len(rows.factors)]}) == 1
    offsets = static_shape(rows.start.offsets.type)
    wide = max(len(shape) for shape in known) == 2
    return same and wide and offsets == [bags.count + 1] and _follows(rows.start, rows.end)


def _follows(start: _Offset, end: _Offset) -> bool:
    """Return whether a bag ends where the next bag begins."""
    if start.more or start.last is not None:
        return False
    if end.offsets == start.offsets:
        return end.more == 1
    first, second = constant_value(start.offsets), constant_value(end.offsets)
    if first is not None and second is not None:
        return end.more == 0 and np.array_equal(first[1:], second)
    op = made_by(end.offsets, "Slice")
    if op is None or op.operands[0] != start.offsets or end.more:
        return False
    bounds = [constant_value(operand) for operand in [*op.operands][1:]]
    length = (static_shape(start.offsets.type) or [0])[0]
    wanted = (1, length, 0, 1)
    return len(bounds) <= len(wanted) and all(
        bound is not None and (bound.item() == value or (i == 1 and bound.item() > length))
        for i, (bound, value) in enumerate(zip(bounds, wanted, strict=False))
    )


def _scan_bags(loop: ir.Operation) -> Bags:
    """Return the bags of a loop that stacks its results, as in PyTorch's older exporter."""
    body = loop.regions[0].blocks[0]
    count = constant_value(loop.operands[0])
    _check(count is not None and count.size == 1)
    _check(len(loop.operands) == 2 and len(loop.results) == 1)
    _check(is_no_value(loop.operands[1]) or _is_true(loop.operands[1]))
    run = _Body({body.arguments[0]: _Count(0), body.arguments[1]: _Number(np.array(True))})
    continues, reduced = run.run(body)
    _check(isinstance(continues, _Number) and bool(continues.array.all()))
    assert count is not None
    run.check_last(int(count.item()))
    return _bags(loop, loop, int(count.item()), reduced, keeps_rank=False)


def _sequence_bags(loop: ir.Operation) -> Bags:
    """Return the bags of a loop that inserts its results into a sequence, which is then joined."""
    body = loop.regions[0].blocks[0]
    _check(len(loop.operands) == 4 and len(loop.results) == 2)
    _check(is_no_value(loop.operands[0]) and _is_true(loop.operands[1]))
    _check(not [*loop.results[0].uses])
    first = constant_value(loop.operands[2])
    _check(first is not None and not first.any())
    _check(made_by(loop.operands[3], "SequenceEmpty") is not None)
    uses = [use.owner.operation for use in loop.results[1].uses]
    _check(len(uses) == 1 and uses[0].name == "onnx.ConcatFromSequence")
    _check(attribute(uses[0], "axis") == 0 and not attribute(uses[0], "new_axis", 0))
    run = _Body({body.arguments[2]: _Count(0), body.arguments[3]: _Items()})
    continues, count, reduced = run.run(body)
    _check(count == _Count(1) and isinstance(continues, _Test) and continues.about == "continues")
    assert isinstance(continues, _Test)
    run.check_last(continues.bound)
    return _bags(loop, uses[0], continues.bound, reduced, keeps_rank=True)


def _bags(
    loop: ir.Operation, made: ir.Operation, count: int, reduced: _Known, *, keeps_rank: bool
) -> Bags:
    if not isinstance(reduced, _Reduced) or reduced.keeps_rank != keeps_rank:
        raise _OtherError
    return Bags(loop, made, count, reduced)


def _check(condition: bool) -> None:
    if not condition:
        raise _OtherError


def _is_true(value: ir.Value) -> bool:
    known = constant_value(value)
    return known is not None and bool(known.all())


class _Body:
    """Interprets the body of a loop on descriptions."""

    def __init__(self, known: dict[ir.Value, _Known]) -> None:
        self.known = known
        self.last_steps: set[int] = set()

    def check_last(self, count: int) -> None:
        """Check that every test for the last step is about the last of ``count`` steps."""
        _check(self.last_steps <= {count - 1})

    def run(self, block: ir.Block) -> list[_Known]:
        """Return the results of a block; a sequence is described by its appended item."""
        ops = [op.operation for op in block]
        for argument in block.arguments:
            self.known.setdefault(argument, _Other())
        for op in ops[:-1]:
            self.known.update(dict.fromkeys(op.results, _Other()))
            if op.name in _OPS:
                with suppress(_OtherError):
                    self.known[op.results[0]] = _OPS[op.name](self, op)
        return [self.value(value) for value in ops[-1].operands]

    def value(self, value: ir.Value) -> _Known:
        """Return the description of a value, which may come from outside the loop."""
        if value in self.known:
            return self.known[value]
        literal = constant_value(value)
        return _Outer(value) if literal is None else _Number(literal)

    def operands(self, op: ir.Operation, least: int = 2, most: int | None = None) -> list[_Known]:
        """Return the operands that are present; raises if their number is out of range."""
        found = [self.value(value) for value in op.operands if not is_no_value(value)]
        _check(least <= len(found) <= (most or least))
        return found


def _read_constant(body: _Body, op: ir.Operation) -> _Known:
    literal = constant_value(op.results[0])
    assert literal is not None, "a Constant has a value"
    return _Number(literal)


def _keep_number(body: _Body, op: ir.Operation) -> _Known:
    """Return the operand of a `Cast`, `CastLike`, `Reshape` or `Unsqueeze` of one number."""
    x = body.value(op.operands[0])
    if isinstance(x, _Rows) and op.name == "onnx.Unsqueeze":
        return _make_column(body, op, x)
    if not isinstance(x, _Number | _Length):
        element = str(ir.ShapedType(op.results[0].type).element_type)
        _check(isinstance(x, _Count | _Offset | _Position) and element in ("i32", "i64"))
    return x


def _make_column(body: _Body, op: ir.Operation, x: _Rows) -> _Known:
    axes = body.value(op.operands[1])
    _check(isinstance(axes, _Number) and axes.integer == 1 and len(x.factors) == 1)
    _check(x.factors[0].table is None and len(_shape(x.factors[0].value)) == 1)
    return replace(x, factors=(replace(x.factors[0], is_column=True),))


def _pass_on(body: _Body, op: ir.Operation) -> _Known:
    return body.value(op.operands[0])


def _expand(body: _Body, op: ir.Operation) -> _Known:
    x = body.value(op.operands[0])
    _check(isinstance(x, _Number) and not x.array.any())
    return _Zeros()


def _add(body: _Body, op: ir.Operation) -> _Known:
    a, b = body.operands(op)
    if isinstance(a, _Count | _Position) and isinstance(b, _Number):
        return replace(a, more=a.more + b.integer)
    if isinstance(a, _Index) and isinstance(b, _Number):
        return replace(a, table=b.integer)
    raise _OtherError


def _subtract(body: _Body, op: ir.Operation) -> _Known:
    a, b = body.operands(op)
    if isinstance(a, _Number) and isinstance(b, _Number):
        return _Number(np.array(a.integer - b.integer))
    if isinstance(a, _Number) and isinstance(b, _Offset):
        return _Length(a.integer, b)
    raise _OtherError


def _multiply(body: _Body, op: ir.Operation) -> _Known:
    a, b = body.operands(op)
    if not isinstance(a, _Rows) or not isinstance(b, _Rows):
        raise _OtherError
    _check((a.start, a.end) == (b.start, b.end))
    return replace(a, factors=(*a.factors, *b.factors))


def _divide(body: _Body, op: ir.Operation) -> _Known:
    a, b = body.operands(op)
    if not isinstance(a, _Reduced) or not isinstance(b, _Length):
        raise _OtherError
    _check(a.kind == "Sum" and a.divisor is None and b.start == a.rows.start)
    return replace(a, kind="Mean", divisor=b)


def _compare(body: _Body, op: ir.Operation) -> _Known:
    """Return the description of a `Less`, `Greater` or `Equal`."""
    a, b = body.operands(op)
    found = _COMPARISONS.get((op.name, type(a), type(b)))
    if found is None:
        raise _OtherError
    return found(body, a, b)


def _test_last(body: _Body, a: _Known, b: _Number) -> _Test:
    _check(a == _Count(0))
    body.last_steps.add(b.integer)
    return _Test("last")


def _negate(body: _Body, op: ir.Operation) -> _Known:
    """Return the description of a `Not`."""
    x = body.value(op.operands[0])
    if not isinstance(x, _Test) or x.about != "padding":
        raise _OtherError
    return replace(x, about="unpadded")


def _count(body: _Body, op: ir.Operation) -> _Known:
    x = body.value(op.operands[0])
    if not isinstance(x, _Unpadded):
        raise _OtherError
    return replace(x, is_count=True)


def _concatenate(body: _Body, op: ir.Operation) -> _Known:
    """Return the positions collected so far, plus the current one."""
    _check(body.operands(op) == [_Positions(), _Position(0)])
    return _Positions(adds=True)


def _loop(body: _Body, op: ir.Operation) -> _Known:
    """Return the positions that a loop over the rows of a bag collects: all except padding."""
    begins, positions, start = body.operands(op, 3)
    _check(is_no_value(op.operands[0]) and len(op.results) == 2)
    block = op.regions[0].blocks[0]
    _check(isinstance(begins, _Test) and begins.about == "begins")
    _check(isinstance(positions, _Number) and positions.array.size == 0)
    assert isinstance(begins, _Test)
    body.known.update({block.arguments[2]: _Positions(), block.arguments[3]: _Position(0)})
    more, collected, row = body.run(block)
    _check(more == _Test("more rows", offsets=begins.offsets[1:]) and row == _Position(1))
    first, end = begins.offsets
    if not isinstance(collected, _Positions) or collected.padding is None or start != first:
        raise _OtherError
    return _Unpadded(collected.padding, first, end)


def _gather(body: _Body, op: ir.Operation) -> _Known:
    x, at = body.operands(op)
    if not isinstance(x, _Outer | _Number) or attribute(op, "axis", 0) != 0:
        raise _OtherError
    if isinstance(at, _Count):
        return _Offset(op.operands[0], at.more)
    if isinstance(at, _Position):
        return _Index(_Outer(op.operands[0]))
    if isinstance(at, _Unpadded) and not at.is_count:
        return _Rows((_Factor(op.operands[0]),), at.start, at.end, at.padding)
    if not isinstance(at, _Rows) or len(at.factors) != 1 or at.factors[0].table is not None:
        raise _OtherError
    _check(len(_shape(at.factors[0].value)) == 1 and len(_shape(op.operands[0])) == 2)
    return replace(at, factors=(replace(at.factors[0], table=_Outer(op.operands[0])),))


def _slice(body: _Body, op: ir.Operation) -> _Known:
    x, start, end, *others = body.operands(op, 3, 5)
    _check(isinstance(x, _Outer | _Number))
    for other, wanted in zip(others, (0, 1), strict=False):
        _check(isinstance(other, _Number) and other.integer == wanted)
    source = op.operands[0]
    if isinstance(start, _Count):
        _check(end == _Count(start.more + 1) and len(_shape(source)) == 1)
        return _Offset(source, start.more)
    if not isinstance(start, _Offset) or not isinstance(end, _Offset | _Number):
        raise _OtherError
    stop = end if isinstance(end, _Offset) else end.integer
    return _Rows((_Factor(source),), start, stop)


def _reduce(body: _Body, op: ir.Operation) -> _Known:
    x, *axes = body.operands(op, 1, 2)
    dims = axes[0].array.tolist() if axes and isinstance(axes[0], _Number) else None
    dims = attribute(op, "axes") if dims is None else dims
    if not isinstance(x, _Rows) or dims != [0]:
        raise _OtherError
    _check(any(f.table is not None or len(_shape(f.value)) == 2 for f in x.factors))
    return _Reduced(_KINDS[op.name], x, bool(attribute(op, "keepdims", 1)))


def _insert(body: _Body, op: ir.Operation) -> _Known:
    """Return the item that a `SequenceInsert` appends to the results of earlier steps."""
    _check(isinstance(body.value(op.operands[0]), _Items) and len(op.operands) == 2)
    return body.value(op.operands[1])


def _branch(body: _Body, op: ir.Operation) -> _Known:
    test, names = body.value(op.operands[0]), region_names(op)
    _check(isinstance(test, _Test) and len(op.results) == 1)
    each = {
        name: body.run(region.blocks[0])[0] for name, region in zip(names, op.regions, strict=True)
    }
    assert isinstance(test, _Test)
    yes, no = each["then_branch"], each["else_branch"]
    if test.about == "empty":
        return _branch_on_empty(test, yes, no)
    if test.about == "last":
        return _branch_on_last(yes, no)
    if test.about == "negative":
        return _branch_on_negative(yes, no)
    if test.about == "unpadded":
        _check((yes, no) == (_Positions(adds=True), _Positions()))
        return replace(_Positions(adds=True), padding=test.padding)
    return _branch_on_positive(test, yes, no)


def _branch_on_empty(test: _Test, yes: _Known, no: _Known) -> _Known:
    """Return a reduction with the result of an empty bag."""
    if not isinstance(no, _Reduced) or not isinstance(no.rows.end, _Offset):
        raise _OtherError
    _check(test.offsets == (no.rows.start, replace(no.rows.end, last=None)))
    _check(test.padding == no.rows.padding)
    if isinstance(yes, _Outer):
        return replace(no, empty=yes)
    _check(isinstance(yes, _Zeros) or (isinstance(yes, _Number) and not yes.array.any()))
    return no


def _branch_on_last(yes: _Known, no: _Known) -> _Known:
    """Return rows, or their mean, with a different end or divisor in the last step."""
    if isinstance(yes, _Rows) and isinstance(no, _Rows) and isinstance(no.end, _Offset):
        _check(isinstance(yes.end, int) and yes == replace(no, end=yes.end))
        assert isinstance(yes.end, int)
        return replace(no, end=replace(no.end, last=yes.end))
    if not isinstance(yes, _Reduced) or not isinstance(no, _Reduced):
        raise _OtherError
    _check(yes.divisor is not None and no == replace(yes, divisor=None))
    return yes


def _branch_on_negative(yes: _Known, no: _Known) -> _Known:
    """Return an index that counts from the end of its table if it is negative."""
    if not isinstance(yes, _Index) or no != replace(yes, table=None):
        raise _OtherError
    return yes


def _branch_on_positive(test: _Test, yes: _Known, no: _Known) -> _Known:
    """Return a sum divided by a length; a length that is not positive means an empty bag."""
    if not isinstance(yes, _Reduced) or not isinstance(no, _Reduced):
        raise _OtherError
    _check(test.about == "positive" and yes.divisor == _Length(test.bound, *test.offsets))
    _check(no == replace(yes, kind="Sum", divisor=None))
    return yes


def _shape(value: ir.Value) -> list[int]:
    shape = static_shape(value.type)
    if shape is None or math.prod(shape) == 0:
        raise _OtherError
    return shape


def _padding(body: _Body, a: _Index, b: _Number) -> _Test:
    if a.table is None:
        raise _OtherError
    return _Test("padding", padding=_Padding(a.indices, b.integer, a.table))


def _is_zero(test: _Test) -> Callable[[_Body, _Known, _Number], _Test]:
    def compare(body: _Body, a: _Known, b: _Number) -> _Test:
        _check(b.integer == 0)
        return test

    return compare


def _test_continues(body: _Body, a: _Count, b: _Number) -> _Test:
    _check(a == _Count(1))
    return _Test("continues", b.integer)


def _more_rows(body: _Body, a: _Position, b: _Offset) -> _Test:
    _check(a == _Position(1))
    return _Test("more rows", offsets=(b,))


def _positive(body: _Body, a: _Length, b: _Number) -> _Test:
    _check(b.integer == 0)
    return _Test("positive", a.end, (a.start,))


def _none_kept(body: _Body, a: _Unpadded, b: _Number) -> _Test:
    _check(a.is_count and b.integer == 0)
    return _Test("empty", offsets=(a.start, a.end), padding=a.padding)


_COMPARISONS: dict[tuple[str, type, type], Callable[[_Body, Any, Any], _Test]] = {
    ("onnx.Equal", _Offset, _Offset): lambda body, a, b: _Test("empty", offsets=(a, b)),
    ("onnx.Equal", _Count, _Number): _test_last,
    ("onnx.Equal", _Index, _Number): _padding,
    ("onnx.Equal", _Unpadded, _Number): _none_kept,
    ("onnx.Less", _Count, _Number): _test_continues,
    ("onnx.Less", _Index, _Number): _is_zero(_Test("negative")),
    ("onnx.Less", _Offset, _Offset): lambda body, a, b: _Test("begins", offsets=(a, b)),
    ("onnx.Less", _Position, _Offset): _more_rows,
    ("onnx.Greater", _Length, _Number): _positive,
}
_KINDS: dict[str, Kind] = {
    "onnx.ReduceSum": "Sum",
    "onnx.ReduceMean": "Mean",
    "onnx.ReduceMax": "Max",
}
_OPS: dict[str, Callable[[_Body, ir.Operation], _Known]] = {
    "onnx.Add": _add,
    "onnx.Cast": _keep_number,
    "onnx.CastLike": _keep_number,
    "onnx.Concat": _concatenate,
    "onnx.Constant": _read_constant,
    "onnx.Div": _divide,
    "onnx.Equal": _compare,
    "onnx.Expand": _expand,
    "onnx.Gather": _gather,
    "onnx.Greater": _compare,
    "onnx.Identity": _pass_on,
    "onnx.If": _branch,
    "onnx.Less": _compare,
    "onnx.Loop": _loop,
    "onnx.Mul": _multiply,
    "onnx.Not": _negate,
    "onnx.ReduceMax": _reduce,
    "onnx.ReduceMean": _reduce,
    "onnx.ReduceSum": _reduce,
    "onnx.Reshape": _keep_number,
    "onnx.SequenceInsert": _insert,
    "onnx.Size": _count,
    "onnx.Slice": _slice,
    "onnx.Sub": _subtract,
    "onnx.Unsqueeze": _keep_number,
}
