"""Matrix products inside operators, as sizes of rows, columns and depth on one rank."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from tensoropt.compiler.cost.kernel import Kernel
from tensoropt.compiler.layout.sizes import mean_of
from tensoropt.runtime.layout.mesh import Mesh

if TYPE_CHECKING:
    from tensoropt.compiler.layout.rule import Rule, Strategy

__all__ = ["product_of"]


def product_of(rule: Rule, strategy: Strategy, mesh: Mesh) -> Kernel | None:
    """Return the product that one rank computes; ``None`` if the op multiplies no matrices."""
    loops = _loops(rule.operands, rule.results)
    if loops is None:
        return None
    sizes = (math.prod(_part(rule, strategy, mesh, factor) for factor in own) for own in loops)
    return Kernel("products", tuple(sizes))


def _part(rule: Rule, strategy: Strategy, mesh: Mesh, factor: int) -> float:
    """Return the size of a factor on one rank."""
    return max(mean_of([rule.factors[factor].size]) / mesh.extent(strategy.axes_of(factor)), 1.0)


@lru_cache(maxsize=1 << 12)  # few distinct rules among all nodes
def _loops(
    operands: tuple[tuple[int | None, ...], ...], results: tuple[tuple[int | None, ...], ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Return the factors of the rows, the columns and the depth of a product.

    The depth has the factors that both operands have and the result has not, and the window of a
    convolution. The columns belong to the second operand alone.
    """
    if len(operands) < 2 or not results:
        return None
    left, right, kept = (_present(dims) for dims in (operands[0], operands[1], results[0]))
    if not (left & right) - kept:
        return None
    columns = (right & kept) - left
    return (
        tuple(sorted(kept - columns)),
        tuple(sorted(columns)),
        tuple(sorted((left | right) - kept)),
    )


def _present(dims: Iterable[int | None]) -> frozenset[int]:
    return frozenset(factor for factor in dims if factor is not None)
