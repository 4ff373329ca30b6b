"""What an assignment has on each rank that a process takes room for."""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.compiler.cost.process import PRODUCTS, Footprint, Loading
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.search.problem.evaluate import Cost
from tensoropt.compiler.search.problem.graph import Node
from tensoropt.compiler.search.problem.tables import MeshTables, tensor_bytes

__all__ = ["footprint"]

_LARGE = 1 << 20
"""Bytes of tensors: of fewer, collectives need no buffers but those that MPI has from the start."""


def footprint(
    tables: MeshTables, strategies: Mapping[int, Strategy], cost: Cost, arena_bytes: int
) -> Footprint:
    """Return it for a strategy per node, whose tensors take what ``cost`` says."""
    loading, packed, fed, nodes = Loading(), 0, 0, 0
    for index, strategy in strategies.items():
        node = tables.graph.nodes[index]
        if node.kind == "result":
            fed += _output_bytes(tables, node, strategy)
        elif node.kind == "argument":
            fed += _input_bytes(tables, node, strategy)
        elif node.kind == "op" and not node.constant:
            nodes += 1
            if not tables.graph.trains:  # whose weights are no constants
                operator = _operator(node)
                loading.read(operator, tables.static_bytes(node, strategy))
                packed += _shared_bytes(tables, node, strategy) if operator in PRODUCTS else 0
    loaded, trains = loading.bytes(), tables.graph.trains
    exchanges = cost.communication_s > 0 and arena_bytes >= _LARGE
    sizes = cost.static_bytes, cost.transient_bytes
    return Footprint(*sizes, packed, loaded, fed, nodes, trains, arena_bytes, exchanges)


def _operator(node: Node) -> str:
    assert node.op is not None
    return str(node.op.name).removeprefix("onnx.")


def _input_bytes(tables: MeshTables, node: Node, strategy: Strategy) -> int:
    if node.is_parameter or node.state is not None or node.is_cache:
        return 0
    return tensor_bytes(tables.graph.values[node.results[0]].info, strategy.results[0], tables.mesh)


def _output_bytes(tables: MeshTables, node: Node, strategy: Strategy) -> int:
    value = node.operands[0]
    if value is None or node.updates is not None or tables.graph.stays(value):
        return 0
    return tensor_bytes(tables.graph.values[value].info, strategy.operands[0], tables.mesh)


def _shared_bytes(tables: MeshTables, node: Node, strategy: Strategy) -> int:
    """Return the sizes of weights that others read too, which stay beside their packed form."""
    graph, found = tables.graph, 0
    for operand, value in enumerate(node.operands):
        if value is None or operand == 0:
            continue
        if graph.is_weight(value) and not graph.producer(value).private:
            layout = strategy.operands[operand]
            found += tensor_bytes(graph.values[value].info, layout, tables.mesh)
    return found
