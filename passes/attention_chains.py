"""Attention as exporters write it: a product, scalings, masks, a `Softmax` and a product."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tensoropt.compiler.protos.types import static_shape
from tensoropt.compiler.shapes.causality import HIDDEN, is_causal_term, sees_earlier, sees_later
from tensoropt.compiler.training.gradients.dropout import RATIO
from tensoropt.dialects.build import is_float
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import attribute, constant_value, is_no_value, made_by, owner

__all__ = ["Chain", "Mask", "factor_of", "read_chain", "reader_of", "unrepeated"]

_MATRICES = 3
"""Dimensions of the operands of attention at least."""

_GUARDED = 2
"""Readers of a softmax with NaN replaced."""

_AFTER_PRODUCT = frozenset(
    f"onnx.{name}" for name in ("Add", "Cast", "Div", "Mul", "Tanh", "Where")
)
"""Operations between the scores and their softmax."""


@dataclass(frozen=True)
class Mask:
    """Terms that are added to scores, or bools of visible keys, of hidden ones if ``inverted``.

    Scores of hidden keys become ``fill``. If ``causal``, it hides exactly the later keys.
    """

    value: ir.Value
    fill: float | None = None
    inverted: bool = False
    causal: bool = False

    @property
    def excludes(self) -> bool:
        """True if scores of hidden keys become -inf, so that these have no weight in any row."""
        return self.fill == -math.inf


@dataclass
class Chain:
    """The operands of an attention, its last operation, and its other operations from the last.

    One of them is the ``softmax``. Keys are `... d t`. Scores are scaled, bounded by ``softcap`` if
    it is not 0, and masked; the last mask is the first that is applied. The result of a row without
    keys is 0 if it is ``guarded``. Weights are dropped with the probability ``ratio``.
    """

    q: ir.Value
    k: ir.Value
    v: ir.Value
    last: ir.Operation
    softmax: ir.Operation
    others: list[ir.Operation] = field(default_factory=list)
    scale: float = 1.0
    softcap: float = 0.0
    masks: list[Mask] = field(default_factory=list)
    guarded: bool = False
    ratio: float = 0.0

    @property
    def causal(self) -> bool:
        """True if rows see no later keys."""
        return any(mask.causal for mask in self.masks)

    @property
    def other_masks(self) -> list[Mask]:
        """The masks that are not causal."""
        return [mask for mask in self.masks if not mask.causal]


def read_chain(softmax: ir.Operation) -> Chain | None:
    """Return the attention with a softmax, ``None`` if its operations differ.

    Each result has one reader. Linear in the operations, and in those of each mask.
    """
    scores = static_shape(softmax.results[0].type)
    if scores is None or len(scores) < _MATRICES:
        return None
    if attribute(softmax, "axis", -1) not in (-1, len(scores) - 1):
        return None
    ops, last, guard = [softmax], reader_of(softmax.results[0]), _guard_of(softmax)
    if guard:
        ops, last = [*guard, softmax], reader_of(guard[0].results[0])
    ratio = 0.0
    while last is not None and (between := _dropped(last)) is not None:
        if ratio and between:
            return None
        ratio = ratio or between
        ops.insert(0, last)
        last = reader_of(last.results[0])
    if last is None or last.name != "onnx.MatMul" or last.operands[0] != ops[0].results[0]:
        return None
    scored = softmax.operands[0]
    chain = Chain(scored, scored, last.operands[1], last, softmax, ops, guarded=bool(guard))
    chain.ratio = ratio
    return chain if _read_scores(chain, softmax.operands[0]) else None


def _dropped(op: ir.Operation) -> float | None:
    """Return the share of weights that an operation after a softmax drops, 0 of a cast.

    ``None`` if it does something else, or its ratio is no literal.
    """
    if op.name == "onnx.Cast" and is_float(op.results[0]):
        return 0.0
    masks = [result for result in [*op.results][1:] if any(True for _ in result.uses)]
    if op.name != "onnx.Dropout" or masks:
        return None
    if len(op.operands) == 1 or is_no_value(op.operands[1]):
        return RATIO
    ratio = constant_value(op.operands[1])
    return None if ratio is None else float(ratio.reshape(()))


def _guard_of(softmax: ir.Operation) -> list[ir.Operation]:
    """Return the operations that replace NaN, of rows without keys, by 0; the last one first."""
    readers = [use.owner.operation for use in softmax.results[0].uses]
    nan = next((op for op in readers if op.name == "onnx.IsNaN"), None)
    where = None if nan is None else reader_of(nan.results[0])
    if nan is None or where is None or where.name != "onnx.Where" or len(readers) != _GUARDED:
        return []
    zero = constant_value(where.operands[1])
    is_zero = zero is not None and zero.size == 1 and zero.item() == 0
    same = where.operands[0] == nan.results[0] and where.operands[2] == softmax.results[0]
    return [where, nan] if is_zero and same else []


def reader_of(value: ir.Value) -> ir.Operation | None:
    """Return the only operation that reads ``value``, once."""
    uses = iter(value.uses)
    first, second = next(uses, None), next(uses, None)
    return first.owner.operation if first is not None and second is None else None


def factor_of(op: ir.Operation) -> tuple[float, ir.Value] | None:
    """Return the literal by which a `Mul` or `Div` scales a value, not 0, and the value."""
    if op.name not in ("onnx.Mul", "onnx.Div"):
        return None
    for scores, literal in ((0, 1), (1, 0)) if op.name == "onnx.Mul" else ((0, 1),):
        number = constant_value(op.operands[literal])
        if number is not None and number.size == 1 and number.item():
            by = float(number.item())
            return by if op.name == "onnx.Mul" else 1.0 / by, op.operands[scores]
    return None


def unrepeated(value: ir.Value) -> ir.Value | None:
    """Return `b g t d` if ``value``, `b (g n) t d`, repeats each head of it ``n`` times."""
    merge = made_by(value, "Reshape")
    repeat = None if merge is None else made_by(merge.operands[0], "Expand", "Tile")
    spread = None if repeat is None else made_by(repeat.operands[0], "Unsqueeze")
    if repeat is None or spread is None:
        return None
    x = spread.operands[0]
    single, wide, spread_shape, whole = (
        static_shape(v.type) for v in (x, repeat.results[0], repeat.operands[0], value)
    )
    if not single or not wide or not whole or len(single) != 4 or len(wide) != 5:
        return None
    batch, groups, keys, size = single
    repeated = spread_shape == [batch, groups, 1, keys, size]
    merged = whole == [batch, groups * wide[2], keys, size]
    return x if repeated and merged and wide == [batch, groups, wide[2], keys, size] else None


def _read_scores(chain: Chain, value: ir.Value) -> bool:
    """Read the operations from the masks back to the product; return whether all are known."""
    scaled = False
    while (op := owner(value)) is not None and reader_of(value) is not None:
        chain.others.append(op)
        if op.name == "onnx.MatMul":
            chain.q, chain.k = op.operands
            chain.scale *= chain.softcap or 1.0
            return True
        if op.name == "onnx.Cast" and is_float(op.operands[0]):
            value = op.operands[0]
        elif (by := factor_of(op)) is not None:
            number, value = by
            chain.scale *= number
            scaled = True
        elif op.name == "onnx.Tanh" and not chain.softcap and chain.scale > 0:
            chain.softcap, chain.scale, value = chain.scale, 1.0, op.operands[0]
            scaled = True
        elif not scaled and (under := _unmasked(chain, op)) is not None:
            value = under
        else:
            return False
    return False


def _unmasked(chain: Chain, op: ir.Operation) -> ir.Value | None:
    """Note the mask of an operation; return the scores that it masks, ``None`` if it does not."""
    shape = static_shape(op.results[0].type)
    if op.name == "onnx.Add":
        for scores, term in ((0, 1), (1, 0)):
            mask = _unstretched(op.operands[term])
            if static_shape(op.operands[scores].type) == shape and _is_scored(op.operands[scores]):
                chain.masks.append(Mask(mask, causal=is_causal_term(mask)))
                return op.operands[scores]
    if op.name == "onnx.Where":
        condition, *sides = op.operands
        condition = _unstretched(condition)
        for number in (0, 1):
            fill = constant_value(sides[1 - number])
            if fill is None or fill.size != 1 or not fill.item() <= HIDDEN:
                continue
            causal = (sees_later if number else sees_earlier)(condition)
            chain.masks.append(Mask(condition, float(fill.item()), bool(number), causal))
            return sides[number] if static_shape(sides[number].type) == shape else None
    return None


def _unstretched(mask: ir.Value) -> ir.Value:
    """Return a mask before it was repeated for all sequences and heads."""
    stretch = made_by(mask, "Expand")
    if stretch is None:
        return mask
    before, after = (static_shape(v.type) for v in (stretch.operands[0], mask))
    same = before is not None and after is not None and before[-2:] == after[-2:]
    return stretch.operands[0] if same else mask


def _is_scored(value: ir.Value, steps: int = 8) -> bool:
    """Return whether a value is a product, possibly scaled, bounded, masked or cast."""
    op = owner(value)
    if op is None or not steps:
        return False
    if op.name == "onnx.MatMul":
        return True
    return op.name in _AFTER_PRODUCT and any(_is_scored(x, steps - 1) for x in op.operands)
