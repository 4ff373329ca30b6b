"""`fold-constants`: fold operations that depend only on constants and static shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.protos.op_names import OpNamer
from tensoropt.compiler.protos.types import static_shape, tensor_element
from tensoropt.compiler.shapes.evaluate import evaluate
from tensoropt.compiler.shapes.refine import refine_types, replace_value
from tensoropt.dialects.elements import to_dense
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    CONSTANT,
    attribute,
    constant_value,
    function,
    is_no_value,
    owner,
    region_names,
    walk,
)
from tensoropt.passes.base import Pass
from tensoropt.passes.numbering import forget_removed

__all__ = ["FoldConstantsPass", "fold_rounds"]

# Deterministic operators used in the arithmetic of shapes, indices and masks.
_FOLDABLE = """
    Abs Add And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil
    Clip Compress Concat ConstantOfShape CumSum Div Equal Exp Expand EyeLike Flatten Floor Gather
    GatherElements GatherND Greater GreaterOrEqual Identity Less LessOrEqual Log Max Mean Min Mod
    Mul Neg NonZero Not OneHot Or Pad Pow Range Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum Reshape Round ScatterElements ScatterND Shape Sign Size Slice Split Sqrt Squeeze Sub
    Sum Tile TopK Transpose Trilu Unsqueeze Where Xor
