"""Fusion of element-wise arithmetic into few nodes of our own library.

ONNX Runtime passes over all elements once per node and allocates each result. Here operators that
read each other's results become one program (`tensoropt.Elementwise`), which passes over them once
without intermediate tensors. In an update, arrays of different sizes with equal programs share a
node, unless a collective starts or ends between them: operators that overlap with it stay there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.runtime.session.order import sort_nodes
from tensoropt.runtime.session.types import FLOAT32, names_read, tensor_types
from tensoropt.runtime.support.arithmetic import (
    CAST,
    GATE,
    ON_CPU,
    ONE_PASS,
    POWER,
    STEPS,
    SUM,
    Fusion,
)
from tensoropt.runtime.support.collectives import DOMAIN, STARTS, WAITS, import_domain

if TYPE_CHECKING:
    import onnx

__all__ = ["fuse_chains", "fuse_elementwise"]

_ARRAYS = (FLOAT32, 10, 16)  # float16 and bfloat16 too: the arithmetic is in float32

_Value = tuple[str, str | int]
"""A scalar ("scalar", name), an array that is read ("array", index), or ("step", index)."""


@dataclass
class _Piece:
    """A program, and the names of the arrays that it reads and writes."""

    reads: list[str] = field(default_factory=list)
    broadcast: list[int] = field(default_factory=list)
    steps: list[tuple[int, _Value, _Value]] = field(default_factory=list)
    results: list[_Value] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)


def fuse_elementwise(model: onnx.ModelProto, fusion: Fusion = ON_CPU) -> None:
    """Fuse element-wise nodes into `tensoropt.Elementwise`, in place, at the last node's position.

    Nodes with tensors of unknown type or size are unchanged. Linear, except for sorting.
    """
    graph = _Graph(model, fusion)
    together: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    for group in graph.groups():
        together[graph.depths[group[-1]], graph.parts[group[-1]]].append(group)
    made = [_Made(p, node) for p, node in enumerate(graph.nodes) if p not in graph.fused]
    for groups in together.values():
        made += _join(graph, groups)
    _replace_nodes(model, made)


def fuse_chains(model: onnx.ModelProto, fusion: Fusion = ON_CPU) -> bool:
    """Fuse chains of element-wise nodes that are long enough, each to a node; return if any is.

    Gradients of ReLUs are fused too, alone or in a chain: ONNX Runtime selects in several passes.

    The chains of a graph with other nodes are far apart: to join equal ones would keep their
    operands. Linear, except for sorting.
    """
    _make_gates(model, fusion)
    graph = _Graph(model, fusion)
    chains = [group for group in graph.groups() if graph.pays(group)]
    pieces = [(group, _piece(graph, group)) for group in chains]
    nodes = {group[-1]: _node(graph, [piece]) for group, piece in pieces if piece.steps}
    inside = {place for group in chains if group[-1] in nodes for place in group}
    made = [_Made(p, node) for p, node in enumerate(graph.nodes) if p not in inside]
    if nodes:
        _replace_nodes(model, [*made, *(_Made(place, node) for place, node in nodes.items())])
    return bool(nodes)


def _make_gates(model: onnx.ModelProto, fusion: Fusion) -> None:
    """Replace Where(Greater(y, 0), x, 0) of arrays of one shape by a gate of x and y, in place.

    `fuse_chains` fuses every gate. Linear.
    """
    from onnx import helper

    graph = model.graph
    types, zeros = tensor_types(graph), _zeros(graph)
    kinds = _ARRAYS if fusion.narrow else (FLOAT32,)
    compared = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Greater" and not node.domain and node.input[1] in zeros
    }
    for node in graph.node:
        if node.op_type != "Where" or node.domain or node.input[2] not in zeros:
            continue
        x, y = node.input[1], compared.get(node.input[0])
        kind, shape = types.get(x, (0, ()))
        if y is not None and kind in kinds and shape and types.get(y) == (kind, shape):
            gate = helper.make_node(GATE, [x, y], node.output, name=node.name)
            node.CopyFrom(gate)
    read = {name for node in graph.node for name in names_read(node)}
    read |= {value.name for value in graph.output}
    nodes = [n for n in graph.node if n.output[0] not in compared or n.output[0] in read]
    del graph.node[:]
    graph.node.extend(nodes)


def _zeros(graph: onnx.GraphProto) -> set[str]:
    """Return the names of constant scalars that are 0."""
    from onnx import numpy_helper

    scalars = (one for one in graph.initializer if one.data_type in _ARRAYS and not one.dims)
    return {one.name for one in scalars if not numpy_helper.to_array(one)}


def _replace_nodes(model: onnx.ModelProto, made: Sequence[_Made]) -> None:
    nodes = [item.node for item in made]
    reads, makes = [node.input for node in nodes], [node.output for node in nodes]
    order = sort_nodes(reads, makes, [one.place for one in made])
    del model.graph.node[:]
    model.graph.node.extend(nodes[number] for number in order)
    import_domain(model)


@dataclass(frozen=True)
class _Made:
    """A node, and the position of the last node that was fused into it."""

    place: int
    node: onnx.NodeProto


class _Graph:
    """The nodes, the positions of ``fused`` nodes, and each node's depth and part.

    ``parts`` number the segments between starts and waits of collectives. An unfused node is one
    level deeper than a fused predecessor, and so is a node of another shape. Fused nodes of the
    same depth can therefore run as one node: no path between two of them contains another node.
    """

    def __init__(self, model: onnx.ModelProto, fusion: Fusion) -> None:
        self.fusion = fusion
        self.nodes = list(model.graph.node)
        self.types = tensor_types(model.graph)
        self.makers = {name: place for place, node in enumerate(self.nodes) for name in node.output}
        self.readers: dict[str, list[int]] = defaultdict(list)
        for place, node in enumerate(self.nodes):
            for name in names_read(node):
                self.readers[name].append(place)
        self.returned = {value.name for value in model.graph.output}
        self.constants = model.graph.initializer
        inputs = {value.name for value in model.graph.input}  # their initializers are defaults
        scalars = (one for one in self.constants if not one.dims)
        self.numbers = {one.name: one for one in scalars if one.name not in inputs}
        self.fused = {place for place, node in enumerate(self.nodes) if self._fits(node)}
        self.depths: list[int] = []
        for place, node in enumerate(self.nodes):
            before = {self.makers[name] for name in node.input if name in self.makers}
            depths = (self.depths[p] + self._is_deeper(p, place) for p in before)
            self.depths.append(max(depths, default=0))
        ends = (node.op_type in STARTS or node.op_type in WAITS for node in self.nodes)
        self.parts = list(accumulate(ends, initial=0))

    def _is_deeper(self, before: int, place: int) -> bool:
        if before not in self.fused:
            return False
        return place not in self.fused or self.shape(before) != self.shape(place)

    def shape(self, place: int) -> tuple[int, ...]:
        """Return the shape of the first result of a node."""
        return self.types[self.nodes[place].output[0]][1]

    def is_array(self, name: str) -> bool:
        kind, shape = self.types.get(name, (0, ()))
        return kind in _ARRAYS and bool(shape)

    def _fits(self, node: onnx.NodeProto) -> bool:
        if node.domain or not self.is_array(node.output[0]):
            return False
        kind, shape = self.types[node.output[0]]
        arrays = [name for name in node.input if self.is_array(name)]
        if not self._shares(shape, [self.types[name][1] for name in arrays]):
            return False
        if any(self.types[name][0] != self.types[arrays[0]][0] for name in arrays):
            return False
        if node.op_type == CAST:
            return bool(arrays) and self._casts(node, kind)
        if node.op_type not in self.fusion.operators:
            return False
        if node.op_type == POWER:
            return len(arrays) == 1 and self._squares(node) and self._computes(kind)
        scalars = [name for name in node.input if not self.is_array(name)]
        if kind == FLOAT32:
            return all(self.types.get(name) == (FLOAT32, ()) for name in scalars)
        return self._computes(kind) and all(name in self.numbers for name in scalars)

    def _shares(self, shape: Sequence[int], arrays: Sequence[Sequence[int]]) -> bool:
        """Return True if arrays have the shape of a result, or all but one are broadcast to it."""
        small = [array for array in arrays if array != shape]
        if not small or not self.fusion.broadcasts:
            return not small
        return len(small) < len(arrays) and all(_is_broadcast(one, shape) for one in small)

    def _computes(self, kind: int) -> bool:
        return kind == FLOAT32 or self.fusion.narrow

    def _squares(self, node: onnx.NodeProto) -> bool:
        """Return True if the exponent is the constant 2."""
        from onnx import numpy_helper

        exponent = self.numbers.get(node.input[1])
        return exponent is not None and float(numpy_helper.to_array(exponent)) == 2.0

    def _casts(self, node: onnx.NodeProto, kind: int) -> bool:
        """Return True if a Cast is to float32, or from it at the end; others would round.

        The fusion of narrow arithmetic does not round between its nodes.
        """
        if kind == FLOAT32 or self.fusion.narrow:
            return True
        is_last = node.output[0] in self.returned and not self.readers[node.output[0]]
        return is_last and self.types[node.input[0]][0] == FLOAT32

    def groups(self) -> list[list[int]]:
        """Return groups of fused nodes that read each other's results, in file order."""
        group_of: dict[int, int] = {}
        groups: dict[int, list[int]] = {}
        for place in sorted(self.fused):
            makers = {self.makers[n] for n in self.nodes[place].input if n in self.makers}
            met = sorted({group_of[p] for p in makers if p in group_of and self._joins(p, place)})
            members = sorted([place, *(p for one in met for p in groups.pop(one))])
            groups[members[0]] = members
            group_of.update(dict.fromkeys(members, members[0]))
        return list(groups.values())

    def pays(self, group: Sequence[int]) -> bool:
        """Return True if one node of ours takes less time than the nodes of ``group``."""
        has_gate = any(self.nodes[place].op_type == GATE for place in group)
        return has_gate or len(group) >= self.fusion.least

    def scalar(self, name: str) -> str:
        """Return the name of a scalar in float32, which is added to the graph if it is narrow."""
        from onnx import numpy_helper

        if self.types[name][0] == FLOAT32:
            return name
        wide = f"{name}.float32"
        if wide not in self.numbers:
            value = numpy_helper.to_array(self.numbers[name]).astype(np.float32)
            self.constants.append(numpy_helper.from_array(value, wide))
            self.numbers[wide] = self.constants[-1]
        return wide

    def _joins(self, maker: int, reader: int) -> bool:
        return (self.depths[maker], self.parts[maker]) == (self.depths[reader], self.parts[reader])


