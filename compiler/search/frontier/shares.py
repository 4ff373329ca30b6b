"""Shares of the work of a model that a plan splits, and that could be split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tensoropt.compiler.cost.bodies import whole_time_s
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.rule import Rule, split_by
from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.strategies import Pads, strategies
from tensoropt.compiler.support.identity import Same
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["TimedOp", "divisible_share", "ops_of", "split_shares", "whole_shares"]


@dataclass(frozen=True)
class TimedOp:
    """An op that runs: its number in the graph, its rule, and its time on one device."""

    index: int
    rule: Rule
    time_s: float


def ops_of(graph: Graph, device: Device) -> list[TimedOp]:
    """Return the ops that run; linear in the nodes, with one time for all equal ops."""
    times_s, found = dict[Same, float](), list[TimedOp]()
    for index, node in enumerate(graph.nodes):
        if not isinstance(node, Op) or node.constant:
            continue
        key = Same(node.info)
        if key not in times_s:
            times_s[key] = whole_time_s(node.info, device)
        found.append(TimedOp(index, node.rule, times_s[key]))
    return found


def split_shares(ops: Sequence[TimedOp], point: FrontierPoint) -> list[float]:
    """Return, per mesh axis, the part of the time of ``ops`` that it splits, 1 if they take none.

    Linear in the ops.
    """
    chosen = [(op.time_s, point.strategies[op.index].roles) for op in ops]
    return [
        _share((time_s, bool(split_by(roles[axis]))) for time_s, roles in chosen)
        for axis in range(len(point.mesh))
    ]


def divisible_share(ops: Iterable[TimedOp], pieces: int, pads: Pads) -> float:
    """Return the part of the time of ``ops`` that can be cut in ``pieces``, 1 if they take none.

    Cuts with padding count if ``pads`` offers them. Linear in the ops.
    """
    divides = _divisibility(pieces, pads)
    return _share((op.time_s, divides(op.rule)) for op in ops)


def whole_shares(ops: Sequence[TimedOp], extents: Iterable[int], graph: Graph) -> dict[str, float]:
    """Return the operators that no axis of these extents can split, the costliest first.

    Each with its part of the time of all ``ops``, 0 to 1. Scalars are left out. Linear in the ops.
    """
    tests = [_divisibility(extent, graph.pads) for extent in extents]
    total_s = sum(op.time_s for op in ops)
    found = dict[str, float]()
    for op in ops:
        info = graph.op(op.index).info
        if not total_s or _is_scalar(info):
            continue
        if not any(divides(op.rule) for divides in tests):
            found[info.name] = found.get(info.name, 0.0) + op.time_s / total_s
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _is_scalar(info: OpInfo) -> bool:
    """Return whether an op reads and makes only single elements."""
    known = [tensor for tensor in (*info.operands, *info.results) if tensor is not None]
    return all(size == 1 for tensor in known for size in tensor.shape)


def _divisibility(pieces: int, pads: Pads) -> Callable[[Rule], bool]:
    """Return a test of rules, which remembers answers: can an operator be cut in ``pieces``?"""
    mesh, known = Mesh((pieces,)), dict[Same, bool]()

    def divides(rule: Rule) -> bool:
        key = Same(rule)
        if key not in known:
            options = strategies(rule, mesh, pads)
            known[key] = any(split_by(option.roles[0]) for option in options)
        return known[key]

    return divides


def _share(pairs: Iterable[tuple[float, bool]]) -> float:
    whole = part = 0.0
    for time_s, counts in pairs:
        whole += time_s
        part += time_s * counts
    return part / whole if whole else 1.0
