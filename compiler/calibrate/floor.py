"""What running costs apart from the work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["Floor"]

_HALVINGS = 40
_MOST_TRACED = 2.0  # times what tracing a tiny node costs: more is no tracing but other work


@dataclass(frozen=True)
class Floor:
    """What running costs apart from the work: of a graph, of a node in it, of tracing a node."""

    graph_s: float
    node_s: float
    traced_s: float

    def agreeing(self, kernels_s: Iterable[float], step_s: float) -> Floor:
        """Return the floor with which nodes traced so long add up to a step that took ``step_s``.

        What tracing costs depends on the operands of a node, and so on the model; it is found
        between nothing and the most that leaves a time to every node.
        """
        names = list(kernels_s)
        low, high = 0.0, max(names, default=0.0)
        for _ in range(_HALVINGS):
            middle = replace(self, traced_s=(low + high) / 2)
            if sum(map(middle.untraced_s, names)) > step_s - self.graph_s:
                low = middle.traced_s
            else:
                high = middle.traced_s
        return replace(self, traced_s=min(low, _MOST_TRACED * self.traced_s))

    def untraced_s(self, kernel_s: float) -> float:
        """Return what a node takes whose kernel took so long while it was traced."""
        return max(kernel_s - self.traced_s, 0.0) + self.node_s
