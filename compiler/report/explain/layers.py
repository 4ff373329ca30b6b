"""Assignment of nodes to layers of the model, by their names or by repeated structure.

Exporters that retain the modules of a model number its layers in the names of nodes
(``/model/layers.3/mlp/MatMul``). If names have no such number (``node_linear_3``), the longest run
of equal ops is split into its turns, and each turn is named after the weights that it reads. If
little repeats, the numbers in the names of weights are used.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence

from tensoropt.compiler.program.graph import Argument, Graph, Node
from tensoropt.compiler.report.explain.meaning import matrix_of
from tensoropt.runtime.plan.layers import numbered_scopes, repeats

__all__ = ["layers_of"]

_NUMBERED = re.compile(r"(.+?[./])(\d+)(?=[./])")
_ENOUGH = 0.5  # least fraction of ops that must have a layer in their names
_START, _END = "start", "end"
_ROUNDS = 2  # state follows gradients, which come later


def layers_of(graph: Graph) -> list[str]:
    """Return the name of the layer of each node.

    Nodes before the first layer are in ``start``, nodes after the last in ``end``. A model without
    layers is the single layer ``model``.
    """
    forward = [i for i in range(len(graph.nodes)) if graph.runs_forward(i)]
    scopes = numbered_scopes([graph.nodes[index].name for index in forward])
    named = {index: scope for index, scope in zip(forward, scopes, strict=True) if scope}
    if len(named) < _ENOUGH * len(forward):
        named = _by_structure(graph, forward)
    if len(named) < _ENOUGH * len(forward):
        named = _by_weights(graph, forward) or named
    layer = _inherited(graph, forward, named)
    return _spread(graph, layer)


def _by_structure(graph: Graph, forward: Sequence[int]) -> dict[int, str]:
    """Return the turns of the longest runs of equal ops, by node."""
    layers: dict[int, str] = {}
    for start, period, count in repeats([_kind(graph, index) for index in forward]):
        members = [
            forward[start + period * turn : start + period * (turn + 1)] for turn in range(count)
        ]
        names = _names(graph, members, len(set(layers.values())))
        for name, member in zip(names, members, strict=True):
            layers.update(dict.fromkeys(member, name))
    return layers


def _by_weights(graph: Graph, forward: Sequence[int]) -> dict[int, str]:
    """Return the layers that the names of weight matrices number, by the op that reads the matrix.

    Empty if most matrices have no such name.
    """
    reading = {index: matrix_of(graph, graph.nodes[index]) for index in forward}
    matrices = {index: operand for index, operand in reading.items() if operand is not None}
    layers: dict[int, str] = {}
    for index, operand in matrices.items():
        value = graph.nodes[index].operands[operand]
        numbered = None if value is None else _NUMBERED.match(graph.producer(value).name)
        if numbered:
            layers[index] = f"{numbered[1]}{numbered[2]}"
    enough = len(layers) >= _ENOUGH * len(matrices) and len(set(layers.values())) > 1
    return layers if enough else {}


def _kind(graph: Graph, index: int) -> tuple[Hashable, ...]:
    info = graph.op(index).info
    shapes = tuple(
        None if o is None else (o.shape, o.dtype) for o in (*info.operands, *info.results)
    )
    return info.name, shapes


def _names(graph: Graph, members: Sequence[Sequence[int]], before: int) -> list[str]:
    """Return a name for each turn, from the numbers in the names of its weights, or a number.

    Exporters rename most weights, so one turn with numbered weights names all turns.
    """
    for turn, member in enumerate(members):
        for name in _own_weights(graph, member):
            numbered = _NUMBERED.match(name)
            if numbered and int(numbered[2]) >= turn:
                first = int(numbered[2]) - turn
                return [f"{numbered[1]}{first + other}" for other in range(len(members))]
    return [f"block {before + turn}" for turn in range(len(members))]


def _own_weights(graph: Graph, member: Sequence[int]) -> Iterator[str]:
    """Yield the names of the parameters that only ``member`` reads in the forward pass."""
    own = set(member)
    read = (value for index in member for value in graph.nodes[index].operands)
    for value in (value for value in read if value is not None):
        readers = {reader for reader, _ in graph.values[value].uses}
        is_own = own.issuperset(reader for reader in readers if graph.runs_forward(reader))
        if is_own and isinstance(graph.producer(value), Argument):
            yield graph.producer(value).name


def _inherited(graph: Graph, forward: Sequence[int], named: dict[int, str]) -> dict[int, str]:
    """Assign each forward op a layer: its own, its latest operand's, ``start`` or ``end``.

    An op that only reads weights, such as a cast, has the layer of its first reader.
    """
    if not named:
        return dict.fromkeys(forward, "model")
    order = {name: at for at, name in enumerate(dict.fromkeys(named[i] for i in sorted(named)))}
    last = max(named)
    layer: dict[int, str] = {}
    weights: set[int] = {
        i for i, n in enumerate(graph.nodes) if isinstance(n, Argument) and n.is_weight
    }
    of_weights: list[int] = []
    for index in forward:
        if index in named:
            layer[index] = named[index]
            continue
        read = [graph.values[v].producer for v in graph.nodes[index].operands if v is not None]
        if weights.issuperset(read):
            weights.add(index)
            of_weights.append(index)
            continue
        before = [layer[p] for p in read if p in layer and layer[p] in order]
        if before and index < last:
            layer[index] = max(before, key=lambda name: order[name])
        else:
            layer[index] = _END if index > last else _START
    for index in reversed(of_weights):
        readers = (reader for v in graph.nodes[index].results for reader, _ in graph.values[v].uses)
        layer[index] = next((layer[reader] for reader in readers if reader in layer), _START)
    return layer


def _spread(graph: Graph, layer: dict[int, str]) -> list[str]:
    """Assign all other nodes the layer of their leader, of their operands or of their readers."""
    names: list[str | None] = [layer.get(index) for index in range(len(graph.nodes))]
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Argument) or node.constant:
            names[index] = _first_reader(graph, node, names)
    late = [index for index, name in enumerate(names) if name is None]
    for _ in range(_ROUNDS):
        for index in late:
            node = graph.nodes[index]
            if names[index] is None:
                leader = node.follows
                names[index] = names[leader] if leader is not None else _latest(graph, node, names)
    return [name or _START for name in names]


def _first_reader(graph: Graph, node: Node, names: Sequence[str | None]) -> str | None:
    """Return the layer of the first op that reads an argument or a value folded from it."""
    for value in node.results:
        for reader, _ in graph.values[value].uses:
            name = names[reader]
            if name is None and graph.nodes[reader].constant:
                name = _first_reader(graph, graph.nodes[reader], names)
            if name is not None:
                return name
    return None


def _latest(graph: Graph, node: Node, names: Sequence[str | None]) -> str | None:
    """Return the layer of the state that an op reads, else of its first operand's producer."""
    read = [graph.values[value].producer for value in node.operands if value is not None]
    states = [names[graph.values[v].producer] for v in node.operands if v in graph.storage.state]
    return next((name for name in (*states, *(names[p] for p in read)) if name), None)
