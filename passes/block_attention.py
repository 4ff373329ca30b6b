"""`block-attention`: attention of long sequences as one operation, which runs in blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tensoropt.compiler.protos.op_names import NamedBuild, OpNamer
from tensoropt.compiler.protos.types import static_shape
from tensoropt.compiler.shapes.causality import HIDDEN, is_causal_term, sees_earlier, sees_later
from tensoropt.compiler.sharding.rule.attending import attend_long, can_block
from tensoropt.dialects.build import element_type, is_float, sizes_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    attribute,
    constant_value,
    function,
    made_by,
    opsets,
    owner,
    require_domain,
)
from tensoropt.passes.base import Pass
from tensoropt.passes.numbering import forget_removed
from tensoropt.runtime.support.collectives import DOMAIN

__all__ = ["BlockAttentionPass"]

_SINCE = 13
"""First opset in which Softmax normalises one dimension."""

_MATRICES = 3
"""Dimensions of the operands of attention at least."""


@dataclass(frozen=True)
class BlockAttentionPass(Pass):
    """Replaces the operations of a long attention by one `tensoropt.Attention`.

    An attention is long if its scores have more than four times the elements of query, key, value
    and result. It is a product, a scaling, one mask, a `Softmax` and a product, and casts between
    these; each result has one reader. The mask is causal, bools, or terms that no weight decides.
    Keys and values that are repeated for several heads of queries are read once. Attention with a
    limit of scores or with dropout is kept. Refuses nothing. Linear in the operations, and in the
    operations of each mask.
    """

    name: ClassVar[str] = "block-attention"
    summary: ClassVar[str] = "Join the operations of each attention over a long sequence."

    def run(self, module: ir.Module) -> None:
        version, namer, found = opsets(module).get("", 1), OpNamer(module), False
        with module.context, ir.Location.unknown():
            block = function(module).regions[0].blocks[0]
            for op in [view.operation for view in block] if version >= _SINCE else ():
                attention = _attention_of(op) if op.name == "onnx.Softmax" else None
                if attention is not None:
                    _rewrite(attention, NamedBuild(namer, attention.last, version))
                    found = True
            if found:
                require_domain(module, DOMAIN)
                forget_removed(module)


@dataclass
class _Attention:
    """The operands of an attention, its last operation, and its other operations from the last."""

    q: ir.Value
    k: ir.Value
    v: ir.Value
    last: ir.Operation
    others: list[ir.Operation] = field(default_factory=list)
    scale: float = 1.0
    mask: ir.Value | None = None
    inverted: bool = False
    causal: bool = False


def _attention_of(softmax: ir.Operation) -> _Attention | None:
    """Return the long attention with a softmax, ``None`` if its operations differ."""
    scores = static_shape(softmax.results[0].type)
    if scores is None or len(scores) < _MATRICES:
        return None
    if attribute(softmax, "axis", -1) not in (-1, len(scores) - 1):
        return None
    weights, chain = softmax, [softmax]
    last = _reader(weights.results[0])
    if last is not None and last.name == "onnx.Cast" and is_float(last.results[0]):
        chain.insert(0, last)
        last = _reader(last.results[0])
    if last is None or last.name != "onnx.MatMul" or last.operands[0] != chain[0].results[0]:
        return None
    found = _Attention(softmax.operands[0], softmax.operands[0], last.operands[1], last, chain)
    return found if _read_scores(found, softmax.operands[0]) and _fits(found) else None


def _read_scores(found: _Attention, value: ir.Value) -> bool:
    """Read the operations from a mask back to the product; return whether all are known."""
    masked = scaled = False
    while (op := owner(value)) is not None and _reader(value) is not None:
        found.others.append(op)
        if op.name == "onnx.MatMul":
            found.q, found.k = op.operands
            return True
        if op.name == "onnx.Cast" and is_float(op.operands[0]):
            value = op.operands[0]
        elif op.name in ("onnx.Mul", "onnx.Div") and (by := _factor(op)) is not None:
            number, value = by
            found.scale *= number if op.name == "onnx.Mul" else 1.0 / number
            scaled = True
        elif not (masked or scaled) and (under := _unmasked(found, op)) is not None:
            value, masked = under, True
        else:
            return False
    return False


def _factor(op: ir.Operation) -> tuple[float, ir.Value] | None:
    """Return the literal that scales scores, not 0, and the scores."""
    for scores, literal in ((0, 1), (1, 0)) if op.name == "onnx.Mul" else ((0, 1),):
        number = constant_value(op.operands[literal])
        if number is not None and number.size == 1 and number.item():
            return float(number.item()), op.operands[scores]
    return None


def _unmasked(found: _Attention, op: ir.Operation) -> ir.Value | None:
    """Note the mask of an operation; return the scores that it masks, ``None`` if it does not."""
    shape = static_shape(op.results[0].type)
    if op.name == "onnx.Add":
        for scores, term in ((0, 1), (1, 0)):
            mask = op.operands[term]
            if static_shape(op.operands[scores].type) == shape and _is_scored(op.operands[scores]):
                found.causal = is_causal_term(mask)
                found.mask = None if found.causal else mask
                return op.operands[scores] if found.causal or not _is_learned(mask) else None
    if op.name == "onnx.Where":
        condition, *sides = op.operands
        for number in (0, 1):
            fill = constant_value(sides[1 - number])
            if fill is None or fill.size != 1 or not fill.item() <= HIDDEN:
                continue
            found.causal = (sees_later if number else sees_earlier)(condition)
            found.mask, found.inverted = None if found.causal else condition, bool(number)
            return sides[number] if static_shape(sides[number].type) == shape else None
    return None


def _is_scored(value: ir.Value) -> bool:
    """Return whether a value is a product, possibly scaled or cast."""
    op = owner(value)
    if op is None:
        return False
    scaled = op.name in ("onnx.Mul", "onnx.Div", "onnx.Cast")
    return op.name == "onnx.MatMul" or (scaled and _is_scored(op.operands[0]))


def _is_learned(value: ir.Value) -> bool:
    """Return whether floating-point arguments of the program decide a value."""
    seen, left = set[ir.Value](), [value]
    while left:
        own = left.pop()
        if own in seen:
            continue
        seen.add(own)
        op = owner(own)
        if op is not None:
            left.extend(op.operands)
        elif is_float(own):
            return True
    return False


def _reader(value: ir.Value) -> ir.Operation | None:
    """Return the only operation that reads ``value``, once."""
    uses = iter(value.uses)
    first, second = next(uses, None), next(uses, None)
    return first.owner.operation if first is not None and second is None else None


def _fits(found: _Attention) -> bool:
    """Return whether the operands have the sizes of a long attention."""
    shapes = [static_shape(x.type) for x in (found.q, found.k, found.v)]
    if any(shape is None or len(shape) < _MATRICES for shape in shapes):
        return False
    q, k, v = (shape or [] for shape in shapes)
    if len({len(shape) for shape in (q, k, v)}) > 1 or k[:-2] != v[:-2] or k[-1] != v[-2]:
        return False
    if any(own not in (1, size) for own, size in zip(k[:-2], q[:-2], strict=True)):
        return False
    return can_block(found.q, found.k, found.v, causal=found.causal)


def _rewrite(found: _Attention, make: NamedBuild) -> None:
    """Replace the operations of an attention."""
    with ir.InsertionPoint(found.last):
        q = found.q if found.scale == 1.0 else make.scaled(found.q, found.scale)
        k, v = found.k, make.cast(found.v, element_type(q))
        made = _grouped(found, make, q, k, v) or _attend(found, make, q, k, v)
        made = make.cast(made, element_type(found.last.results[0]))
    found.last.results[0].replace_all_uses_with(made)
    for op in (found.last, *found.others):
        op.erase()


def _grouped(
    found: _Attention, make: NamedBuild, q: ir.Value, k: ir.Value, v: ir.Value
) -> ir.Value | None:
    """Return attention to keys and values that are repeated for several heads, if they are."""
    turned = made_by(k, "Transpose")
    if turned is None or found.mask is not None:
        return None
    if attribute(turned, "perm") != [0, 1, 3, 2]:
        return None
    own = [_unrepeated(x) for x in (turned.operands[0], v)]
    if own[0] is None or own[1] is None:
        return None
    (batch, groups, _, _), (_, heads, rows, size) = sizes_of(own[0]), sizes_of(q)
    each = heads // groups
    wide = make.reshape(q, [batch, groups, each, rows, size])
    key = make.unsqueeze(make.transpose(own[0], [0, 1, 3, 2]), [2])
    y = _attend(found, make, wide, key, make.unsqueeze(own[1], [2]))
    return make.reshape(y, [batch, heads, rows, sizes_of(own[1])[-1]])


def _unrepeated(value: ir.Value) -> ir.Value | None:
    """Return `b g t d` if ``value``, `b (g n) t d`, repeats each head of it ``n`` times."""
    merge = made_by(value, "Reshape")
    repeat = None if merge is None else made_by(merge.operands[0], "Expand")
    spread = None if repeat is None else made_by(repeat.operands[0], "Unsqueeze")
    if repeat is None or spread is None:
        return None
    x = spread.operands[0]
    own, wide, one, whole = (
        static_shape(v.type) for v in (x, repeat.results[0], repeat.operands[0], value)
    )
    if not own or not wide or not whole or len(own) != 4 or len(wide) != 5:
        return None
    batch, groups, keys, size = own
    repeated = one == [batch, groups, 1, keys, size]
    merged = whole == [batch, groups * wide[2], keys, size]
    return x if repeated and merged and wide == [batch, groups, wide[2], keys, size] else None


def _attend(found: _Attention, make: NamedBuild, q: ir.Value, k: ir.Value, v: ir.Value) -> ir.Value:
    mask = found.mask
    if mask is not None and found.inverted:
        mask = make.unary("Not", mask)
    return attend_long(make, q, k, v, mask, causal=found.causal)