"""
_SIZES = frozenset(
    f"onnx.{name}"
    for name in ("Concat", "Gather", "Reshape", "Shape", "Slice", "Squeeze", "Unsqueeze")
)
"""Operators that return sizes if their first operands (for `Concat`, all operands) are sizes."""
_FOLDABLE_NAMES = frozenset(f"onnx.{name}" for name in _FOLDABLE.split())

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class FoldConstantsPass(Pass):
    """Folds the arithmetic of shapes, indices and masks into literals, and refines shapes.

    Folds operations on literals, `Shape` and `Size` of a static tensor, and selections of known
    sizes of a `Shape`, if every result has an integer type and at most ``limit`` elements, or is a
    single number. Weights are never folded. Operations that only pass an operand on are removed: a
    `Where` with an always false condition, since sizes are not negative, and a `Reshape` of a list
    to the same length. An `If` with a literal condition becomes the operations of its branch.
    Repeats until nothing changes; each round infers all shapes again if any is unknown. Values come
    from ONNX Runtime in a child process; operations that it refuses, or that crash it like a
    division by zero, are kept. Refuses a partitioned module.
    """

    name: ClassVar[str] = "fold-constants"
    summary: ClassVar[str] = "Fold the arithmetic of shapes, indices and masks into literals."

    limit: int = 4096

    def run(self, module: ir.Module) -> None:
        with module.context, ir.Location.unknown():
            for _ in fold_rounds(module, self.limit):
                pass
            forget_removed(module)


def fold_rounds(module: ir.Module, limit: int = FoldConstantsPass.limit) -> Iterator[None]:
    """Fold until nothing changes; yield each time that shapes have been inferred again."""
    while (found := _Round(module, limit)).fold():
        if found.resized or not _is_static(module):
            refine_types(module)
            yield


def _is_static(module: ir.Module) -> bool:
    """Return whether all shapes are static."""
    kinds = {value.type for op in walk(function(module)) for value in op.results}
    return all(isinstance(kind, ir.NoneType) or static_shape(kind) is not None for kind in kinds)


class _Round:
    """One walk over the module, which folds as much as the currently known shapes allow."""

    def __init__(self, module: ir.Module, limit: int) -> None:
        self.module = module
        self.limit = limit
        self.known: dict[ir.Value, Array | None] = {}  # None: evaluated at the end of the walk
        self.pending: list[ir.Operation] = []
        self.folded: dict[ir.Value, Array] = {}
        self.replaced: dict[ir.Value, ir.Value] = {}  # results that only pass an operand on
        self.decided: list[ir.Operation] = []  # each `If` with a literal condition
        self.resized = False
        """True if the shape of a value differs from its type."""

    def fold(self) -> bool:
        """Fold; return whether anything changed."""
        for op in walk(function(self.module)):
            self._visit(op)
        if self.pending:
            literals = {value: array for value, array in self.known.items() if array is not None}
            self.folded.update(evaluate(self.module, self.pending, literals))
        for value, same in self.replaced.items():
            value.replace_all_uses_with(same)
        done = {ir.OpResult(value).owner for value in self.folded}
        namer = OpNamer(self.module)
        for value, array in self.folded.items():
            _replace(value, array, namer)
        for folded in done:
            folded.erase()
        for value in reversed(self.replaced):
            ir.OpResult(value).owner.erase()
        for op in self.decided:
            _inline(op)
        self.resized |= bool(self.decided)
        return bool(done or self.replaced or self.decided)

    def _visit(self, op: ir.Operation) -> None:
        if op.name == CONSTANT:
            self.known[op.results[0]] = constant_value(op.results[0])
        elif op.name == "onnx.If":
            # An `If` inside a decided `If` waits for the next round: its branch may be removed.
            if constant_value(op.operands[0]) is not None and not self._is_inside_decided(op):
                self.decided.append(op)
        elif (array := self._of_sizes(op)) is not None:
            self.known[op.results[0]] = self.folded[op.results[0]] = array
        elif (same := self._same(op)) is not None:
            self.replaced[op.results[0]] = same
        elif self._is_foldable(op):
            self.pending.append(op)
            self.known.update((value, None) for value in op.results)

    def _is_inside_decided(self, op: ir.Operation) -> bool:
        around = op.parent
        while around is not None and around not in self.decided:
            around = around.parent
        return around is not None

    def _of_sizes(self, op: ir.Operation) -> Array | None:
        """Return the value of `Shape` or `Size`, or of an operation on known sizes of a `Shape`."""
        if op.name == "onnx.Equal":
            return self._never(op)
        if op.name not in ("onnx.Gather", "onnx.Slice"):
            return _of_shape(op)
        literals = [self.known.get(value) for value in [*op.operands][1:]]
        shape = owner(op.operands[0])
        if (
            not literals
            or any(x is None for x in literals)
            or shape is None
            or shape.name != "onnx.Shape"
        ):
            return None
        return _picked(op, shape, literals)

    def _never(self, op: ir.Operation) -> Array | None:
        """Return false for an `Equal` of sizes and a negative literal, else ``None``."""
        shape, (left, right) = static_shape(op.results[0].type), op.operands
        for sizes, literal in ((left, right), (right, left)):
            value = self.known.get(literal)
            if shape is None or value is None or value.dtype.kind != "i":
                continue
            if (value < 0).all() and self._counts(sizes):
                return np.zeros(shape, bool)
        return None

    def _counts(self, value: ir.Value) -> bool:
        """Return whether a value consists only of sizes, which are not negative."""
        literal, op = self.known.get(value), owner(value)
        if literal is not None:
            return literal.dtype.kind == "i" and bool((literal >= 0).all())
        if op is None or op.name not in _SIZES:
            return False
        read = op.operands if op.name == "onnx.Concat" else [*op.operands][:1]
        return op.name == "onnx.Shape" or all(self._counts(operand) for operand in read)

    def _same(self, op: ir.Operation) -> ir.Value | None:
        """Return the operand that ``op`` passes on, or ``None``.

        Handles a `Where` with a condition that is always false, and a `Reshape` of a list to the
        same length.
        """
        number = 2 if op.name == "onnx.Where" else 0
        if op.name == "onnx.Where":
            condition = self.known.get(op.operands[0])
            passes = condition is not None and not condition.any()
        else:
            passes = op.name == "onnx.Reshape" and len(static_shape(op.results[0].type) or ()) == 1
        same = op.operands[number] if passes else None
        if same is None or same.type != op.results[0].type:
            return None
        return self.replaced.get(same, same)

    def _is_foldable(self, op: ir.Operation) -> bool:
        return (
            op.name in _FOLDABLE_NAMES
            and all(value in self.known or is_no_value(value) for value in op.operands)
            and all(self._is_small(op, value.type) for value in op.results)
        )

    def _is_small(self, op: ir.Operation, kind: ir.Type) -> bool:
        shape = static_shape(kind)
        if shape is None:
            return False
        if tensor_element(kind).is_integer:
            return math.prod(shape) <= self.limit
        # A float tensor made only from a shape is a weight in disguise, so it is not folded.
        return math.prod(shape) == 1 and op.name != "onnx.ConstantOfShape"


def _inline(op: ir.Operation) -> None:
    """Replace an `If` with a literal condition by the operations of the branch taken."""
    condition = constant_value(op.operands[0])
    assert condition is not None, "the condition is a literal"
    taken = "then_branch" if condition.all() else "else_branch"
    block = op.regions[region_names(op).index(taken)].blocks[0]
    *inner, end = (view.operation for view in block)
    for child in inner:
        child.move_before(op)
    for old, new in zip(op.results, end.operands, strict=True):
        replace_value(old, new)
    op.erase()


def _of_shape(op: ir.Operation) -> Array | None:
    """Return the value of a `Shape` or `Size` of known dimensions, else ``None``."""
    if op.name == "onnx.Size":
        shape = static_shape(op.operands[0].type)
        return None if shape is None else np.array(math.prod(shape), np.int64)
    kind = op.operands[0].type if op.name == "onnx.Shape" else None
    if not isinstance(kind, ir.RankedTensorType):
        return None
    start, stop = attribute(op, "start", 0), attribute(op, "end")
    wanted = range(kind.rank)[slice(start, stop)]
    if any(kind.is_dynamic_dim(dim) for dim in wanted):
        return None
    return np.array([kind.shape[dim] for dim in wanted], np.int64)


def _picked(op: ir.Operation, shape: ir.Operation, literals: list[Any]) -> Array | None:
    """Return the value of a `Gather` or `Slice` of a `Shape` if it takes only known sizes."""
    kind = shape.operands[0].type
    if not isinstance(kind, ir.RankedTensorType):
        return None
    sizes = [-1 if kind.is_dynamic_dim(dim) else kind.shape[dim] for dim in range(kind.rank)]
    whole = np.array(sizes[slice(attribute(shape, "start", 0), attribute(shape, "end"))], np.int64)
    if op.name == "onnx.Gather":
        inside = (literals[0] >= -len(whole)) & (literals[0] < len(whole))
        taken = whole[literals[0]] if inside.all() else np.array(-1)
    else:
        taken = whole[slice(*(int(bound.item()) for bound in (*literals[:2], *literals[3:])))]
    return None if (taken < 0).any() else np.asarray(taken, np.int64)


def _replace(value: ir.Value, array: Array, namer: OpNamer) -> None:
    """Replace ``value`` by a literal; the literal of the first result gets the name of the op."""
    op = ir.OpResult(value).owner.operation
    number = ir.OpResult(value).result_number
    literal = to_dense(array)
    kind = ir.RankedTensorType.get(list(array.shape), tensor_element(value.type).type())
    made = ir.Operation.create(
        CONSTANT,
        results=[kind],
        attributes={"value": literal},
        loc=namer.location(op, str(number)) if number else op.location,
        ip=ir.InsertionPoint(op),
    )
    value.replace_all_uses_with(made.result)
