"""The searched program: which nodes choose a strategy and which values run between them.

The graph is read from the IR once; options and costs depend on a mesh and live in ``tables.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from tensoropt.compiler.cost.compute import FREE
from tensoropt.compiler.cost.measured import Context, context_of
from tensoropt.compiler.search.problem.marks import Marks
from tensoropt.compiler.sharding.rule.describe import TypeInfos, describe
from tensoropt.compiler.sharding.rule.op_info import MisfitError, OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.rule import Rule
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir

# A constant of many uses and below this part of all parameter bytes is not worth a choice: it would
# couple all its uses (the angles of rotary embeddings couple every layer) to save next to nothing.
# Few uses cost the search nothing: an embedding tied to the output is worth its gigabyte.
_WHOLE_BELOW = 0.01
_FEW_USES = 2

_PARTS = {"forward": 0, "recompute": 1, "backward": 1, "update": 2}

__all__ = ["Graph", "Node", "Value", "read_graph"]


@dataclass
class Node:
    """An argument, an op or a result of the function: what chooses a strategy.

    Ops that are equal have the same object as ``info`` and as ``rule``.
    ``operands`` and ``results`` hold value indices, ``None`` for an omitted operand. A ``tied``
    argument is a parameter with one use: it is stored as that use wants it and chooses nothing.
    A ``constant`` node depends on no graph input; ONNX Runtime folds it when the model is loaded.
    A ``whole`` constant is shared by many uses and so small that every rank keeps all of it.
    ``returned_as`` is the name under which the model gives a result away.

    In a training step: ``phase`` is when an op runs, ``state`` what an argument holds from one step
    to the next. A node ``follows`` the one whose strategy decides its own; one that ``repeats``
    another has the same strategy. ``gradients`` pairs values with their gradients, for those that
    follow. A result ``updates`` the argument that it takes the place of, in its memory. An op
    whose result is ``held`` makes what stays until the update: a parameter's gradient. One that
    ``passes`` a gradient on makes nothing: its result is its operand; one that ``is_alias``
    leaves it where it is. A
    ``norm`` adds up what every rank has of all gradients.
    """

    kind: Literal["argument", "op", "result"]
    name: str
    info: OpInfo | None = None
    rule: Rule | None = None
    op: ir.Operation | None = None
    operands: list[int | None] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    constant: bool = False
    tied: bool = False
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

    @property
    def is_parameter(self) -> bool:
        return self.kind == "argument" and self.constant


@dataclass
class Value:
    """A tensor between nodes; ``uses`` lists (node, operand index)."""

    producer: int
    index: int
    info: TensorInfo | None
    uses: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Graph:
    """Nodes in program order: arguments, then ops, then results.

    Holds on to the module: the bindings do not keep it alive for the operations of the nodes.
    """

    nodes: list[Node]
    values: list[Value]
    module: ir.Module

    @cached_property
    def trains(self) -> bool:
        """Whether this is a training step."""
        return any(node.state for node in self.nodes)

    def names(self, kind: str) -> list[str]:
        """Return the names of the nodes of one kind, in program order."""
        return [node.name for node in self.nodes if node.kind == kind]

    def producer(self, value: int) -> Node:
        """Return the node that makes ``value``."""
        return self.nodes[self.values[value].producer]

    def edges(self) -> Iterator[tuple[int, int, int]]:
        """Yield (value, consuming node, operand index) for every use that chooses freely."""
        for index, value in enumerate(self.values):
            if not self.nodes[value.producer].tied and value.info is not None:
                for node, operand in value.uses:
                    yield index, node, operand

    def tied_operands(self, node: Node) -> Iterator[tuple[int, TensorInfo]]:
        """Yield (operand index, tensor) of the tied parameters that ``node`` reads."""
        for operand, value in enumerate(node.operands):
            if value is not None and self.producer(value).tied:
                info = self.values[value].info
                assert info is not None
                yield operand, info

    def is_passed_on(self, value: int, node: int) -> bool:
        """Whether ``node`` returns an argument under its own name.

        ONNX has one tensor of a name, so the result lies as the argument does.
        """
        producer = self.producer(value)
        return producer.kind == "argument" and self.nodes[node].returned_as == producer.name

    def resides(self, value: int) -> bool:
        """Whether a value stays in memory from step to step: state, or its gradient."""
        producer = self.producer(value)
        return producer.state is not None or producer.held

    def accumulates(self, node: Node) -> bool:
        """Whether an op adds to the gradient of earlier batches, in its memory."""
        made = (self.producer(value) for value in node.operands if value is not None)
        return node.held and any(producer.state == "gradient" for producer in made)

    def is_weight(self, value: int) -> bool:
        """Whether a value is a parameter, trained or not, or made of such alone."""
        producer = self.producer(value)
        return producer.constant or producer.state == "parameter"

    def stays(self, value: int) -> bool:
        """Whether a value is in memory all the time, or folded at load to what is."""
        return self.producer(value).constant or self.resides(value)

    def adds_state(self, node: Node) -> bool:
        """Whether a node makes what stays until the update, in memory of its own."""
        return (node.state is not None or node.held) and not self.accumulates(node)

    def part(self, node: Node) -> int:
        """Return in which part of a step an op runs: forward 0, backward 1, update 2.

        State that lies otherwise than an op wants it is fetched once for each part.
        """
        return _PARTS.get(node.phase or "forward", 0)

    def context(self, node: Node) -> Context:
        """Return the operators that make the operands: empty for an input or a constant."""
        made = (None if v is None else self.producer(v) for v in node.operands)
        return context_of(
            "" if p is None or p.info is None or p.constant or p.info.name in FREE else p.info.name
            for p in made
        )

    @cached_property
    def alike(self) -> list[int]:
        """Per node the first that makes the same constants, itself where it is no constant."""
        first: dict[object, int] = {}
        found: list[int] = []
        for index, node in enumerate(self.nodes):
            is_pure = node.constant and node.op is not None and not len(node.op.regions)
            key = self._content(node, found) if is_pure else index
            found.append(first.setdefault(key, index))
        return found

    def _content(self, node: Node, alike: list[int]) -> object:
        """Return what the results of a constant op depend on."""
        assert node.op is not None
        read = (None if v is None else self.values[v] for v in node.operands)
        made = tuple(v and (alike[v.producer], v.index) for v in read)
        literal = node.op.attributes["value"] if node.op.name == onnx.CONSTANT else None
        return id(node.info), made, literal

    def is_kept(self, value: Value) -> bool:
        """Whether a constant value stays in memory: something read at run time uses it."""
        return any(not self.nodes[node].constant for node, _ in value.uses)


def read_graph(module: ir.Module) -> Graph:
    """Return the graph of ``@main``; linear in the number of operands.

    Raises:
        UserError: an operation is not of the ``onnx`` namespace.
    """
    return _Reader(module).read()


class _Reader:
    """Builds the graph in one walk over the function."""

    def __init__(self, module: ir.Module) -> None:
        self.versions = onnx.opsets(module)
        self.function = onnx.function(module)
        self.graph = Graph([], [], module)
        self.indices: dict[ir.Value, int] = {}
        self.infos = TypeInfos()
        self.marks = Marks(self.graph)
        self.known: dict[OpInfo, tuple[OpInfo, Rule]] = {}

    def read(self) -> Graph:
        block = self.function.regions[0].blocks[0]
        arguments = self._held("arg_attrs", len(block.arguments))
        for argument, (name, attributes) in zip(block.arguments, arguments, strict=True):
            node = Node("argument", name, constant="topt.param" in attributes)
            self._append(node, [argument])
            self.marks.argument(node, attributes)
        for op in block:
            self._op(op.operation)
        self.marks.resolve()
        _classify_constants(self.graph)
        return self.graph

    def _held(self, key: str, count: int) -> list[tuple[str, ir.DictAttr]]:
        """Return the name and the attributes of each argument or result."""
        attributes = self.function.attributes
        held = list(attributes[key]) if key in attributes else []
        if len(held) != count or any("topt.name" not in own for own in held):
            side = "argument" if key == "arg_attrs" else "result"
            raise UserError(f"function @main: expected topt.name on every {side}, run import first")
        return [(own["topt.name"].value, own) for own in held]

    def _op(self, op: ir.Operation) -> None:
        if op.name == onnx.NO_VALUE:
            return
        if op.name == "func.return":
            results = self._held("res_attrs", len(op.operands))
            for position, (value, (name, own)) in enumerate(zip(op.operands, results, strict=True)):
                node = Node("result", f"result {position}", op=op, returned_as=name)
                self._append(node, [], [value])
                self.marks.result(node, own)
            return
        if not onnx.is_onnx(op):
            raise UserError(f"{op.location}: '{op.name}' op is not an onnx op, run import only")
        node = Node("op", onnx.node_name(op) or op.name, *self._described(op), op)
        self._append(node, op.results, _read(op))
        self.marks.op(node, op)
        inputs = [self.graph.producer(v) for v in node.operands if v is not None]
        node.constant = not onnx.is_random(op) and all(producer.constant for producer in inputs)

    def _described(self, op: ir.Operation) -> tuple[OpInfo, Rule]:
        """Return the same objects for all ops that are equal."""
        info = describe(op, self.versions, self.infos)
        if info not in self.known:
            try:
                self.known[info] = info, rule_for(info)
            except MisfitError as error:
                raise UserError(f"node '{onnx.node_name(op)}': {error}") from None
        return self.known[info]

    def _append(
        self, node: Node, results: Sequence[ir.Value], operands: Sequence[ir.Value | None] = ()
    ) -> None:
        position = len(self.graph.nodes)
        self.graph.nodes.append(node)
        for operand, value in enumerate(operands):
            index = None if value is None else self.indices.get(value)
            node.operands.append(index)
            if index is not None:
                self.graph.values[index].uses.append((position, operand))
        for number, value in enumerate(results):
            self.indices[value] = len(self.graph.values)
            node.results.append(len(self.graph.values))
            self.graph.values.append(Value(position, number, self.infos[value.type]))


def _read(op: ir.Operation) -> list[ir.Value | None]:
    """Return what an op reads; what it only waits for may lie as it does."""
    return [op.operands[0], None] if onnx.is_barrier(op) else onnx.read_by(op)


def _classify_constants(graph: Graph) -> None:
    """Tie each parameter with one use to that use, and keep small shared constants whole."""
    constants = [node for node in graph.nodes if node.constant]
    weights = (node for node in graph.nodes if node.is_parameter or node.state == "parameter")
    limit = _WHOLE_BELOW * sum(_bytes(graph, node) for node in weights)
    for node in constants:
        uses = sum(len(graph.values[value].uses) for value in node.results)
        node.tied = node.is_parameter and uses == 1
        node.whole = uses > _FEW_USES and _bytes(graph, node) < limit


def _bytes(graph: Graph, node: Node) -> int:
    infos = [graph.values[value].info for value in node.results]
    return sum(info.memory_bytes for info in infos if info is not None)
