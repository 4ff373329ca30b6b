"""A graph in the form of the walk: the operands and results of its nodes.

It is the same for all assignments and meshes, and is made once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensoropt.compiler.cost.communication import copy_line
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.cost.overlap import Overlap
from tensoropt.compiler.program._walk import Overlapping, Program
from tensoropt.compiler.program.constants import equal_constants
from tensoropt.compiler.program.graph import PARTS, Graph, Node, Op, Result, once_per_graph

__all__ = ["overlapping", "program_of", "read", "variables"]

_RUNS, _PASSES, _ALIAS, _WRITES, _UPDATE, _CONSTANT = (1 << bit for bit in range(6))
"""The flags of ``Program::Flag`` (``walk/walk.hpp``)."""


def variables(graph: Graph) -> list[int]:
    """Return the nodes with a choice, in program order."""
    private = graph.storage.private
    return [i for i, node in enumerate(graph.nodes) if private.isdisjoint(node.results)]


def read(graph: Graph, node: Node) -> Iterator[tuple[int, int]]:
    """Yield (operand index, value) for each operand of a node, without private parameters."""
    private = graph.storage.private
    for operand, value in enumerate(node.operands):
        if value is not None and value not in private:
            yield operand, value


def overlapping(device: Device) -> Overlapping:
    """Return the costs of overlapping collectives with operators, for the walk."""
    how = device.overlap or Overlap()
    copied_s = copy_line(2.0, device).s_per_byte
    return Overlapping(how.start_s, how.share, copied_s, how.keeps_peak)


@once_per_graph
def program_of(graph: Graph) -> Program:
    """Return the program of a graph, of the nodes with a choice. Linear in the operands."""
    nodes = [graph.nodes[index] for index in variables(graph)]
    operands = [[_view(graph, node, v) for _, v in read(graph, node)] for node in nodes]
    results = [node.results for node in nodes]
    groups: dict[tuple[int, int], int] = {}
    first: dict[object, int] = {}
    last = max((n for n, node in enumerate(nodes) if _is_before_update(node)), default=-1)
    handed = [n for n, node in enumerate(nodes) if last >= 0 and _is_handed_on(graph, node)]
    return Program(
        flags=np.array([_flags(graph, node) for node in nodes], np.uint8),
        operands_begin=_begins(operands),
        operands=_joined(operands),
        constant=_joined(
            [[_constant(graph, v, groups) for _, v in read(graph, node)] for node in nodes]
        ),
        results_begin=_begins(results),
        results=_joined(results),
        stays=np.array([v in graph.storage.staying for own in results for v in own], np.uint8),
        alike=np.array([first.setdefault(v.info, i) for i, v in enumerate(graph.values)], np.int32),
        folded=np.array([graph.nodes[v.producer].constant for v in graph.values], np.uint8),
        awaits=np.array(
            [n.awaits if isinstance(n, Op) and n.awaits is not None else -1 for n in nodes],
            np.int32,
        ),
        last=last,
        handed=np.array(handed, np.int32),
        views=len(graph.values) * (PARTS if graph.trains else 1),
        batches=graph.micro_batches,
    )


def _flags(graph: Graph, node: Node) -> int:
    """Return the sum of the flags of a node."""
    own = {
        _RUNS: isinstance(node, Op) and not node.constant,
        _PASSES: isinstance(node, Op) and node.passes,
        _ALIAS: isinstance(node, Op) and node.is_alias,
        _WRITES: isinstance(node, Result) and node.updates is not None,
        _UPDATE: graph.updates(node),
        _CONSTANT: node.constant,
    }
    return sum(flag for flag, holds in own.items() if holds)


def _is_before_update(node: Node) -> bool:
    return isinstance(node, Op) and node.phase not in (None, "update")


def _is_handed_on(graph: Graph, node: Node) -> bool:
    """Return whether a node is a result of a training step that is ready before its update."""
    if not isinstance(node, Result) or node.operands[0] is None:
        return False
    return _is_before_update(graph.producer(node.operands[0]))


def _view(graph: Graph, node: Node, value: int) -> int:
    """Return the number under which ``node`` reads a value; state has one per part of a step."""
    if value not in graph.storage.state:
        return value
    return value + node.part * len(graph.values)


def _constant(graph: Graph, value: int, groups: dict[tuple[int, int], int]) -> int:
    """Return the number of a constant, the same for equal constants; -1 for other values."""
    held = graph.values[value]
    if not graph.nodes[held.producer].constant:
        return -1
    return groups.setdefault((equal_constants(graph)[held.producer], held.index), len(groups))


def _begins(lists: list[list[int]]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.cumsum([0, *map(len, lists)], dtype=np.int32)


def _joined(lists: list[list[int]]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array([x for own in lists for x in own], np.int32)
