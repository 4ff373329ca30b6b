"""Overhead of running graphs and nodes, apart from their work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["Floor"]

_HALVINGS = 40
_MOST_TRACED = 2.0  # relative to the tracing of a tiny node: a larger overhead is other work


@dataclass(frozen=True)
class Floor:
    """Overhead of a graph, of a node in it, and of tracing a node, in seconds."""

    graph_s: float
    node_s: float
    traced_s: float

    def fit_tracing(self, kernels_s: Iterable[float], step_s: float) -> Floor:
        """Return the floor with which the traced kernels add up to a step of ``step_s``.

        The overhead of tracing depends on the operands of a node, and so on the model. Bisection
        finds it between 0 and the longest kernel, with at most twice the overhead of a tiny node.
        """
        times = list(kernels_s)
        low, high = 0.0, max(times, default=0.0)
        for _ in range(_HALVINGS):
            middle = replace(self, traced_s=(low + high) / 2)
            if sum(map(middle.untraced_s, times)) > step_s - self.graph_s:
                low = middle.traced_s
            else:
                high = middle.traced_s
        return replace(self, traced_s=min(low, _MOST_TRACED * self.traced_s))

    def untraced_s(self, kernel_s: float) -> float:
        """Return the time of a node without tracing, from the traced time of its kernel."""
        return max(kernel_s - self.traced_s, 0.0) + self.node_s
