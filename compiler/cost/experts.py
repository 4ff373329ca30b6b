"""Mixtures of experts as kernels, and the experts that the tokens of a step reach."""

from __future__ import annotations

from tensoropt.compiler.cost.kernel import Kernel
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.layout.sizes import mean_of
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["experts_of", "reached_share", "separate_products"]

_OPERATORS = frozenset({"com.microsoft.MoE", "com.microsoft.QMoE"})

_GRADIENT_PRODUCTS = 5

# The first layer of all experts: `experts features width`, the features twice if they have gates.
_FIRST = 2


def experts_of(info: OpInfo, strategy: Strategy, mesh: Mesh) -> Kernel | None:
    """Return the kernel of a mixture on one rank, ``None`` for other operators."""
    if info.name not in _OPERATORS:
        return None
    width = mean_of(info.sizes(0)[-1:])
    mine, features = strategy.operands[_FIRST].local_shape(info.sizes(_FIRST), mesh)[:2]
    gates = 2 if info.attribute("swiglu_fusion", 0) else 1
    sizes = (
        _tokens(info, strategy, mesh) * _chosen_share(info),
        float(width),
        mean_of([features]) / gates,
        float(mean_of([mine])),
    )
    return Kernel("experts", sizes)


def reached_share(info: OpInfo, strategy: Strategy, mesh: Mesh) -> dict[int, float]:
    """Return the share of each operand that consists of experts which a step reads.

    Of ``E`` experts, ``n`` tokens that choose ``k`` each reach a share of ``1 - (1 - k / E)^n`` on
    average if they choose at random.
    """
    if info.name not in _OPERATORS:
        return {}
    experts = info.sizes(_FIRST)[0]
    share = 1.0 - (1.0 - _chosen_share(info)) ** _tokens(info, strategy, mesh)
    places = range(_FIRST, len(info.operands))
    return {i: share for i in places if info.rank(i) > 1 and info.sizes(i)[0] == experts}


def separate_products(info: OpInfo, strategy: Strategy, mesh: Mesh) -> int:
    """Return the products that a rank launches one by one in the gradient of a mixture.

    Each of its experts computes its first layer again, and the gradients of both layers.
    """
    if info.name != "tensoropt.MoEGradient":
        return 0
    experts = mean_of(strategy.operands[_FIRST].local_shape(info.sizes(_FIRST), mesh)[:1])
    return experts * _GRADIENT_PRODUCTS


def _tokens(info: OpInfo, strategy: Strategy, mesh: Mesh) -> int:
    """Return the tokens that may select the experts of a rank, on all ranks that send them."""
    own = mean_of(strategy.operands[0].local_shape(info.sizes(0), mesh)[:-1]) or 1
    return own * mesh.extent(strategy.joint_axes)


def _chosen_share(info: OpInfo) -> float:
    """Return the share of all experts that a token chooses."""
    return min(int(info.attribute("k", 1)) / (mean_of(info.sizes(_FIRST)[:1]) or 1), 1.0)
