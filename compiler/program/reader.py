"""Reader of the searched graph from a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.program.graph import Graph, Node, Value
from tensoropt.compiler.program.marks import Marks
from tensoropt.compiler.sharding.rule.describe import Descriptions
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.rule_reader import RuleReader
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.dialects.verifier import InvalidError

__all__ = ["classify_constants", "is_node", "read_graph"]

# A constant of many uses and below this part of all parameter bytes is not worth a variable. It
# would couple all its uses (the angles of rotary embeddings couple every layer) to save next to
# nothing. Few uses cost the search nothing: an embedding tied to the output is worth its gigabyte.
_WHOLE_BELOW = 0.01
_FEW_USES = 2
_RETURN = "func.return"


def read_graph(module: ir.Module, main: ir.Operation | None = None) -> Graph:
    """Return the graph of a function, ``@main`` by default; linear in the number of operands.

    Raises:
        UserError: an operation is not of the ``onnx`` namespace, or has no rule.
    """
    return _Reader(module, main or onnx.function(module)).read()


def is_node(op: ir.Operation) -> bool:
    """Return whether an op of the function has a node in the graph; nodes keep the order of ops."""
    return op.name not in (onnx.NO_VALUE, _RETURN)


class _Reader:
    """Builds the graph in one walk over the function."""

    def __init__(self, module: ir.Module, function: ir.Operation) -> None:
        self.infos = Descriptions(onnx.opsets(module))
        self.function = function
        batches = keys.MICRO_BATCHES.get(function.attributes)
        self.graph = Graph([], [], module, micro_batches=batches or 1)
        self.indices: dict[ir.Value, int] = {}
        self.marks = Marks(self.graph)
        self.rules = RuleReader()

    def read(self) -> Graph:
        block = self.function.regions[0].blocks[0]
        arguments = self._read_names("arg_attrs", len(block.arguments))
        for argument, (name, attributes) in zip(block.arguments, arguments, strict=True):
            node = Node("argument", name, constant=keys.PARAM.on(attributes))
            self._append(node, [argument])
            self.marks.argument(node, attributes)
        for op in block:
            self._op(op.operation)
        self.marks.resolve()
        classify_constants(self.graph)
        return self.graph

    def _read_names(self, key: str, count: int) -> list[tuple[str, ir.DictAttr]]:
        """Return the name and the attributes of each argument or result."""
        attributes = onnx.carried(self.function, key)
        if len(attributes) != count or any(not keys.NAME.on(own) for own in attributes):
            side = "argument" if key == "arg_attrs" else "result"
            raise UserError(f"function @main: expected topt.name on every {side}, run import first")
        return [(keys.NAME.of(own), own) for own in attributes]

    def _op(self, op: ir.Operation) -> None:
        if op.name == onnx.NO_VALUE:
            return
        if op.name == _RETURN:
            results = self._read_names("res_attrs", len(op.operands))
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
        node.awaits = self.indices.get(op.operands[1]) if onnx.is_barrier(op) else None
        inputs = [self.graph.producer(v) for v in node.operands if v is not None]
        node.constant = not onnx.is_random(op) and all(producer.constant for producer in inputs)

    def _described(self, op: ir.Operation) -> tuple[OpInfo, Rule]:
        """Return the info and the rule of an op: the same objects for equal ops."""
        info = self.infos.describe(op)
        try:
            return info, self.rules.read(op, info)
        except UserError as error:
            raise InvalidError(op, str(error)) from None

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
            self.graph.values.append(Value(position, number, self.infos.types[value.type]))


def _read(op: ir.Operation) -> list[ir.Value | None]:
    """Return the operands that an op reads; an operand that it only awaits may have any layout."""
    return [op.operands[0], None] if onnx.is_barrier(op) else [*onnx.read_by(op)]


def classify_constants(graph: Graph) -> None:
    """Tie each parameter with one use to that use, and keep small shared constants whole.

    So are small values that a training step computes from parameters alone, such as the angles of
    trained rotary embeddings, and the sums of their gradients.
    """
    constants = [node for node in graph.nodes if node.constant]
    weights = (node for node in graph.nodes if node.is_parameter or node.state == "parameter")
    limit = _WHOLE_BELOW * sum(_bytes(graph, node) for node in weights)
    for node in constants:
        uses = sum(len(graph.values[value].uses) for value in node.results)
        node.private = node.is_parameter and uses == 1
        node.whole = uses > _FEW_USES and _bytes(graph, node) < limit
    for node in (graph.nodes[index] for index in graph.weight_ops):
        if node.constant:
            continue
        readers = (graph.nodes[n] for v in node.results for n, _ in graph.values[v].uses)
        uses = sum(reader.phase == "forward" for reader in readers)
        node.whole = uses > _FEW_USES and _bytes(graph, node) < limit
        if node.whole:
            for summing in _sums(graph, [gradient for _, gradient in node.gradients]):
                summing.whole = True


def _sums(graph: Graph, gradients: Sequence[int]) -> Iterator[Node]:
    """Yield the nodes that add up ``gradients``, and the inner sums that these read."""
    for gradient in gradients:
        node = graph.producer(gradient)
        if node.follows is None and node.info is not None and node.info.name == "Sum":
            yield node
            yield from _sums(graph, [value for value in node.operands if value is not None])


def _bytes(graph: Graph, node: Node) -> int:
    infos = [graph.values[value].info for value in node.results]
    return sum(info.memory_bytes for info in infos if info is not None)
