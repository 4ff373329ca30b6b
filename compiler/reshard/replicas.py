"""The sum of a tensor over replicas, with or without slices of equal parts."""

from __future__ import annotations

from dataclasses import dataclass

from tensoropt.compiler.cost.communication import collective_time_s
from tensoropt.compiler.cost.compute import local_bytes
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.layouts import sliced
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["SumOverReplicas"]


@dataclass(frozen=True)
class SumOverReplicas:
    """Sums over ``replicas`` of the mesh of ``resharder``; ``between`` has the links of these."""

    replicas: int
    resharder: Resharder
    between: Device

    def layout(self, info: TensorInfo, layout: Layout) -> Layout:
        """Return the layout in which a tensor in ``layout`` is added up in the least time.

        Ranks of a mesh with equal parts can add up a slice of it each, and then join the slices.
        """
        ways = layout, sliced(layout, info.sizes, self.resharder.mesh)
        return min(ways, key=lambda own: self._time_s(info, layout, own))

    def time_s(self, info: TensorInfo, layout: Layout) -> float:
        """Return the least time to add up a tensor, which is in ``layout`` before and after."""
        return self._time_s(info, layout, self.layout(info, layout))

    def _time_s(self, info: TensorInfo, layout: Layout, own: Layout) -> float:
        size, mesh = local_bytes(info, own, self.resharder.mesh), Mesh((self.replicas,))
        sum_s = collective_time_s("all_reduce", size, (0,), mesh, self.between)
        pairs = (layout, own), (own, layout)
        return sum_s + sum(
            self.resharder.path(info.sizes, info.item_bytes, *pair).time_s for pair in pairs
        )
