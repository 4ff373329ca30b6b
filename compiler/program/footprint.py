"""The parts of an assignment that determine the memory of a rank's process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tensoropt.compiler.cost.process import CONVOLUTIONS, PRODUCTS, Footprint, Loading
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.program.costs import NodeCosts, tensor_bytes
from tensoropt.compiler.program.evaluate import Cost, Running
from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, Result, once_per_graph
from tensoropt.compiler.program.program import variables
from tensoropt.runtime.layout.layout import Layout

__all__ = ["footprint"]

_WEIGHTED = CONVOLUTIONS | PRODUCTS

_ACTIVATIONS = (
    *("Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign"),
    *("Tanh", "ThresholdedRelu"),
)
"""Operators that ONNX Runtime fuses into the `Gemm` before them."""


@dataclass(frozen=True)
class _Counted:
    """Counts of a graph that are equal for all assignments.

    ``nodes`` is the number of ops that run, and ``weighted`` lists those with packed or reordered
    weights, and their operators. ``lookups`` maps weights to the nodes that look up their rows.
    ``ends`` are the nodes of inputs and outputs.
    """

    nodes: int
    weighted: Sequence[tuple[int, str]]
    lookups: Mapping[int, Sequence[int]]
    ends: Sequence[int]


def footprint(
    costs: NodeCosts, strategies: Mapping[int, Strategy], cost: Cost, running: Running
) -> Footprint:
    """Return the footprint of a strategy per node, with the bytes of ``cost`` and ``running``.

    Linear in the nodes with weights, the inputs and the outputs.
    """
    graph = costs.graph
    counted = _counted(graph)
    loading, packed = Loading(), 0
    for index, operator in counted.weighted:
        node, strategy = graph.nodes[index], strategies[index]
        alone = strategy.results[0].has_partial  # it is summed before it is normalised
        size = costs.static_bytes(node, strategy)
        loading.read(operator, size, alone=alone, fused=_is_fused(graph, index, strategies))
        packed += _shared_bytes(costs, index, strategies) if operator in PRODUCTS else 0
    fed = sum(_end_bytes(costs, graph.nodes[i], strategies[i]) for i in counted.ends)
    static = cost.static_bytes - sum(
        _unread_bytes(costs, table, readers, strategies)
        for table, readers in counted.lookups.items()
    )
    sizes = static, cost.transient_bytes, packed, loading.bytes(), fed
    sent = running.sent_bytes, running.passed_bytes
    nodes = counted.nodes + running.moves
    return Footprint(*sizes, nodes, graph.trains, running.arena_bytes, *sent)


@once_per_graph
def _counted(graph: Graph) -> _Counted:
    chosen = [(index, graph.nodes[index]) for index in variables(graph)]
    runs = [(i, node) for i, node in chosen if isinstance(node, Op) and not node.constant]
    return _Counted(
        len(runs),
        # Weights of a training step are no constants.
        [] if graph.trains else [(i, o) for i, n in runs if (o := _operator(n)) in _WEIGHTED],
        {} if graph.trains else _lookups(graph, runs),
        [index for index, node in chosen if _is_input(graph, node) or _is_output(graph, node)],
    )


def _operator(op: Op) -> str:
    assert op.source is not None
    return str(op.source.name).removeprefix("onnx.")


def _is_fused(graph: Graph, index: int, strategies: Mapping[int, Strategy]) -> bool:
    """Return whether a node is a product that only an activation reads, in the same layout."""
    op = graph.nodes[index]
    uses = graph.values[op.results[0]].uses
    if not isinstance(op, Op) or _operator(op) != "Gemm" or len(uses) != 1:
        return False
    reader, operand = uses[0]
    activation = graph.nodes[reader]
    if not isinstance(activation, Op) or _operator(activation) not in _ACTIVATIONS:
        return False
    return strategies[reader].operands[operand] == strategies[index].results[0]


def _lookups(graph: Graph, runs: Iterable[tuple[int, Op]]) -> dict[int, list[int]]:
    """Return the weights with rows that nodes look up, each with these nodes."""
    found: dict[int, list[int]] = {}
    for index, node in runs:
        table = node.operands[0] if _operator(node) == "Gather" else None
        if table in graph.storage.constants and isinstance(graph.producer(table), Argument):
            found.setdefault(table, []).append(index)
    return found


def _is_read(
    graph: Graph,
    value: int,
    layout: Layout,
    strategies: Mapping[int, Strategy],
    but: Sequence[int],
) -> bool:
    """Return whether a weight is read in a layout at run time, except by nodes ``but``.

    A slice of it is made with the session, and is a tensor of its own.
    """
    if value in graph.storage.private:
        return False
    return any(
        strategies[reader].operands[place] == layout
        for reader, place in graph.values[value].uses
        if reader not in but and not graph.nodes[reader].constant
    )


def _unread_bytes(
    costs: NodeCosts, table: int, readers: Sequence[int], strategies: Mapping[int, Strategy]
) -> int:
    """Return a lower bound on the bytes of a weight that are never read: all rows not looked up."""
    graph, value = costs.graph, costs.graph.values[table]
    layout = strategies[readers[0]].operands[0]
    if value.producer in strategies:
        layout = strategies[value.producer].results[0]
    is_cut = any(strategies[reader].operands[0] != layout for reader in readers)
    if is_cut or _is_read(graph, table, layout, strategies, readers):
        return 0
    made = (graph.values[graph.nodes[reader].results[0]].info for reader in readers)
    read = sum(
        tensor_bytes(info, strategies[reader].results[0], costs.mesh)
        for info, reader in zip(made, readers, strict=True)
    )
    return max(tensor_bytes(value.info, layout, costs.mesh) - read, 0)


def _is_input(graph: Graph, node: Node) -> bool:
    return isinstance(node, Argument) and graph.storage.staying.isdisjoint(node.results)


def _is_output(graph: Graph, node: Node) -> bool:
    if not isinstance(node, Result) or node.updates is not None:
        return False
    value = node.operands[0]
    return value is not None and value not in graph.storage.staying


def _end_bytes(costs: NodeCosts, node: Node, strategy: Strategy) -> int:
    """Return the bytes of an input or output."""
    values, layouts = [*node.operands, *node.results], [*strategy.operands, *strategy.results]
    value, layout = values[0], layouts[0]
    assert value is not None
    return tensor_bytes(costs.graph.values[value].info, layout, costs.mesh)


def _shared_bytes(costs: NodeCosts, index: int, strategies: Mapping[int, Strategy]) -> int:
    """Return the bytes of weights with other readers, which stay next to their packed form."""
    graph, found = costs.graph, 0
    for operand, value in enumerate(graph.nodes[index].operands):
        if value is None or operand == 0:
            continue
        layout = strategies[index].operands[operand]
        if value in graph.storage.weights and _is_read(graph, value, layout, strategies, [index]):
            found += tensor_bytes(graph.values[value].info, layout, costs.mesh)
    return found
