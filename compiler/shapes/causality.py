"""Recognition of causal masks: a row sees the keys up to its own place.

Exporters compare the places of rows and keys, or cut a triangle. Masks of long sequences are too
large to be evaluated, so the operations that make them are read.
"""

from __future__ import annotations

import math

import numpy as np

from tensoropt.compiler.protos.types import static_shape
from tensoropt.dialects.elements import Array
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import attribute, carried, constant_value, is_no_value, owner
from tensoropt.dialects.topt.keys import TRIANGLE

__all__ = ["HIDDEN", "is_causal_term", "sees_earlier", "sees_later"]

HIDDEN = -1e4
"""Terms and scores up to this number hide a key."""

_PASSING = frozenset(
    f"onnx.{name}" for name in ("Cast", "CastLike", "Expand", "Identity", "Reshape", "Unsqueeze")
)
"""Operators that keep the elements of their first operand, in order, or repeat them."""

_ROWS_FIRST = {"onnx.GreaterOrEqual": False, "onnx.Less": True}
_KEYS_FIRST = {"onnx.LessOrEqual": False, "onnx.Greater": True}


_EARLIER, _LATER, _HIDES = "earlier", "later", "hides"
"""The kinds of arguments that are causal masks, see `topt.triangle`."""


def sees_earlier(value: ir.Value) -> bool:
    """Return whether bools are true exactly for the keys up to the place of each row."""
    return _compares(value, later=False)


def sees_later(value: ir.Value) -> bool:
    """Return whether bools are true exactly for the keys after the place of each row."""
    return _compares(value, later=True)


def is_causal_term(value: ir.Value) -> bool:
    """Return whether terms of scores hide exactly the keys after the place of each row."""
    op, square = owner(value), _is_square(value)
    if op is None:
        return _triangle_of(value) == _HIDES
    if not square:
        return False
    literal = constant_value(value)
    if literal is not None:
        return _is_hiding(literal)
    if _is_corner(op):
        return is_causal_term(op.operands[0])
    if op.name in _PASSING and _is_square(op.operands[0]):
        return is_causal_term(op.operands[0])
    if op.name == "onnx.Where":
        condition, yes, no = op.operands
        if sees_earlier(condition):
            return _is_all(yes, 0.0) and _hides(no)
        return sees_later(condition) and _hides(yes) and _is_all(no, 0.0)
    return _triangle(op) == (True, 1) and _hides(op.operands[0])


def _compares(value: ir.Value, *, later: bool) -> bool:
    op = owner(value)
    if op is None:
        return _triangle_of(value) == (_LATER if later else _EARLIER)
    if not _is_square(value):
        return False
    if _is_corner(op):
        return _compares(op.operands[0], later=later)
    literal = constant_value(value)
    if literal is not None:
        seen = np.tri(literal.shape[-1], dtype=bool)
        return bool((literal == (~seen if later else seen)).all())
    if op.name in _PASSING and _is_square(op.operands[0]):
        return _compares(op.operands[0], later=later)
    if op.name == "onnx.Not":
        return _compares(op.operands[0], later=not later)
    if op.name == "onnx.Equal":  # a triangle of ones is compared with 0
        ones = [x for x, other in (op.operands, reversed(op.operands)) if _is_all(other, 0.0)]
        return any(_compares(x, later=not later) for x in ones)
    if op.name in _ROWS_FIRST or op.name in _KEYS_FIRST:
        rows_first = op.name in _ROWS_FIRST
        rows, keys = op.operands if rows_first else reversed(op.operands)
        name = (_ROWS_FIRST if rows_first else _KEYS_FIRST)[op.name]
        return name == later and _counts(rows, -2) and _counts(keys, -1)
    wanted = (True, 1) if later else (False, 0)
    return _triangle(op) == wanted and _is_all(op.operands[0], 1.0)


def _triangle_of(value: ir.Value) -> str | None:
    """Return the kind of an argument that is a causal mask, see `topt.triangle`."""
    main = ir.BlockArgument(value).owner.owner
    if main is None or main.operation.name != "func.func":
        return None
    attributes = carried(main.operation, "arg_attrs")
    number = ir.BlockArgument(value).arg_number
    return TRIANGLE.get(attributes[number]) if attributes else None


def _is_hiding(literal: Array) -> bool:
    """Return whether a literal is 0 up to the place of each row and hides later keys."""
    if literal.dtype.kind != "f":
        return False
    seen = np.tri(literal.shape[-1], dtype=bool)
    return bool(np.where(seen, literal == 0, literal <= HIDDEN).all())


def _is_corner(op: ir.Operation) -> bool:
    """Return whether a `Slice` takes the first rows and keys."""
    if op.name != "onnx.Slice" or len(op.operands) < 2:
        return False
    bounds = [constant_value(x) for i, x in enumerate(op.operands) if i in (1, 4)]
    shapes = [static_shape(x.type) for x in (op.operands[0], op.results[0])]
    if any(x is None for x in (*bounds, *shapes)):
        return False
    whole = (shapes[0] or [])[-2:]
    starts, *steps = bounds
    is_first = starts is not None and not starts.any()
    is_dense = all(x is not None and (x == 1).all() for x in steps)
    return is_first and is_dense and whole[0] == whole[1]


def _triangle(op: ir.Operation) -> tuple[bool, int] | None:
    """Return whether a `Trilu` keeps the upper triangle, and from which diagonal on."""
    if op.name != "onnx.Trilu":
        return None
    diagonal = 0
    if len(op.operands) > 1 and not is_no_value(op.operands[1]):
        given = constant_value(op.operands[1])
        if given is None:
            return None
        diagonal = int(given.item())
    return bool(attribute(op, "upper", 1)), diagonal


def _is_square(value: ir.Value) -> bool:
    """Return whether a value has one square matrix."""
    shape = static_shape(value.type) or []
    return len(shape) > 1 and shape[-1] == shape[-2] and math.prod(shape[:-2]) == 1


def _counts(value: ir.Value, dim: int) -> bool:
    """Return whether a value has the places 0, 1, ... along ``dim``, and size 1 along others."""
    shape = static_shape(value.type) or []
    if not shape or math.prod(shape) != shape[max(dim, -len(shape))]:
        return False
    return _is_range(value, math.prod(shape))


def _is_range(value: ir.Value, count: int) -> bool:
    literal, op = constant_value(value), owner(value)
    if literal is not None:
        return bool(literal.size == count and (literal.reshape(-1) == np.arange(count)).all())
    if op is None:
        return False
    if op.name == "onnx.Range":
        given = [constant_value(operand) for operand in op.operands]
        return [None if x is None else x.item() for x in given] == [0, count, 1]
    shape = static_shape(op.operands[0].type) if op.name in _PASSING else None
    return shape is not None and math.prod(shape) == count and _is_range(op.operands[0], count)


def _is_all(value: ir.Value, wanted: float) -> bool:
    number = _number(value)
    return number is not None and number == wanted


def _hides(value: ir.Value) -> bool:
    number = _number(value)
    return number is not None and number <= HIDDEN


def _number(value: ir.Value) -> float | None:
    """Return the number that all elements of a value are, ``None`` if they may differ."""
    literal, op = constant_value(value), owner(value)
    if literal is None and op is not None:
        if op.name in _PASSING:
            return _number(op.operands[0])
        if op.name == "onnx.ConstantOfShape":
            literal = np.asarray(attribute(op, "value", np.zeros(1, np.float32)))
    if literal is None or literal.size == 0 or literal.dtype.kind not in "fbiu":
        return None
    first = literal.reshape(-1)[0]
    return float(first) if bool((literal == first).all()) else None
