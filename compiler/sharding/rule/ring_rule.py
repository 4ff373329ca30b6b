"""Rules of attention operators: keys and values of a long sequence travel in a ring."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tensoropt.compiler.layout.rule import Minor, Rule
from tensoropt.compiler.layout.sizes import Size
from tensoropt.compiler.sharding.rule.arithmetic import Arithmetic
from tensoropt.compiler.sharding.rule.attending import Attending, is_long
from tensoropt.compiler.sharding.rule.factors import FactorMap, rule_of
from tensoropt.compiler.sharding.rule.heads import Heads, grouped_bias
from tensoropt.compiler.sharding.rule.local_op import Localize, LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.ring import Ring
from tensoropt.compiler.sharding.rule.ring_steps import Extents
from tensoropt.dialects.build import sizes_of
from tensoropt.dialects.mlir import ir

__all__ = ["attend_in_ring", "attention_rule", "ring_extents", "scale_of"]

_KEYS = (1, 2)
_PACKED = 3


@dataclass(frozen=True)
class _InRing:
    """A ``localize`` that builds a ring if axes split the factor ``sequence``, else ``whole``."""

    whole: Localize
    ring: Localize
    sequence: int

    def __call__(self, local: LocalOp) -> list[ir.Value]:
        return (self.ring if local.axes(self.sequence) else self.whole)(local)


def ring_extents(
    query: TensorInfo, rows: Size, sizes: tuple[int, int], *, keys: tuple[int, ...],
    queries: tuple[int, ...], sequence: int, causal: bool,
) -> Extents | None:  # fmt: skip
    """Return the sizes of a ring, ``None`` if the attention is short.

    ``sizes`` are the elements of a key and a value of one head; for the factors see
    :class:`Extents`.
    """
    if not isinstance(rows, int) or not is_long(rows, rows, sum(sizes), causal=causal):
        return None
    return Extents(queries, keys, sequence, rows, *sizes, query.dtype, query.item_bytes, causal)


def attention_rule(
    info: OpInfo, factors: Sequence[FactorMap], extents: Extents | None, *, whole: Localize,
    ring: Localize, minors: Iterable[Minor] = (),
) -> Rule:  # fmt: skip
    """Return the rule of an attention operator, in which ``whole`` builds the op of a rank.

    With ``extents``, keys and values are split along with the rows of the query, and ``ring``
    builds the op of a rank that has a part of the rows.
    """
    if extents is None:
        return rule_of(info, factors, localize=whole, flops_per_point=2.0, minors=minors)
    own, number = list(factors), extents.sequence
    rows = own[number]
    keys = {index: rows.operands[0] for index in _KEYS if info.operand(index) is not None}
    places = {**rows.operands, **keys}
    own[number] = replace(rows, operands=places, size=extents.pairs, can_split=True)
    return rule_of(
        info,
        own,
        localize=_InRing(whole, ring, number),
        flops_per_point=4.0 if extents.causal else 2.0,  # of pairs of rows, if causal
        minors=minors,
        inner=(*extents.turns(), *extents.ring()),
    )


def scale_of(info: OpInfo) -> float | None:
    """Return the scale of the scores of an operator of the runtime, ``None`` for the default."""
    return float(info.attribute("scale", 0.0)) or None


def attend_in_ring(
    local: LocalOp, heads: Heads, rows: int, operands: Sequence[ir.Value],
    mask: ir.Value | None = None, *, scale: float | None, softcap: float = 0.0, causal: bool,
) -> ir.Value:  # fmt: skip
    """Return the result of attention with rows and keys along the factor ``rows``.

    ``operands`` are query, key and value. Rows that see no key are zero.
    """
    make, (query, key, value) = Arithmetic(local), operands
    q, k = heads.query(make, query), heads.key(make, key, flip=True)
    v = heads.key(make, value, flip=False)
    q = make.scaled(q, 1.0 / math.sqrt(sizes_of(q)[-1]) if scale is None else scale)
    attending = Attending(make, softcap)
    ring = Ring(make, attending, local.axes(rows))
    if causal:
        y = ring.causal(q, k, v).y
    elif mask is None:
        y = ring.all(q, k, v).y
    else:
        part = ring.all(q, k, v, grouped_bias(make, heads, mask))
        seen = attending.sees(part, q)
        y = make.where(seen, part.y, make.scalar(0.0, part.y))
    packed = len(local.info.shape(0)) == _PACKED
    return make.as_result(heads.result(make, y, packed=packed))
