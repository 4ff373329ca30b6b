"""The places of the nodes of a program along its forward pass.

Cuts are places of the forward pass. Each node has the place of a forward node, and the chunk of
that place, so that one look at the graph serves all cuts of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.program.graph import Argument, Graph, Op, Result, Value, once_per_graph
from tensoropt.compiler.stages.separation import branch_by_branch, longest_branch
from tensoropt.compiler.training.weight_gradients import weight_gradients
from tensoropt.dialects.onnx import BARRIER

__all__ = ["Flags", "Floats", "Ints", "Order", "order_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_NONE = -1

_PASSES_ON = {"Identity", BARRIER}
"""Operators with a result that is their first operand."""

_SIZES = {"Shape", "Size"}
"""Operators with results that are no elements of their operands."""

_TOKENS = -2
"""The dimension of a cache along its tokens, from the end: b h s d."""

_INTEGERS = "int", "uint", "bool"
"""The beginnings of the names of integer types."""


@dataclass(frozen=True, eq=False)
class Order:
    """The places of the nodes of ``graph``.

    ``forward`` are the nodes of the forward pass that depend on an input; a place is a position
    among them. ``first_reads`` are the places at which a parameter is read first, and
    ``beginnings`` all at which a chunk may begin. Per node, ``places`` has the place that decides
    its chunk, -1 for nodes of the update and for those that each chunk computes for itself;
    ``homes`` has a place for these too. In inference ``shared`` nodes are among the latter.
    """

    graph: Graph
    forward: Sequence[int]
    first_reads: Sequence[int]
    beginnings: Sequence[int]
    places: Ints
    homes: Ints
    shared: frozenset[int]

    def place_sums(self, run_s: Floats) -> tuple[Floats, Floats]:
        """Return the sums of a time per node at each place: forward nodes only, and all nodes."""
        count = len(self.forward)
        own = np.where(self.in_forward, run_s, 0.0), run_s
        forward_s, all_s = (np.bincount(self.homes, s, count).astype(np.float64) for s in own)
        return forward_s, all_s

    @cached_property
    def made_values(self) -> Sequence[int]:
        """The values that operations make at run time."""
        graph = self.graph
        makers = ((number, graph.nodes[own.producer]) for number, own in enumerate(graph.values))
        return [
            number
            for number, maker in makers
            if isinstance(maker, Op) and not maker.constant
            if number not in graph.storage.constants
        ]

    def passing(self, sizes: Ints) -> Ints:
        """Return the sum of the sizes of the values that pass each place of the forward pass.

        These are made before the place and read from there on. ``sizes`` has one for each value.
        """
        made, last = self.homes[self.made], self.last_places
        inside = self.runs_forward[self.made] & (last >= 0)
        count = len(self.forward) + 1
        begin = np.bincount(made[inside] + 1, sizes[inside], count)
        end = np.bincount(last[inside] + 1, sizes[inside], count)
        return np.cumsum(begin - end).astype(np.int64)

    @cached_property
    def times(self) -> Ints:
        """The number of times that a step runs each node."""
        return np.array([self.graph.times(node) for node in self.graph.nodes])

    @cached_property
    def runs_once(self) -> Flags:
        """True for each node that a step runs once, after all micro-batches."""
        several = self.graph.micro_batches > 1
        flags = [several or self.graph.updates(node) for node in self.graph.nodes]
        found: Flags = (self.times == 1) & np.array(flags, bool)
        return found

    @cached_property
    def in_forward(self) -> Flags:
        """True for each node of the forward pass; arguments and results count as such."""
        return np.array([not isinstance(n, Op) or n.is_forward for n in self.graph.nodes], bool)

    @cached_property
    def made(self) -> Ints:
        """The node that makes each value."""
        return np.array([value.producer for value in self.graph.values], np.int64)

    @cached_property
    def reads(self) -> tuple[Ints, Ints]:
        """A value and its reader, for each operand of the graph.

        Operations that only pass an operand on take no memory: their readers read the operand.
        """
        graph, own = self.graph, [*range(len(self.graph.values))]
        passes = [isinstance(n, Op) and n.info.name in _PASSES_ON for n in graph.nodes]
        for index in itertools.compress(range(len(graph.nodes)), passes):
            node = graph.nodes[index]
            own[node.results[0]] = own[next(v for v in node.operands if v is not None)]
        values = enumerate(graph.values)
        pairs = [(own[v], r) for v, value in values for r, _ in value.uses if not passes[r]]
        found = np.array(pairs, np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    @cached_property
    def runs_forward(self) -> Flags:
        """True for each operation of the forward pass that is neither constant nor shared."""
        graph, shared = self.graph, self.shared
        flags = [graph.runs_forward(i) and i not in shared for i in range(len(graph.nodes))]
        return np.array(flags, bool)

    @cached_property
    def last_places(self) -> Ints:
        """The last place at which the forward pass reads each value, -1 if it does not."""
        values, readers = self.reads
        found = np.full(len(self.graph.values), _NONE)
        inside = self.runs_forward[readers]
        np.maximum.at(found, values[inside], self.homes[readers[inside]])
        return found

    @cached_property
    def forward_uses(self) -> tuple[Ints, Ints]:
        """The pairs of ``reads`` in which the forward pass makes the value and reads it."""
        values, readers = self.reads
        inside = self.runs_forward[self.made[values]] & self.runs_forward[readers]
        return values[inside], readers[inside]

    @cached_property
    def forward_reads(self) -> tuple[Ints, Ints]:
        """The place of the maker and of a later reader of values that the forward pass makes."""
        values, readers = self.forward_uses
        made, read = self.homes[self.made[values]], self.homes[readers]
        is_later = made < read
        return made[is_later], read[is_later]

    @cached_property
    def runs_late(self) -> Flags:
        """True for each operation that does not run in the forward pass."""
        return np.array([isinstance(node, Op) for node in self.graph.nodes]) & ~self.runs_forward

    @cached_property
    def originals(self) -> Ints:
        """The value that each value recomputes, itself for others."""
        found = np.arange(len(self.graph.values))
        for node in self.graph.nodes:
            if isinstance(node, Op) and node.repeats is not None:
                found[node.results] = self.graph.nodes[node.repeats].results
        return found

    def chunks(self, cuts: Sequence[int]) -> Ints:
        """Return the chunk of each node, -1 for none; a chunk begins at each place of ``cuts``."""
        found = np.searchsorted(np.array(cuts), self.places, side="right")
        return np.where(self.places < 0, _NONE, found)

    def home_chunks(self, cuts: Sequence[int]) -> Ints:
        """Return the chunk of each node, also of those that belong to none alone."""
        return np.searchsorted(np.array(cuts), self.homes, side="right")

    def weight_nodes(self, cuts: Sequence[int]) -> frozenset[int]:
        """Return the nodes that compute gradients of weights.

        A reader in a later chunk than a recomputed value reads the original.
        """
        homes = self.home_chunks(cuts).tolist()
        pairs = zip(self._phases, homes, strict=True)
        chunks = [None if phase is None else home for phase, home in pairs]
        operands = list(self._backward_operands)
        for index in self._rereaders:
            operands[index] = [
                made
                for made in operands[index]
                if self._phases[made] != "recompute" or homes[made] >= homes[index]
            ]
        return weight_gradients(chunks, operands)

    @cached_property
    def _phases(self) -> list[str | None]:
        """The phase of each node that runs after the forward pass and before the update."""
        return [
            node.phase
            if isinstance(node, Op)
            and not node.constant
            and node.phase in ("backward", "recompute")
            else None
            for node in self.graph.nodes
        ]

    @cached_property
    def _backward_operands(self) -> list[list[int]]:
        phases = self._phases
        return [
            [] if phases[i] is None else [p for p in _producers(self.graph, i) if phases[p]]
            for i in range(len(self.graph.nodes))
        ]

    @cached_property
    def _rereaders(self) -> list[int]:
        """The nodes with a recomputed operand."""
        phases = self._phases
        pairs = enumerate(self._backward_operands)
        return [i for i, own in pairs if any(phases[made] == "recompute" for made in own)]


@once_per_graph
def order_of(graph: Graph) -> Order:
    """Return the places of the nodes of a program; ``O(n log n)`` in their operands.

    They have the order of the program, unless long branches are apart only in another one, as in a
    program that runs the layers of two encoders in turns.
    """
    derived = _derived(graph)
    shared = _shared(graph, derived)
    forward = [
        i
        for i in range(len(graph.nodes))
        if graph.runs_forward(i) and i not in derived and i not in shared
    ]
    if graph.trains:
        forward = _with_branches_apart(graph, forward)
    places = _places(graph, forward)
    inside = _inside_attention(graph, places) | _across_immovable(graph, places)
    return Order(
        graph,
        forward,
        [read for read in _first_reads(graph, forward, derived) if read not in inside],
        [place for place in range(len(forward)) if not place or place not in inside],
        np.array(places, np.int64),
        np.array(_homes(graph, places), np.int64),
        frozenset(shared),
    )


def _with_branches_apart(graph: Graph, forward: Sequence[int]) -> list[int]:
    """Return the nodes in their order, or branch by branch if only that separates long branches."""
    at = {node: place for place, node in enumerate(forward)}
    sources = [{at[p] for p in _producers(graph, node) if p in at} for node in forward]
    orders = [*range(len(forward))], branch_by_branch(sources)
    chosen = max(orders, key=lambda order: longest_branch(sources, order))
    return [forward[place] for place in chosen]


def _producers(graph: Graph, index: int) -> list[int]:
    """Return the nodes that make the operands of a node."""
    return [graph.values[v].producer for v in graph.nodes[index].operands if v is not None]


def _readers(graph: Graph, index: int) -> list[int]:
    return [r for value in graph.nodes[index].results for r, _ in graph.values[value].uses]


def _derived(graph: Graph) -> set[int]:
    """Return the parameters, and the nodes that depend on nothing else, such as casts.

    In a training step these are the parameters that it trains.
    """
    found: set[int] = set()
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Argument):
            is_derived = node.state == "parameter" if graph.trains else node.is_weight
        else:
            made = _producers(graph, index)
            is_derived = (
                (graph.runs_forward(index) or node.constant)
                and not graph.op(index).is_random
                and any(p in found for p in made)
                and all(p in found or graph.nodes[p].constant for p in made)
            )
        if is_derived:
            found.add(index)
    return found


def _shared(graph: Graph, derived: Container[int]) -> set[int]:
    """Return the nodes of inference that depend on inputs of integers alone, such as masks.

    Ranks of all stages can be given these inputs; caches belong to one stage.
    """
    found = set[int]()
    if graph.trains:
        return found
    caches = {cache for cache, _ in _caches(graph)}
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Argument):
            info = graph.values[node.results[0]].info
            is_fed = node.is_fed and index not in caches
            if is_fed and info is not None and info.dtype.startswith(_INTEGERS):
                found.add(index)
        elif graph.runs_forward(index) and not graph.op(index).is_random:
            made = _producers(graph, index)
            varying = [p for p in made if p in derived or not graph.nodes[p].constant]
            if varying and found.issuperset(varying):
                found.add(index)
    return found


def _caches(graph: Graph) -> Iterator[tuple[int, int]]:
    """Yield the argument of each cache of a decoder, and the value that takes over from it."""
    for node in graph.nodes:
        if isinstance(node, Result) and node.takes_over is not None:
            yield from ((node.takes_over, value) for value in node.operands if value is not None)


def _inside_attention(graph: Graph, places: Sequence[int]) -> set[int]:
    """Return the places between the writer of a cache and the readers of values of all its tokens.

    A chunk that began there would receive a whole cache, or scores of all tokens, in each step.
    """
    return _list_passed(places, (graph.values[value] for value in _tokens(graph)))


def _across_immovable(graph: Graph, places: Sequence[int]) -> set[int]:
    """Return the places that a value passes which ranks cannot send, such as one of no known rank.

    A value that a stage makes is sent to the stages that read it in the forward pass.
    """
    made = (value for value in graph.values if places[value.producer] != _NONE)
    return _list_passed(places, (v for v in made if v.info is None or not v.info.is_movable))


def _list_passed(places: Sequence[int], values: Iterable[Value]) -> set[int]:
    """Return the places that values pass, from their producers on to their last readers."""
    found = set[int]()
    for value in values:
        last = max((places[reader] for reader, _ in value.uses), default=_NONE)
        found.update(range(places[value.producer] + 1, last + 1))
    return found


def _tokens(graph: Graph) -> dict[int, set[int]]:
    """Return the dimensions of each value that run along the tokens of a cache, by the rules."""
    found: dict[int, set[int]] = {}
    for _, value in _caches(graph):
        info = graph.values[value].info
        if info is not None:
            found[value] = {info.rank + _TOKENS}
    for node in graph.nodes if found else ():
        if isinstance(node, Op) and node.info.name not in _SIZES:
            read = zip(node.operands, node.rule.operands, strict=False)
            pairs = [(found[value], dims) for value, dims in read if value in found]
            factors = {dims[dim] for own, dims in pairs for dim in own}
            for value, dims in zip(node.results, node.rule.results, strict=True):
                along = {dim for dim, factor in enumerate(dims) if factor in factors}
                if along:
                    found.setdefault(value, along)
    return found


def _first_reads(graph: Graph, forward: Sequence[int], derived: set[int]) -> list[int]:
    """Return the positions in ``forward`` at which a parameter is read first."""
    roots: dict[int, set[int]] = {}  # the parameters that a derived node depends on
    for index in sorted(derived):
        made = [roots[p] for p in _producers(graph, index) if p in derived]
        roots[index] = {index} if isinstance(graph.nodes[index], Argument) else set().union(*made)
    seen: set[int] = set()
    found: list[int] = []
    for position, index in enumerate(forward):
        read = {root for p in _producers(graph, index) if p in derived for root in roots[p]}
        if read - seen:
            found.append(position)
        seen |= read
    return found


def _leader(graph: Graph, index: int) -> int | None:
    """Return the node that decides the place of a backward or recomputed node."""
    node = graph.nodes[index]
    repeated = node.repeats if isinstance(node, Op) else None
    return node.follows if repeated is None else repeated


def _places(graph: Graph, forward: Sequence[int]) -> list[int]:
    """Return the place of each node, -1 for none.

    A recomputed node has the place of the original. A backward node has the place of its leader, or
    an earlier one if it reads a gradient of that.
    """
    places = [_NONE] * len(graph.nodes)
    for at, index in enumerate(forward):
        places[index] = at
    _keep_buffers_together(graph, places)
    for index, node in enumerate(graph.nodes):
        if not isinstance(node, Op) or node.is_forward or node.constant or graph.updates(node):
            continue
        leader = _leader(graph, index)
        wanted = _NONE if leader is None else places[leader]
        producers = _producers(graph, index)
        if node.phase == "recompute" and wanted != _NONE:
            places[index] = wanted
            continue
        later = [places[p] for p in producers if _is_backward(graph, p)]
        known = [place for place in (wanted, *later) if place != _NONE]
        given = [place for place in (places[p] for p in producers) if place != _NONE]
        places[index] = min(known) if known else max(given, default=len(forward) - 1)
    return places


def _is_backward(graph: Graph, index: int) -> bool:
    node = graph.nodes[index]
    return isinstance(node, Op) and node.phase == "backward"


def _keep_buffers_together(graph: Graph, places: list[int]) -> None:
    """Move the operations that only update a running statistic to one place.

    That is the first at which they can all run: one chunk alone has the statistic.
    """
    inside: set[int] = set()  # nodes with results that go to buffers alone
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        is_end = isinstance(node, Result) and node.updates is not None
        if is_end and not graph.updates(node):
            inside.add(index)
        elif graph.runs_forward(index):
            readers = _readers(graph, index)
            if readers and inside.issuperset(readers):
                inside.add(index)
    for end in inside:
        if isinstance(graph.nodes[end], Result):
            own = _made_for(graph, end, inside)
            given = [places[i] for node in own for i in _producers(graph, node) if i not in own]
            latest = max((place for place in given if place != _NONE), default=0)
            for index in own - {end}:
                places[index] = latest


def _made_for(graph: Graph, end: int, inside: set[int]) -> set[int]:
    """Return the nodes ``inside`` that the node ``end`` depends on, and itself."""
    found, left = {end}, [end]
    while left:
        new = {*_producers(graph, left.pop())} & inside - found
        found |= new
        left.extend(new)
    return found


def _homes(graph: Graph, places: Sequence[int]) -> list[int]:
    """Return a place for each node: state has its readers', an update its gradient's.

    Nodes of all chunks, such as the learning rate and the norm of all gradients, have the first.
    """
    homes = list(places)
    for cache, value in _caches(graph):
        homes[cache] = places[graph.values[value].producer]

    def settle(index: int, near: Iterable[int]) -> None:
        if homes[index] == _NONE:
            known = [place for place in (homes[other] for other in near) if place != _NONE]
            homes[index] = min(known, default=_NONE)

    for index, node in enumerate(graph.nodes):
        if isinstance(node, Argument) and node.is_weight:
            settle(index, _readers(graph, index))
    for index, node in enumerate(graph.nodes):
        if not (isinstance(node, Op) and node.norm):
            settle(index, _producers(graph, index))
    for index in reversed(range(len(homes))):  # moments, and products of these
        settle(index, _readers(graph, index))
    return [max(place, 0) for place in homes]
