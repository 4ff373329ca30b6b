"""Classes of equal nodes of a graph: repeated layers are costed once."""

from __future__ import annotations

from tensoropt.compiler.program.constants import whole_nodes
from tensoropt.compiler.program.graph import Argument, Graph, Op, once_per_graph
from tensoropt.compiler.support.identity import Same

__all__ = ["cost_classes", "option_classes"]


@once_per_graph
def option_classes(graph: Graph) -> list[int]:
    """Return an interned number per node, equal for nodes with equal options on every mesh.

    Linear in the nodes.
    """
    whole, private, found = whole_nodes(graph), graph.storage.private, list[int]()
    for index, node in enumerate(graph.nodes):
        touched = (*node.operands[:1], *node.results[:1])
        infos = [Same(graph.values[v].info) for v in touched if v is not None]
        own: object = None
        if isinstance(node, Op):
            own = Same(node.rule), len(node.operands)
        elif isinstance(node, Argument):
            own = not private.isdisjoint(node.results), node.state == "gradient", node.is_fed
        if not isinstance(node, Op):
            own = own, *(graph.splits.get(v, ()) for v in touched if v is not None)
        pinned = index in whole, graph.conditions.get(index, ())
        found.append(graph.intern((type(node), own, pinned, *infos)))
    return found


@once_per_graph
def cost_classes(graph: Graph) -> list[int]:
    """Return an interned number per node, equal for nodes with equal options at equal costs.

    Costs depend on the op, on the number of its runs, and on the storage of its operands and
    results. Linear in the operands.
    """
    storage = graph.storage
    sets = (storage.private, storage.constants, storage.read, storage.resident, storage.next_caches)
    stored = [
        graph.intern((*(value in own for own in sets), Same(held.info)))
        for value, held in enumerate(graph.values)
    ]
    found = []
    for node, options in zip(graph.nodes, option_classes(graph), strict=True):
        operands: dict[int | None, int] = {}
        for place, operand in enumerate(node.operands):
            operands.setdefault(operand, place)
        touched = tuple(
            v is not None and (stored[v], operands.get(v, -1))
            for v in (*node.operands, *node.results)
        )
        info = Same(node.info) if isinstance(node, Op) else None
        key = options, info, node.constant, graph.times(node), touched
        found.append(graph.intern(("cost", *key)))
    return found
