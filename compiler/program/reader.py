"""Reader of the searched graph from a module."""

from __future__ import annotations

from collections.abc import Sequence

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, Result, Value
from tensoropt.compiler.sharding.rule.describe import Descriptions
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.rule_reader import RuleReader
from tensoropt.compiler.support.errors import UserError
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.dialects.verifier import InvalidError

__all__ = ["is_node", "read_graph"]

_RETURN = "func.return"
_REFERENCES = (keys.FOLLOWS, keys.REPEATS, keys.GRADIENTS)


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
    """Builds the graph in one walk over the function.

    ``training/marks.py`` numbers the ops and arguments of a training step. Numbers are replaced by
    nodes when all nodes are read.
    """

    def __init__(self, module: ir.Module, function: ir.Operation) -> None:
        self.infos = Descriptions(onnx.opsets(module))
        self.function = function
        batches = keys.MICRO_BATCHES.get(function.attributes)
        self.graph = Graph([], [], module, micro_batches=batches or 1)
        self.indices: dict[ir.Value, int] = {}
        self.rules = RuleReader()
        self._numbers: dict[int, int] = {}
        self._marked: list[tuple[Node, ir.OpAttributeMap | ir.DictAttr]] = []

    def read(self) -> Graph:
        block = self.function.regions[0].blocks[0]
        arguments = self._read_names("arg_attrs", len(block.arguments))
        for argument, (name, own) in zip(block.arguments, arguments, strict=True):
            state = keys.STATE.get(own)
            node = Argument(name=name, constant=keys.PARAM.on(own), state=state)
            self._append(node, own, [argument])
        self._arguments = {name: index for index, (name, _) in enumerate(arguments)}
        for op in block:
            self._op(op.operation)
        for marked, attributes in self._marked:
            self._refer(marked, attributes)
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
                self._append(self._result(f"result {position}", name, own), own, [], [value])
            return
        if not onnx.is_onnx(op):
            raise UserError(f"{op.location}: '{op.name}' op is not an onnx op, run import only")
        info, rule = self._described(op)
        node = Op(
            name=onnx.node_name(op) or op.name,
            info=info,
            rule=rule,
            source=op,
            phase=onnx.phase(op),
            held=keys.GRADIENT_OF.on(op.attributes),
            passes=onnx.is_pass_through(op),
            norm=keys.NORM.on(op.attributes),
            awaits=self.indices.get(op.operands[1]) if onnx.is_barrier(op) else None,
        )
        self._append(node, op.attributes, op.results, _read(op))
        inputs = [self.graph.producer(v) for v in node.operands if v is not None]
        node.constant = not onnx.is_random(op) and all(producer.constant for producer in inputs)

    def _result(self, name: str, returned_as: str, attributes: ir.DictAttr) -> Result:
        ends = (keys.UPDATES.get(attributes), keys.CACHE.get(attributes))
        updates, cache = (None if end is None else self._arguments[end] for end in ends)
        return Result(name=name, returned_as=returned_as, updates=updates, takes_over=cache)

    def _described(self, op: ir.Operation) -> tuple[OpInfo, Rule]:
        """Return the info and the rule of an op: the same objects for equal ops."""
        info = self.infos.describe(op)
        try:
            return info, self.rules.read(op, info)
        except UserError as error:
            raise InvalidError(op, str(error)) from None

    def _append(
        self,
        node: Node,
        attributes: ir.OpAttributeMap | ir.DictAttr,
        results: Sequence[ir.Value],
        operands: Sequence[ir.Value | None] = (),
    ) -> None:
        position = len(self.graph.nodes)
        self.graph.nodes.append(node)
        if keys.ID.on(attributes):
            self._numbers[keys.ID.of(attributes)] = position
        if any(key.on(attributes) for key in _REFERENCES):
            self._marked.append((node, attributes))
        for operand, value in enumerate(operands):
            index = None if value is None else self.indices.get(value)
            node.operands.append(index)
            if index is not None:
                self.graph.values[index].uses.append((position, operand))
        for number, value in enumerate(results):
            self.indices[value] = len(self.graph.values)
            node.results.append(len(self.graph.values))
            self.graph.values.append(Value(position, number, self.infos.types[value.type]))

    def _refer(self, node: Node, attributes: ir.OpAttributeMap | ir.DictAttr) -> None:
        """Add the references of a node to other nodes, and to the gradients of values."""
        if keys.FOLLOWS.on(attributes):
            node.follows = self._numbers[keys.FOLLOWS.of(attributes)]
        if isinstance(node, Op) and keys.REPEATS.on(attributes):
            node.repeats = self._numbers[keys.REPEATS.of(attributes)]
        if isinstance(node, Op) and keys.GRADIENTS.on(attributes):
            fours = list(keys.GRADIENTS.of(attributes))
            values = [
                self.graph.nodes[self._numbers[number]].results[result]
                for number, result in zip(fours[::2], fours[1::2], strict=True)
            ]
            node.gradients = tuple(zip(values[::2], values[1::2], strict=True))


def _read(op: ir.Operation) -> list[ir.Value | None]:
    """Return the operands that an op reads; an operand that it only awaits may have any layout."""
    return [op.operands[0], None] if onnx.is_barrier(op) else [*onnx.read_by(op)]
