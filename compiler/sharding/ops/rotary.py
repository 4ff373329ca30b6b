"""Rotary embeddings of the standard and of the runtime."""

from __future__ import annotations

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.sharding.rule.factors import FactorMap, linear_in, rule_of
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import sharding_rule
from tensoropt.compiler.sharding.rule.windows import count, window_loop
from tensoropt.dialects.mlir import ir

__all__ = ["rotary_embedding", "runtime_embedding", "several_positions"]

# Index of the factor over heads.
_HEADS = 1

# Two products and a sum for each half of the rotated elements.
_FLOPS = 3.0


@sharding_rule("RotaryEmbedding")
def rotary_embedding(info: OpInfo) -> Rule:
    """Split batch, heads, and rows, with the angles unless positions index a table of them."""
    per_row = (3,) if info.operand(3) is not None else (1, 2)
    return _rotation_rule(info, int(info.attribute("num_heads", 0)), per_row)


@sharding_rule("com.microsoft.RotaryEmbedding")
def runtime_embedding(info: OpInfo) -> Rule | None:
    """Split batch, heads, and rows, unless rows are counted from a first position.

    Without an attribute, the angles determine the number of heads. ``None`` for ragged batches.
    """
    if info.attribute("is_packed_batching", 0):
        return None
    heads = int(info.attribute("num_heads", 0))
    if not heads:
        hidden, half = info.shape(0)[-1], info.shape(2)[1]
        heads = 0 if hidden is None or half is None else hidden // (2 * half)
    per_row = (1,) if len(info.shape(1)) == 2 else ()
    return _rotation_rule(info, heads, per_row, counted=not per_row)


@sharding_rule("com.microsoft.MRotaryEmbedding")
def several_positions(info: OpInfo) -> Rule | None:
    """Split batch, heads, and rows; each row has three positions. ``None`` for ragged batches."""
    if info.attribute("is_packed_batching", 0):
        return None
    return _rotation_rule(info, int(info.attribute("num_heads", 0)), (1,), batch=1)


def _rotation_rule(
    info: OpInfo, heads: int, per_row: tuple[int, ...], *, batch: int = 0, counted: bool = False
) -> Rule:
    """Return the rule, linear, of a rotation of operand 0, `b h s d` or `b s (h d)`.

    The operands in ``per_row`` run along batch and rows, from dimension ``batch`` on. Rows that are
    ``counted`` stay whole.
    """
    shape = info.shape(0)
    head, row = (2, 1) if len(shape) == 3 else (1, 2)
    heads = heads if head == 2 else shape[1] or 0
    size = count(shape[-1:]) // (max(heads, 1) if head == 2 else 1)
    factors = [
        FactorMap({0: 0, **dict.fromkeys(per_row, batch)}, {0: 0}),
        FactorMap({0: head}, {0: head}, size=heads or None, can_split=heads > 0),
        FactorMap({0: row, **dict.fromkeys(per_row, batch + 1)}, {0: row}, can_split=not counted),
        window_loop([size]),
    ]
    linear = linear_in(info, (0,))
    return rule_of(info, factors, linear=linear, localize=_divide_heads, flops_per_point=_FLOPS)


def _divide_heads(local: LocalOp) -> list[ir.Value]:
    return local.clone(attributes=local.divide_attributes(_HEADS, "num_heads"))
