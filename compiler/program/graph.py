"""The searched program: nodes with a choice of strategies, and the values between them.

The graph is read from the IR once; options and costs depend on a mesh, see ``costs.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from tensoropt.compiler.cost.compute import FREE
from tensoropt.compiler.cost.measurements import Context, context_of
from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.layout.sizes import is_worth_padding
from tensoropt.compiler.program.pins import Conditions
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.support.identity import Same
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.support.drawing import RANDOM

_PARTS = {"forward": 0, "recompute": 1, "backward": 1, "update": 2}

__all__ = ["Graph", "Node", "Value"]


@dataclass(eq=False)
class Node:
    """An argument, an op or a result of the function, which has a strategy.

    Equal ops have the same object as ``info`` and as ``rule``. ``operands`` and ``results`` hold
    value indices, ``None`` for an omitted operand. A ``private`` argument is a parameter with one
    use: it is stored in the layout of that use and has no choice. A ``constant`` node depends on no
    graph input; ONNX Runtime folds it when the model is loaded. A ``whole`` constant has many uses,
    and is small enough for every rank to keep all of it. ``returned_as`` is the name of an output
    of the model.

    In a training step: ``phase`` is the part of the step that runs an op, and ``state`` the kind of
    state of an argument. A node ``follows`` its leader, and has the strategy of a node that it
    ``repeats``. ``gradients`` pairs values with their gradients, for followers. A result
    ``updates`` the argument that it overwrites. A ``held`` op makes a parameter's gradient, which
    stays until the update. An op that ``passes`` a gradient on makes nothing: its result is its
    operand. The result of an op that ``is_alias`` stays in the memory of its operand. A ``norm``
    adds the parts that all ranks have of all gradients. A node that ``awaits`` a value runs after
    its producer, and does not read it.

    In a step of a decoder: an argument that ``is_cache`` stays in place, and a result
    ``takes_over`` from it, in the same layout. A result that also ``updates`` the cache overwrites
    it.
    """

    kind: Literal["argument", "op", "result"]
    name: str
    info: OpInfo | None = None
    rule: Rule | None = None
    op: ir.Operation | None = None
    operands: list[int | None] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    constant: bool = False
    private: bool = False
    whole: bool = False
    returned_as: str | None = None
    phase: str | None = None
    state: str | None = None
    follows: int | None = None
    repeats: int | None = None
    updates: int | None = None
    gradients: tuple[tuple[int, int], ...] = ()
    held: bool = False
    passes: bool = False
    is_alias: bool = False
    norm: bool = False
    awaits: int | None = None
    is_cache: bool = False
    takes_over: int | None = None

    @property
    def is_parameter(self) -> bool:
        return self.kind == "argument" and self.constant

    @property
    def is_random(self) -> bool:
        """True for an op that draws random numbers."""
        return self.info is not None and self.info.name in RANDOM

    @property
    def is_fed(self) -> bool:
        """True for an input of the program: an argument, neither a constant nor state."""
        return self.kind == "argument" and not self.constant and self.state is None

    @property
    def is_output(self) -> bool:
        """True for an output of the model: a result that is no state of a training step."""
        is_state = self.updates is not None and self.takes_over is None
        return self.kind == "result" and not is_state


@dataclass
class Value:
    """A tensor between nodes; ``uses`` lists (node, operand index)."""

    producer: int
    index: int
    info: TensorInfo | None
    uses: list[tuple[int, int]] = field(default_factory=list)


@dataclass(eq=False)
class Graph:
    """Nodes in program order: arguments, then ops, then results.

    Has a reference to the module: the bindings do not keep it alive for the operations of the
    nodes. ``conditions`` are the pins. ``released`` constants are pinned or made of pinned
    constants, and not kept whole. A training step runs everything except its update once for each
    of ``micro_batches``.
    """

    nodes: list[Node]
    values: list[Value]
    module: ir.Module
    conditions: Conditions = field(default_factory=dict)
    released: Set[int] = frozenset()
    micro_batches: int = 1
    interned: dict[object, int] = field(default_factory=dict, repr=False)

    def intern(self, key: object) -> int:
        """Return a number for ``key``, the same in all graphs that are derived from this one."""
        return self.interned.setdefault(key, len(self.interned))

    @cached_property
    def names_axes(self) -> bool:
        """True if a pin distinguishes the axes of a mesh."""
        return any(one.names_axes for pinned in self.conditions.values() for one in pinned)

    @cached_property
    def samples(self) -> frozenset[int]:
        """The numbers of samples of the program: the first sizes of its inputs."""
        fed = (self.values[node.results[0]].info for node in self.nodes if node.is_fed)
        first = (info.sizes[0] for info in fed if info is not None and info.sizes)
        return frozenset(size for size in first if isinstance(size, int))

    def pads(self, size: int, pieces: int) -> bool:
        """Return whether a search splits ``size`` into ``pieces`` that do not divide it."""
        return is_worth_padding(size, pieces, self.samples)

    @cached_property
    def trains(self) -> bool:
        """True for a training step."""
        return any(node.state for node in self.nodes)

    @cached_property
    def weight_ops(self) -> frozenset[int]:
        """The forward ops that read weights, literals and results of such ops alone.

        Random ops are none of them. Linear in the operands.
        """
        arguments = (node for node in self.nodes if node.is_parameter or node.state is not None)
        fixed, found = {value for node in arguments for value in node.results}, list[int]()
        for index, node in enumerate(self.nodes):
            if node.kind != "op" or node.phase not in (None, "forward") or node.is_random:
                continue
            if fixed.issuperset(value for value in node.operands if value is not None):
                fixed.update(node.results)
                found.append(index)
        return frozenset(found)

    def names(self, kind: str) -> list[str]:
        """Return the names of the nodes of one kind, in program order."""
        return [node.name for node in self.nodes if node.kind == kind]

    def is_same_program(self, other: Graph) -> bool:
        """Return whether ``other``, derived from the same step, has the same nodes."""
        pairs = zip(self.nodes, other.nodes, strict=False)
        return len(self.nodes) == len(other.nodes) and all(
            (a.name, a.operands, a.awaits) == (b.name, b.operands, b.awaits) for a, b in pairs
        )

    def producer(self, value: int) -> Node:
        """Return the node that makes ``value``."""
        return self.nodes[self.values[value].producer]

    def edges(self) -> Iterator[tuple[int, int, int]]:
        """Yield (value, consuming node, operand index) for every use that chooses freely."""
        for index, value in enumerate(self.values):
            if not self.nodes[value.producer].private and value.info is not None:
                for node, operand in value.uses:
                    yield index, node, operand

    def private_operands(self, node: Node) -> Iterator[tuple[int, TensorInfo]]:
        """Yield (operand index, tensor) of the private parameters that ``node`` reads."""
        for operand, value in enumerate(node.operands):
            if value is not None and self.producer(value).private:
                info = self.values[value].info
                assert info is not None
                yield operand, info

    def is_passed_on(self, value: int, node: int) -> bool:
        """Return whether ``node`` returns an argument under its own name.

        ONNX has one tensor of a name, so the result has the layout of the argument.
        """
        producer = self.producer(value)
        return producer.kind == "argument" and self.nodes[node].returned_as == producer.name

    def resides(self, value: int) -> bool:
        """Return whether a value is state, its gradient or a cache: it stays from step to step."""
        producer = self.producer(value)
        return producer.state is not None or producer.held or producer.is_cache

    def accumulates(self, node: Node) -> bool:
        """Return whether an op adds to the gradient of earlier batches, in place."""
        made = (self.producer(value) for value in node.operands if value is not None)
        return node.held and any(producer.state == "gradient" for producer in made)

    def is_weight(self, value: int) -> bool:
        """Return whether a value is a parameter, trained or not, or made of parameters alone."""
        producer = self.producer(value)
        return producer.constant or producer.state == "parameter"

    def stays(self, value: int) -> bool:
        """Return whether a value stays in memory for the whole run, or is folded at load."""
        return self.producer(value).constant or self.resides(value)

    def is_replaced(self, value: int) -> bool:
        """Return whether a value may overwrite an argument: new state, or a new cache."""
        return any(self.nodes[node].updates is not None for node, _ in self.values[value].uses)

    def is_next_cache(self, value: int) -> bool:
        """Return whether a value is a cache that is updated in place."""
        return value in self._next_caches

    @cached_property
    def _next_caches(self) -> frozenset[int]:
        """The values that replace a cache in its memory."""
        replacing = (n for n in self.nodes if n.updates is not None and n.takes_over is not None)
        return frozenset(v for node in replacing for v in node.operands if v is not None)

    @cached_property
    def roles(self) -> list[int]:
        """Per node, an interned number, equal for nodes with equal costs under equal strategies.

        Costs depend on the op, on the number of its runs, and on the storage of its operands and
        results. Linear in the operands.
        """
        found = []
        for node in self.nodes:
            operands: dict[int | None, int] = {}
            for place, operand in enumerate(node.operands):
                operands.setdefault(operand, place)
            stored = tuple(
                v is not None and (*self._storage(v), operands.get(v, -1))
                for v in (*node.operands, *node.results)
            )
            role = node.kind, Same(node.info), node.constant, self.times(node), stored
            found.append(self.intern(role))
        return found

    @cached_property
    def option_kinds(self) -> list[int]:
        """Per node, an interned number, equal for nodes with equal options on every mesh.

        Linear in the nodes.
        """
        found = []
        for index, node in enumerate(self.nodes):
            touched = (*node.operands[:1], *node.results[:1])
            infos = [Same(self.values[v].info) for v in touched if v is not None]
            pinned = self.is_whole(index), self.conditions.get(index, ())
            traits = node.private, node.state == "gradient", node.is_fed
            kind = node.kind, Same(node.rule), len(node.operands), traits, pinned, *infos
            found.append(self.intern(kind))
        return found

    @cached_property
    def cost_kinds(self) -> list[int]:
        """Per node, an interned number, equal for nodes with equal options at equal costs.

        Linear in the operands.
        """
        pairs = zip(self.roles, self.option_kinds, strict=True)
        return [self.intern(("cost", *pair)) for pair in pairs]

    def is_whole(self, index: int) -> bool:
        """Return whether every rank keeps all of the constant that a node makes."""
        return self.nodes[index].whole and index not in self.released

    def _storage(self, value: int) -> tuple[object, ...]:
        """Return the storage of a value, as far as costs depend on it."""
        producer, info = self.producer(value), self.values[value].info
        kept, resides = self.is_kept(self.values[value]), self.resides(value)
        return (
            producer.private,
            producer.constant,
            kept,
            resides,
            self.is_next_cache(value),
            Same(info),
        )

    def adds_state(self, node: Node) -> bool:
        """Return whether a node makes a value that stays until the update, in memory of its own."""
        stays = node.state is not None or node.held or node.is_cache
        return stays and not self.accumulates(node)

    def part(self, node: Node) -> int:
        """Return the part of a step in which an op runs: forward 0, backward 1, update 2.

        State is resharded at most once for each part.
        """
        return _PARTS.get(node.phase or "forward", 0)

    @property
    def parts(self) -> int:
        """The number of parts of a step."""
        return len(set(_PARTS.values())) if self.trains else 1

    def updates(self, node: Node) -> bool:
        """Return whether a node, or the producer of a result, belongs to the update of a step."""
        if node.kind == "result" and node.operands[0] is not None:
            node = self.producer(node.operands[0])
        return node.phase == "update"

    def times(self, node: Node) -> int:
        """Return the number of times that a step runs a node and reshards its operands."""
        return 1 if self.updates(node) else self.micro_batches

    @property
    def runs(self) -> int:
        """The number of graph runs of a step.

        A training step has two graphs (decision 12), and runs the first for each micro-batch.
        """
        return self.micro_batches + 1 if self.trains else 1

    def completes(self, node: Node) -> bool:
        """Return whether an op reduces the gradient of all micro-batches for the update.

        That gradient may be a partial sum before.
        """
        made = (self.producer(value) for value in node.operands if value is not None)
        return any(self.accumulates(producer) for producer in made)

    def context(self, node: Node) -> Context:
        """Return the operators that make the operands: empty for an input or a constant."""
        made = (None if v is None else self.producer(v) for v in node.operands)
        name = "" if node.info is None else node.info.name
        makers = (
            "" if p is None or p.info is None or p.constant or p.info.name in FREE else p.info.name
            for p in made
        )
        return context_of(name, makers)

    @cached_property
    def alike(self) -> list[int]:
        """Per node, the first node that makes equal constants; other nodes stand for themselves."""
        first: dict[object, int] = {}
        found: list[int] = []
        for index, node in enumerate(self.nodes):
            is_pure = node.constant and node.op is not None and not len(node.op.regions)
            key = self._content(node, found) if is_pure else index
            found.append(first.setdefault(key, index))
        return found

    def _content(self, node: Node, alike: list[int]) -> object:
        """Return a key of all that the results of a constant op depend on."""
        assert node.op is not None
        read = (None if v is None else self.values[v] for v in node.operands)
        made = tuple(v and (alike[v.producer], v.index) for v in read)
        literal = node.op.attributes["value"] if node.op.name == onnx.CONSTANT else None
        return Same(node.info), made, literal

    def is_kept(self, value: Value) -> bool:
        """Return whether a constant value stays in memory: a node reads it at run time."""
        return any(not self.nodes[node].constant for node, _ in value.uses)
