"""What comes and goes on a rank while ONNX Runtime runs an assignment, in its arena.

Beside the tensors of the program these are copies of images: convolutions and what follows them
have images in blocks of channels (NCHWc), which all else has not, collectives among them. A copy
is made right before what reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tensoropt.compiler.cost.arena import Life
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.search.problem.evaluate import Evaluator, Record
from tensoropt.compiler.search.problem.graph import Graph, Node

__all__ = ["lives_of"]

_BLOCKS = frozenset({"Conv", "MaxPool", "AveragePool"})
"""Operators that read images in blocks, whatever made them, and give such."""

_FUSED = frozenset({"BatchNormalization", "Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu"})
"""Operators that become part of what made their operand, where that is in blocks."""

_KEEP = _FUSED | {"Add", "Sum", "Concat", "GlobalAveragePool", "GlobalMaxPool"}
"""Operators that read images in blocks where all of theirs are so already."""

_SUMS = frozenset({"Add", "Sum"})
"""Operators that become part of a convolution before them."""

_FOLDED = frozenset({"Conv", "BatchNormalization"})
"""Makers that sums become part of."""

_ALIASES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
"""Operators whose result is their operand."""

_LEAST_CHANNELS = 8
"""Images with fewer, such as of three colours, are read as they are."""

_STEP = 4
"""Moments here for one of the record: a copy is made between two of those."""


@dataclass
class _Tensor:
    """A value in a layout: its life, whether it is in blocks, and when it is read in blocks or
    not."""

    first: int
    last: int
    size: int
    is_image: bool
    blocked: bool = False
    maker: str = ""
    in_blocks: list[int] = field(default_factory=list)
    as_it_is: list[int] = field(default_factory=list)

    def lives(self) -> Iterator[Life]:
        """Yield its own life and that of its copy, if it has one."""
        own, other = self.as_it_is, self.in_blocks
        if self.blocked:
            own, other = other, own
        if not other:
            yield Life(_STEP * self.first, _STEP * self.last, self.size)
            return
        copied = _STEP * min(other) - 1
        yield Life(_STEP * self.first, max([copied, *(_STEP * at for at in own)]), self.size)
        yield Life(copied, _STEP * max(other), self.size)


class _Walk:
    """Goes over a record and keeps what it finds in ``tensors``, by value and layout."""

    def __init__(
        self, evaluator: Evaluator, strategies: Mapping[int, Strategy], record: Record
    ) -> None:
        self._graph, self._number = evaluator.graph, evaluator.number
        self._variables, self._strategies = evaluator.tables.variables, strategies
        self.tensors: dict[tuple[int, int], _Tensor] = {}
        self.rest: list[Life] = []
        outside = _outside(self._graph)
        for value, layout, first, last, size in record.lives.tolist():
            if value < 0 or layout < 0:
                self.rest.append(Life(_STEP * first, _STEP * last, size))
            elif value not in outside:
                image = _is_image(self._graph, value)
                self.tensors[value, layout] = _Tensor(first, last, size, image)

    def event(self, position: int, value: int, source: int, moment: int) -> None:
        """Take one event: a move of a value, or a node."""
        if value >= 0:
            if (value, source) in self.tensors:
                self.tensors[value, source].as_it_is.append(moment)
            return
        index = self._variables[position]
        node = self._graph.nodes[index]
        if node.kind == "op" and not node.constant:
            self._run(node, self._strategies[index], moment)

    def _run(self, node: Node, strategy: Strategy, moment: int) -> None:
        read = self._found(node.operands, strategy.operands)
        made = self._found(node.results, strategy.results)
        blocked = _reads_blocks(_operator(node), read)
        for tensor in read:
            (tensor.in_blocks if blocked and tensor.is_image else tensor.as_it_is).append(moment)
        for tensor in made:
            tensor.blocked = blocked and tensor.is_image
        fused = next((one for one in read if one.last == moment and self._joins(node, one)), None)
        if fused is not None and made:  # from the beginning it is what is made of it
            made[0].first, fused.size = min(made[0].first, fused.first), 0
        for tensor in made:
            tensor.maker = _operator(node)

    def _joins(self, node: Node, operand: _Tensor) -> bool:
        """Say whether a node becomes part of what made its operand, which ends here."""
        name = _operator(node)
        if name in _ALIASES:
            return True
        if operand.blocked:
            return name in _FUSED or (name in _SUMS and operand.maker in _FOLDED)
        return name == "Add" and operand.maker == "MatMul" and self._has_weight(node)

    def _has_weight(self, node: Node) -> bool:
        return any(v is not None and self._graph.is_weight(v) for v in node.operands)

    def _found(self, values: list[int | None] | list[int], layouts: object) -> list[_Tensor]:
        pairs = zip(values, layouts, strict=False)  # type: ignore[call-overload]
        places = [(value, self._number(layout)) for value, layout in pairs if value is not None]
        return [self.tensors[place] for place in dict.fromkeys(places) if place in self.tensors]


def lives_of(
    evaluator: Evaluator, strategies: Mapping[int, Strategy], record: Record
) -> list[Life]:
    """Return the lives of a record of these strategies, with the copies, without outputs, which lie
    outside of the arena. Linear in the record."""
    walk = _Walk(evaluator, strategies, record)
    for position, value, source, _, moment in record.events.tolist():
        walk.event(position, value, source, moment)
    return walk.rest + [life for tensor in walk.tensors.values() for life in tensor.lives()]


def _reads_blocks(operator: str, read: list[_Tensor]) -> bool:
    images = [tensor for tensor in read if tensor.is_image]
    if operator in _BLOCKS:
        return True
    return operator in _KEEP and bool(images) and all(tensor.blocked for tensor in images)


def _outside(graph: Graph) -> set[int | None]:
    """Return inputs and outputs, but of training steps."""
    if graph.trains:
        return set()
    ends = {node.operands[0] for node in graph.nodes if node.kind == "result"}
    return ends | {v for node in graph.nodes if node.kind == "argument" for v in node.results}


def _is_image(graph: Graph, value: int) -> bool:
    info = graph.values[value].info
    if info is None or len(info.sizes) != 4:
        return False
    channels = info.sizes[1]
    return not isinstance(channels, int) or channels >= _LEAST_CHANNELS


def _operator(node: Node) -> str:
    assert node.op is not None
    return str(node.op.name).removeprefix("onnx.")
