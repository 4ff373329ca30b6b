"""Matrix products: MatMul with NumPy's broadcasting, and Gemm."""

from __future__ import annotations

from tensoropt.compiler.sharding.op_info import OpInfo, Shape
from tensoropt.compiler.sharding.registry import sharding_rule
from tensoropt.compiler.sharding.rule import Dims, Factor, Linear, Rule

__all__ = ["matmul"]


@sharding_rule("MatMul")
def matmul(info: OpInfo) -> Rule:
    """Return `b m k, b k n -> b m n`; a vector has no m (on the left) or no n (on the right)."""
    left, right = info.shape(0), info.shape(1)
    batch = _batch(left[:-2], right[:-2], info.result_shape())
    m, n = (left[-2:-1] or (None,))[0], right[-1]
    first = len(batch)
    rows, columns, inner = first, first + 1, first + 2
    factors = (
        *(Factor(size) for size in batch),
        Factor(m if len(left) > 1 else 1),
        Factor(n if len(right) > 1 else 1),
        Factor(left[-1], reduction="sum"),
    )
    has_rows, has_columns = len(left) > 1, len(right) > 1
    return Rule(
        factors,
        operands=(
            _batch_dims(left[:-2], batch) + ((rows, inner) if has_rows else (inner,)),
            _batch_dims(right[:-2], batch) + ((inner, columns) if has_columns else (inner,)),
        ),
        results=(tuple(range(first)) + (rows,) * has_rows + (columns,) * has_columns,),
        linear=(Linear((0,)), Linear((1,))),
        flops_per_point=2.0,
    )


def _batch(left: Shape, right: Shape, result: Shape) -> Shape:
    return result[: max(len(left), len(right))]


def _batch_dims(own: Shape, batch: Shape) -> Dims:
    """Return which batch factor each dimension runs along; one that is repeated is whole."""
    offset = len(batch) - len(own)
    return tuple(offset + i if size == batch[offset + i] else None for i, size in enumerate(own))
