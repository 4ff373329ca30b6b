"""Kernels measured by their sizes: the families, and the kernel that one rank runs for an op."""

from __future__ import annotations

from tensoropt.compiler.cost.attention import attention_of
from tensoropt.compiler.cost.experts import experts_of
from tensoropt.compiler.cost.fused_attention import fused_attention_of
from tensoropt.compiler.cost.kernel import Kernel
from tensoropt.compiler.cost.products import product_of
from tensoropt.compiler.layout.rule import Rule, Strategy
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["kernel_of"]


def kernel_of(info: OpInfo, rule: Rule, strategy: Strategy, mesh: Mesh) -> Kernel | None:
    """Return the kernel that one rank runs, ``None`` if the op belongs to no family."""
    return (
        attention_of(info, strategy, mesh)
        or fused_attention_of(info)
        or experts_of(info, strategy, mesh)
        or product_of(rule, strategy, mesh)
    )