def _is_broadcast(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Return True if the dimensions that an array shares with a larger one are neighbours."""
    padded = (1,) * (len(target) - len(shape)) + tuple(shape)
    shared = [dim for dim, size in enumerate(padded) if size != 1]
    between = range(shared[0], shared[-1] + 1) if shared else range(0)
    return all(padded[dim] == target[dim] for dim in between)


def _piece(graph: _Graph, group: Sequence[int]) -> _Piece:
    piece, values = _Piece(), dict[str, _Value]()
    shape = graph.shape(group[0])

    def value(name: str) -> _Value:
        if name not in values and graph.is_array(name):
            values[name] = ("array", len(piece.reads))
            piece.reads.append(name)
            piece.broadcast.append(int(graph.types[name][1] != shape))
        return values[name] if name in values else ("scalar", graph.scalar(name))

    def step(name: str, a: _Value, b: _Value) -> _Value:
        piece.steps.append((STEPS.index(name), a, b))
        return "step", len(piece.steps) - 1

    for place in group:
        node = graph.nodes[place]
        first = value(node.input[0])
        if node.op_type == CAST:
            result = first
        elif node.op_type == SUM:
            result = reduce(partial(step, "Add"), map(value, node.input[1:]), first)
        elif node.op_type == POWER:
            result = step("Mul", first, first)
        else:
            result = step(node.op_type, first, value(node.input[-1]))
        values[node.output[0]] = result
    inside = set(group)
    for place in group:
        name = graph.nodes[place].output[0]
        if name in graph.returned or not inside.issuperset(graph.readers[name]):
            piece.results.append(values[name])
            piece.writes.append(name)
    return piece


def _join(graph: _Graph, groups: Iterable[Sequence[int]]) -> list[_Made]:
    """Return a node per distinct program of the groups; groups that only cast are unchanged."""
    kinds: dict[object, list[_Piece]] = defaultdict(list)
    last: dict[object, int] = defaultdict(int)
    left: list[_Made] = []
    for group in groups:
        piece = _piece(graph, group)
        if not piece.steps:
            left += [_Made(place, graph.nodes[place]) for place in group]
            continue
        types = (_kinds(graph, piece.reads), _kinds(graph, piece.writes))
        kind = (tuple(piece.steps), tuple(piece.results), types, tuple(piece.broadcast))
        kinds[kind].append(piece)
        last[kind] = max(last[kind], group[-1])
    return left + [_Made(last[kind], _node(graph, pieces)) for kind, pieces in kinds.items()]


def _kinds(graph: _Graph, names: Sequence[str]) -> tuple[int, ...]:
    return tuple(graph.types[name][0] for name in names)


def _node(graph: _Graph, pieces: Sequence[_Piece]) -> onnx.NodeProto:
    from onnx import helper

    first = pieces[0]
    operands = [value for _, *both in first.steps for value in both]
    scalars = [*dict.fromkeys(str(name) for kind, name in operands if kind == "scalar")]
    # The kernel numbers the scalars first, then the arrays, then the steps.
    values: list[_Value] = [("scalar", name) for name in scalars]
    values += [("array", place) for place in range(len(first.reads))]
    values += [("step", place) for place in range(len(first.steps))]
    number = {value: index for index, value in enumerate(values)}
    return helper.make_node(
        ONE_PASS.removeprefix(f"{DOMAIN}."),
        [*scalars, *(name for piece in pieces for name in piece.reads)],
        [name for piece in pieces for name in piece.writes],
        name=f"{first.writes[0]}.Elementwise",
        domain=DOMAIN,
        scalars=len(scalars),
        reads=_kinds(graph, first.reads),
        broadcast=first.broadcast,
        program=[n for kind, a, b in first.steps for n in (kind, number[a], number[b])],
        results=[number[value] for value in first.results],
        writes=_kinds(graph, first.writes),
    )
