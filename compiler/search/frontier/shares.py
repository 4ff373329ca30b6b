"""How much of the work of a model a plan splits, and how much could be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tensoropt.compiler.cost.bodies import whole_time_s
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.search.problem.graph import Graph
from tensoropt.compiler.sharding.rule.strategies import Pads, strategies

__all__ = ["Op", "divisible_share", "ops_of", "split_shares"]


@dataclass(frozen=True)
class Op:
    """An op that runs: its number in the graph, its rule, and its time on one device."""

    index: int
    rule: Rule
    time_s: float


def ops_of(graph: Graph, device: Device) -> list[Op]:
    """Return the ops that run; linear in the nodes."""
    return [
        Op(index, node.rule, whole_time_s(node.info, device))
        for index, node in enumerate(graph.nodes)
        if node.info is not None and node.rule is not None and not node.constant
    ]


def split_shares(ops: Sequence[Op], point: FrontierPoint) -> list[float]:
    """Return per mesh axis the part of the time of ``ops`` that it splits, 1 where they take none.

    Linear in the ops.
    """
    chosen = [(op.time_s, point.strategies[op.index].roles) for op in ops]
    return [
        _share((time_s, isinstance(assignments[axis], int)) for time_s, assignments in chosen)
        for axis in range(len(point.mesh))
    ]


def divisible_share(ops: Iterable[Op], pieces: int, pads: Pads) -> float:
    """Return the part of the time of ``ops`` that can be cut in ``pieces``, 1 where they take none.

    Cuts with padding count where ``pads`` offers them. Linear in the ops.
    """
    mesh, known = Mesh((pieces,)), dict[int, bool]()
    pairs = []
    for op in ops:
        if id(op.rule) not in known:
            options = strategies(op.rule, mesh, pads)
            known[id(op.rule)] = any(isinstance(option.roles[0], int) for option in options)
        pairs.append((op.time_s, known[id(op.rule)]))
    return _share(pairs)


def _share(pairs: Iterable[tuple[float, bool]]) -> float:
    whole = part = 0.0
    for time_s, counts in pairs:
        whole += time_s
        part += time_s * counts
    return part / whole if whole else 1.0
