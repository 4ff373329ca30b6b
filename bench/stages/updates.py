"""The end of a training step of another system: its exchange of gradients, and its update.

Gradients are partial sums over the replicas and parameters split over the ranks of a layer, so the
exchange is a reshard: to whole sums, or to parts of them and back if replicas share the moments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stages.systems import System
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Update"]


@dataclass(frozen=True)
class Update:
    """The end of a step on a rank with ``parameters``: of ``data`` replicas of ``tensor`` ranks.

    Replicas that share parameters gather ``gathered`` of them at a time.
    """

    system: System
    tensor: int
    data: int
    parameters: float
    gathered: float
    device: Device

    @property
    def _shared_bytes(self) -> float:
        """Bytes of moments for each parameter."""
        sharing = self.data if self.system.shards_moments else 1
        return self.system.optimizer_bytes / sharing

    @property
    def static_bytes(self) -> int:
        """The memory of parameters, gradients and moments, and of the process."""
        own = self.system
        if own.shards_parameters:
            each = own.gradient_bytes / self.data + self._shared_bytes
            size = self.parameters * each + self.gathered * own.parameter_bytes
        else:
            each = own.parameter_bytes + own.gradient_bytes + self._shared_bytes
            size = self.parameters * each
        return int(size) + own.rest_bytes

    @property
    def rest_s(self) -> float:
        """The time of the update, which reads and writes the moments, and of the rest of a step."""
        moved_bytes = 2 * self.parameters * self._shared_bytes
        return moved_bytes / self.device.memory_bandwidth_bytes_per_s + self.system.step_s

    def exchange_s(self, backward_s: float, forward_s: float) -> float:
        """Return the time to exchange gradients and new parameters that is not hidden.

        Passes of ``backward_s`` and ``forward_s`` may hide it.
        """
        own = self.system
        if self.data == 1:
            return 0.0
        sums, whole, split = (_layout(text) for text in ("P(sum)", "R", "S(1)"))
        if not own.shards_moments:
            reduce_s, gather_s = self._reshard_s(own.gradient_bytes, sums, whole), 0.0
        else:
            reduce_s = self._reshard_s(own.gradient_bytes, sums, split)
            gather_s = self._reshard_s(own.parameter_bytes, split, whole)
        if own.shards_parameters:  # for the backward pass once more
            reduce_s += gather_s
        if own.hides_exchange:
            return max(0.0, reduce_s - backward_s) + max(0.0, gather_s - forward_s)
        return reduce_s + gather_s

    def _reshard_s(self, item_bytes: int, source: Layout, target: Layout) -> float:
        """Return the time of our reshard of the parameters of all ranks that share a layer.

        Replicas in a node are an axis of their own, so that their sums use the ports of all.
        """
        inside = math.gcd(self.data, max(1, self.device.devices_per_node // self.tensor))
        resharder = Resharder(Mesh((self.data // inside, inside, self.tensor)), self.device)
        shape = (self.tensor, int(self.parameters) // self.data * self.data)
        return resharder.path(shape, item_bytes, source, target).time_s


def _layout(replicas: str) -> Layout:
    """Return the layout of parameters that the ranks of a layer split, on a mesh of replicas."""
    return Layout.parse([replicas, replicas, "S(0)"])
