"""`recompute`: insert the clones of forward operations that the backward pass reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.program.graph import Argument, Graph, Node, Op
from tensoropt.compiler.program.reader import is_node, read_graph
from tensoropt.compiler.program.recompute import Recomputation
from tensoropt.compiler.support.choices import check_known
from tensoropt.compiler.training.alternatives import Alternative, keep_step
from tensoropt.compiler.training.spec import RECOMPUTE
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.passes.add_rules import AddRulesPass
from tensoropt.passes.base import Pass
from tensoropt.runtime.support.collectives import DOMAIN

__all__ = ["RecomputePass", "write_clones"]


@dataclass(frozen=True)
class RecomputePass(Pass):
    """Makes the backward pass of `@main` recompute forward values instead of saving them.

    `policy` selects the values: none; light, all except results of products; blocks, all inside
    repeated layers, or inside about sqrt(n) parts if nothing repeats; half, all inside every second
    block. With blocks, weights are cast to a narrower type again too, so that split weights are
    gathered again. The search does the same for the alternative that it picks.

    Refuses a module that is not a training step, and operations without rules.
    """

    name: ClassVar[str] = "recompute"
    summary: ClassVar[str] = "Insert the clones of forward operations that the backward pass reads."

    policy: str = "blocks"

    def run(self, module: ir.Module) -> None:
        check_known("recompute: unknown policy", self.policy, RECOMPUTE)
        if not keys.TRAINING.on(module.operation.attributes):
            text = "is no training step, expected build-training-step to be run first"
            raise self.fail(onnx.function(module), text)
        graph = Recomputation(read_graph(module)).derive(self.policy)
        keep_step(module, Alternative(self.policy, graph.micro_batches))
        write_clones(module, graph)


def write_clones(module: ir.Module, graph: Graph) -> None:
    """Insert the recomputed nodes of ``graph``, which was derived from `@main`, into `@main`.

    Linear in the operations.
    """
    if any(_is_clone(node) for node in graph.nodes):
        with module.context, ir.Location.unknown():
            onnx.require_domain(module, DOMAIN)
            _Writer(onnx.function(module), graph).run()
            AddRulesPass().run(module)  # of the barriers


def _is_clone(node: Node) -> bool:
    return isinstance(node, Op) and node.phase == "recompute"


class _Writer:
    """Inserts the recomputed nodes of a graph in one walk over a function."""

    def __init__(self, main: ir.Operation, graph: Graph) -> None:
        self.graph, self.block = graph, main.regions[0].blocks[0]
        self.values: dict[int, ir.Value] = {}
        self.ops: dict[int, ir.Operation] = {}
        arguments = onnx.carried(main, "arg_attrs")
        self.numbers = [keys.ID.of(own) for own in arguments]  # of each node
        own = (keys.ID.get(view.operation.attributes, -1) for view in self.block)
        self.next_number = 1 + max(*self.numbers, *own)

    def run(self) -> None:
        ops = (view.operation for view in self.block if is_node(view.operation))
        originals = iter([*ops, self.block.operations[len(self.block.operations) - 1].operation])
        pending = next(originals)
        for index, node in enumerate(self.graph.nodes):
            if isinstance(node, Argument):
                self.values[node.results[0]] = self.block.arguments[index]
            elif isinstance(node, Op):
                if _is_clone(node):
                    with ir.InsertionPoint(pending):
                        op = self._insert(node)
                else:
                    op, pending = pending, next(originals)
                    self._redirect(op, node)
                self.ops[index] = op
                self.numbers.append(keys.ID.of(op.attributes))
                self.values.update(zip(node.results, op.results, strict=True))

    def _redirect(self, op: ir.Operation, node: Op) -> None:
        """Make ``op`` read the clones that ``node`` reads."""
        for number, value in enumerate(node.operands[: len(op.operands)]):
            if value is not None and _is_clone(self.graph.producer(value)):
                op.operands[number] = self.values[value]

    def _insert(self, node: Op) -> ir.Operation:
        assert node.follows is not None
        marks = {
            **keys.ID.item(self.next_number),
            **keys.PHASE.item("recompute"),
            **keys.FOLLOWS.item(self.numbers[node.follows]),
        }
        self.next_number += 1
        if node.repeats is None:
            assert node.awaits is not None
            operands = [self.values[v] for v in (*node.operands[:1], node.awaits) if v is not None]
            return _create(f"onnx.{onnx.BARRIER}", operands, [operands[0].type], marks, node.name)
        original = self.ops[node.repeats]
        operands = [
            given if value is None else self.values[value]
            for given, value in zip(original.operands, node.operands, strict=True)
        ]
        kept = {name: own for name, own in original.attributes.items() if name not in _OF_ORIGINAL}
        marks |= {**kept, **keys.REPEATS.item(self.numbers[node.repeats])}
        kinds = [value.type for value in original.results]
        return _create(original.name, operands, kinds, marks, node.name)


def _create(
    name: str,
    operands: list[ir.Value],
    results: list[ir.Type],
    attributes: Mapping[str, ir.Attribute],
    node_name: str,
) -> ir.Operation:
    return ir.Operation.create(
        name,
        results=results,
        operands=operands,
        attributes=dict(attributes),
        loc=ir.Location.name(node_name),
    )


_OF_ORIGINAL = {
    key.name for key in (keys.ID, keys.PHASE, keys.FOLLOWS, keys.REPEATS, keys.GRADIENTS)
}
