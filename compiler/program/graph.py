"""The searched program: nodes with a choice of strategies, and the values between them.

The graph is read from the IR once; options and costs depend on a mesh, see ``costs.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.layout.sizes import is_worth_padding
from tensoropt.compiler.program.pins import Conditions
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.layout import Placement
from tensoropt.runtime.support.drawing import RANDOM

_PARTS = {"forward": 0, "recompute": 1, "backward": 1, "update": 2}
PARTS = len({*_PARTS.values()})
"""The number of parts of a training step."""

__all__ = [
    "PARTS",
    "Argument",
    "DimSplits",
    "Graph",
    "Node",
    "Op",
    "Result",
    "Storage",
    "Value",
    "once_per_graph",
]

_T = TypeVar("_T")

DimSplits = tuple[Placement, ...]
"""The splits of dimensions of a tensor in blocks or between units."""


@dataclass(eq=False, kw_only=True)
class _Node:
    """A part of the function that has a strategy.

    ``operands`` and ``results`` hold value indices, ``None`` for an omitted operand. A ``constant``
    node depends on no graph input; ONNX Runtime folds it when the model is loaded. In a training
    step, a node may follow a leader.
    """

    name: str
    operands: list[int | None] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    constant: bool = False
    follows: int | None = None

    @property
    def part(self) -> int:
        """The part of a step in which a node runs: forward 0, backward 1, update 2.

        State is resharded at most once for each part.
        """
        return 0


@dataclass(eq=False, kw_only=True)
class Argument(_Node):
    """An input of the function, a parameter, or ``state`` of a training step, of some kind."""

    state: str | None = None

    @property
    def is_fed(self) -> bool:
        """True for an input of the program, neither a constant nor state."""
        return not self.constant and self.state is None

    @property
    def is_weight(self) -> bool:
        """True for a parameter, trained or not."""
        return self.constant or self.state == "parameter"


@dataclass(eq=False, kw_only=True)
class Op(_Node):
    """An op of the function.

    Equal ops have the same object as ``info`` and as ``rule``. ``source`` is the operation in the
    module; a barrier of a derived graph has none.

    In a training step, ``phase`` is the part of the step that runs the op. It has the strategy of
    an op that it ``repeats``. ``gradients`` pairs values with their gradients, for followers. A
    ``held`` op makes a parameter's gradient, which stays until the update. An op that ``passes`` a
    gradient on makes nothing: its result is its operand. A ``norm`` adds the parts that all ranks
    have of all gradients. An op that ``awaits`` a value runs after its producer, and does not read
    it.
    """

    info: OpInfo
    rule: Rule
    source: ir.Operation | None = None
    phase: str | None = None
    repeats: int | None = None
    gradients: tuple[tuple[int, int], ...] = ()
    held: bool = False
    passes: bool = False
    norm: bool = False
    awaits: int | None = None

    @property
    def part(self) -> int:
        return _PARTS.get(self.phase or "forward", 0)

    @property
    def is_forward(self) -> bool:
        """True for an op of a model, or of the forward pass of a training step."""
        return self.phase in (None, "forward")

    @property
    def is_random(self) -> bool:
        """True for an op that draws random numbers."""
        return self.info.name in RANDOM

    @property
    def is_alias(self) -> bool:
        """True for an op with a result that stays in the memory of its operand."""
        return self.passes or self.awaits is not None


@dataclass(eq=False, kw_only=True)
class Result(_Node):
    """A result of the function, ``returned_as`` an output of the model.

    In a training step, it ``updates`` the argument that it overwrites. In a step of a decoder, it
    ``takes_over`` from a cache, in the same layout; if it also ``updates`` the cache, it overwrites
    it.
    """

    returned_as: str
    updates: int | None = None
    takes_over: int | None = None

    @property
    def is_output(self) -> bool:
        """True for an output of the model: a result that is no state of a training step."""
        return self.updates is None or self.takes_over is not None


Node = Argument | Op | Result


@dataclass
class Value:
    """A tensor between nodes; ``uses`` lists (node, operand index)."""

    producer: int
    index: int
    info: TensorInfo | None
    uses: list[tuple[int, int]] = field(default_factory=list)


class Storage:
    """The values of a graph by their storage. Linear in the operands.

    Attributes:
        private: parameters with one use: they are stored in its layout, and have no choice.
        constants: values that depend on no graph input.
        state: arguments that a training step updates.
        resident: state, its gradients and caches, which stay from step to step.
        staying: values that stay in memory for the whole run, or are folded at load.
        weights: parameters, trained or not, and values made of constants alone.
        read: values that are read at run time.
        accumulated: sums of gradients that are in the memory of the sums of earlier batches.
        static: values that are static memory of the nodes that make them.
        replacing: values that may overwrite an argument: new state, or a new cache.
        next_caches: caches that are updated in place.
    """

    def __init__(self, nodes: Sequence[Node], values: Sequence[Value]) -> None:
        arguments = [node for node in nodes if isinstance(node, Argument)]
        gradients = [node for node in nodes if isinstance(node, Op) and node.held]
        results = [node for node in nodes if isinstance(node, Result)]
        caches = [nodes[node.takes_over] for node in results if node.takes_over is not None]
        sums = _list_results(node for node in arguments if node.state == "gradient")
        parameters = _list_results(node for node in arguments if node.constant)
        self.private = frozenset(v for v in parameters if len(values[v].uses) == 1)
        self.constants = _list_results(node for node in nodes if node.constant)
        self.state = _list_results(node for node in arguments if node.state is not None)
        self.resident = self.state | _list_results(gradients) | _list_results(caches)
        self.staying = self.constants | self.resident
        self.weights = self.constants | _list_results(node for node in arguments if node.is_weight)
        self.read = _list_operands(node for node in nodes if not node.constant)
        self.accumulated = _list_results(n for n in gradients if not sums.isdisjoint(n.operands))
        kept = self.constants & (self.read - self.private)
        self.static = kept | (self.resident - self.accumulated)
        new = [node for node in results if node.updates is not None]
        self.replacing = _list_operands(new)
        self.next_caches = _list_operands(node for node in new if node.takes_over is not None)


def _list_results(nodes: Iterable[Node]) -> frozenset[int]:
    return frozenset(value for node in nodes for value in node.results)


def _list_operands(nodes: Iterable[Node]) -> frozenset[int]:
    return frozenset(v for node in nodes for v in node.operands if v is not None)


@dataclass(eq=False)
class Graph:
    """Nodes in program order: arguments, then ops, then results.

    Has a reference to the module: the bindings do not keep it alive for the operations of the
    nodes. ``conditions`` are the pins. A training step runs everything except its update once for
    each of ``micro_batches``.
    """

    nodes: list[Node]
    values: list[Value]
    module: ir.Module
    conditions: Conditions = field(default_factory=dict)
    micro_batches: int = 1
    interned: dict[object, int] = field(default_factory=dict, repr=False)

    def intern(self, key: object) -> int:
        """Return a number for ``key``, the same in all graphs that are derived from this one."""
        return self.interned.setdefault(key, len(self.interned))

    @cached_property
    def storage(self) -> Storage:
        """The storage of the values."""
        return Storage(self.nodes, self.values)

    @property
    def names_axes(self) -> bool:
        """True if a pin distinguishes the axes of a mesh."""
        return any(one.names_axes for pinned in self.conditions.values() for one in pinned)

    @cached_property
    def samples(self) -> frozenset[int]:
        """The numbers of samples of the program: the first sizes of its inputs."""
        arguments = (node for node in self.nodes if isinstance(node, Argument))
        fed = (self.values[node.results[0]].info for node in arguments if node.is_fed)
        first = (info.sizes[0] for info in fed if info is not None and info.sizes)
        return frozenset(size for size in first if isinstance(size, int))

    @cached_property
    def splits(self) -> dict[int, DimSplits]:
        """The splits of each value in blocks or between units, by the rules of its ops."""
        found: dict[int, dict[int, Placement]] = {}
        for node in self.nodes:
            if isinstance(node, Op) and node.rule.splits:
                values = (*node.operands[: len(node.rule.operands)], *node.results)
                for tensor, placement in node.rule.splits:
                    value = values[tensor]
                    if value is not None:
                        found.setdefault(value, {}).setdefault(placement.dim, placement)
        return {value: tuple(own[dim] for dim in sorted(own)) for value, own in found.items()}

    def pads(self, size: int, pieces: int, axes: int) -> bool:
        """Return whether a search splits ``size`` into ``pieces`` that do not divide it."""
        return is_worth_padding(size, pieces, axes, self.samples)

    @cached_property
    def has_caches(self) -> bool:
        """True for a step of a decoder that takes over caches from the step before."""
        return any(isinstance(n, Result) and n.takes_over is not None for n in self.nodes)

    @property
    def trains(self) -> bool:
        """True for a training step."""
        return bool(self.storage.state)

    def op(self, index: int) -> Op:
        """Return the node at ``index``, which is an op."""
        node = self.nodes[index]
        assert isinstance(node, Op)
        return node

    def runs_forward(self, index: int) -> bool:
        """Return whether a node is an op of the forward pass that is not constant."""
        node = self.nodes[index]
        return isinstance(node, Op) and not node.constant and node.is_forward

    def producer(self, value: int) -> Node:
        """Return the node that makes ``value``."""
        return self.nodes[self.values[value].producer]

    def edges(self) -> Iterator[tuple[int, int, int]]:
        """Yield (value, consuming node, operand index) for every use that chooses freely."""
        for index, value in enumerate(self.values):
            if index not in self.storage.private and value.info is not None:
                for node, operand in value.uses:
                    yield index, node, operand

    def private_operands(self, node: Node) -> Iterator[tuple[int, TensorInfo]]:
        """Yield (operand index, tensor) of the private parameters that ``node`` reads."""
        for operand, value in enumerate(node.operands):
            if value in self.storage.private:
                info = self.values[value].info
                assert info is not None
                yield operand, info

    def is_passed_on(self, value: int, node: int) -> bool:
        """Return whether ``node`` returns an argument under its own name.

        ONNX has one tensor of a name, so the result has the layout of the argument.
        """
        producer, reader = self.producer(value), self.nodes[node]
        if not isinstance(producer, Argument) or not isinstance(reader, Result):
            return False
        return reader.returned_as == producer.name

    def updates(self, node: Node) -> bool:
        """Return whether a node, or the producer of a result, belongs to the update of a step."""
        if isinstance(node, Result) and node.operands[0] is not None:
            node = self.producer(node.operands[0])
        return isinstance(node, Op) and node.phase == "update"

    def times(self, node: Node) -> int:
        """Return the number of times that a step runs a node and reshards its operands."""
        return 1 if self.updates(node) else self.micro_batches

    @property
    def runs(self) -> int:
        """The number of graph runs of a step.

        A training step has two graphs (decision 12), and runs the first for each micro-batch.
        """
        return self.micro_batches + 1 if self.trains else 1


def once_per_graph(make: Callable[[Graph], _T]) -> Callable[[Graph], _T]:
    """Cache the result of a function for each graph, as long as the graph lives."""
    known: WeakKeyDictionary[Graph, _T] = WeakKeyDictionary()

    @wraps(make)
    def look_up(graph: Graph) -> _T:
        if graph not in known:
            known[graph] = make(graph)
        return known[graph]

    return look_up
