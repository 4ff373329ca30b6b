"""`block-attention`: attention of long sequences as one operation, which runs in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.protos.op_names import NamedBuild, OpNamer
from tensoropt.compiler.protos.types import static_shape
from tensoropt.compiler.sharding.rule.attending import attend_long, can_block
from tensoropt.dialects.build import element_type, is_float, sizes_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import (
    attribute,
    function,
    made_by,
    opsets,
    owner,
    require_domain,
)
from tensoropt.passes.attention_chains import Chain, read_chain, unrepeated
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
    """Replaces the operations of a long attention by one `tensoropt.BlockedAttention`.

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


def _attention_of(softmax: ir.Operation) -> Chain | None:
    """Return the long attention with a softmax, ``None`` if its operations differ."""
    found = read_chain(softmax)
    if found is None or found.softcap or found.ratio or found.guarded or len(found.masks) > 1:
        return None
    is_learned = any(mask.fill is None and _is_learned(mask.value) for mask in found.other_masks)
    return found if not is_learned and _fits(found) else None


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


def _fits(found: Chain) -> bool:
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


def _rewrite(found: Chain, make: NamedBuild) -> None:
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
    found: Chain, make: NamedBuild, q: ir.Value, k: ir.Value, v: ir.Value
) -> ir.Value | None:
    """Return attention to keys and values that are repeated for several heads, if they are."""
    turned = made_by(k, "Transpose")
    if turned is None or found.other_masks:
        return None
    if attribute(turned, "perm") != [0, 1, 3, 2]:
        return None
    own = [unrepeated(x) for x in (turned.operands[0], v)]
    if own[0] is None or own[1] is None:
        return None
    (batch, groups, _, _), (_, heads, rows, size) = sizes_of(own[0]), sizes_of(q)
    each = heads // groups
    wide = make.reshape(q, [batch, groups, each, rows, size])
    key = make.unsqueeze(make.transpose(own[0], [0, 1, 3, 2]), [2])
    y = _attend(found, make, wide, key, make.unsqueeze(own[1], [2]))
    return make.reshape(y, [batch, heads, rows, sizes_of(own[1])[-1]])


def _attend(found: Chain, make: NamedBuild, q: ir.Value, k: ir.Value, v: ir.Value) -> ir.Value:
    first = found.other_masks[0] if found.other_masks else None
    mask = None if first is None else first.value
    if first is not None and first.inverted:
        mask = make.unary("Not", first.value)
    return attend_long(make, q, k, v, mask, causal=found.causal)
