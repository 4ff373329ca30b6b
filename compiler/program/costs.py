"""The options of the nodes of a graph on one mesh, and the time and memory of each option."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

from tensoropt.compiler.cost.compute import FREE, local_bytes, measured_operator
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.cost.fused_attention import attention_workspace_bytes, has_kernel
from tensoropt.compiler.cost.measurements import Context, context_of
from tensoropt.compiler.cost.nodes import apart_s, inner_steps, node_time_s
from tensoropt.compiler.layout.rule import InnerKind, Strategy
from tensoropt.compiler.program.classes import cost_classes, option_classes
from tensoropt.compiler.program.constants import whole_nodes
from tensoropt.compiler.program.fills import Fill, fills_of, is_folded, most_bytes
from tensoropt.compiler.program.graph import Graph, Node, Op
from tensoropt.compiler.program.options import node_options, stored
from tensoropt.compiler.program.pins import allowed
from tensoropt.compiler.program.program import variables
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.sharding.rule.op_info import TensorInfo
from tensoropt.dialects.onnx import ATTENTIONS
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["NodeCosts", "NodeMemo", "context", "tensor_bytes"]


def tensor_bytes(info: TensorInfo | None, layout: Layout, mesh: Mesh) -> int:
    """Return the bytes of one rank's part; 0 if the rank of the tensor is unknown."""
    return 0 if info is None else local_bytes(info, layout, mesh)


def context(graph: Graph, op: Op) -> Context:
    """Return the operators that make the operands: empty for an input or a constant."""
    made = (None if value is None else graph.producer(value) for value in op.operands)
    makers = (
        maker.info.name
        if isinstance(maker, Op) and not maker.constant and maker.info.name not in FREE
        else ""
        for maker in made
    )
    return context_of(op.info.name, makers)


class NodeMemo:
    """Options and paths on one mesh, computed once for all graphs that share it."""

    def __init__(self, mesh: Mesh, device: Device) -> None:
        self.resharder = Resharder(mesh, device)
        self.options: dict[object, tuple[Strategy, ...]] = {}


@dataclass(eq=False)
class NodeCosts:
    """The options and costs of the nodes of a graph on one mesh of one device description.

    Times are in seconds, memory in bytes, both on one device and for one run.
    """

    graph: Graph
    mesh: Mesh
    device: Device
    memo: NodeMemo | None = None

    pins_nodes: ClassVar[bool] = True
    """Whether the options of each node are those that its pins allow."""

    def __post_init__(self) -> None:
        memo = self.memo = self.memo or NodeMemo(self.mesh, self.device)
        self.resharder, self._options_known = memo.resharder, memo.options
        self.evaluator: object | None = None  # costs whole assignments; made on first use

    @cached_property
    def options(self) -> list[tuple[Strategy, ...]]:
        """Per node, the strategies that its pins allow; none for a private parameter.

        Raises PinsError if pins allow none.
        """
        known, found = self._options_known, []
        for index, kind in enumerate(option_classes(self.graph)):
            if kind not in known:
                known[kind] = self._allowed(index)
            found.append(known[kind])
        return found

    def _allowed(self, index: int) -> tuple[Strategy, ...]:
        node = self.graph.nodes[index]
        if not self.graph.storage.private.isdisjoint(node.results):
            return ()
        every = node_options(self.graph, node, self.mesh, whole=index in whole_nodes(self.graph))
        if isinstance(node, Op) and node.info.name in ATTENTIONS:
            gpus = self.mesh, self.device.architectures
            every = tuple(own for own in every if has_kernel(node.info, own, *gpus))
        conditions = self.graph.conditions.get(index, ()) if self.pins_nodes else ()
        if not conditions:
            return every
        cases = [(node.name, condition, every) for condition in conditions]
        return tuple(every[number] for number in allowed(cases, len(every), self.mesh))

    @cached_property
    def variables(self) -> list[int]:
        """The nodes with a choice, in program order."""
        return variables(self.graph)

    @cached_property
    def alike(self) -> list[int]:
        """Per node, the first node with the same options at the same costs."""
        first: dict[object, int] = {}
        pairs = zip(self.graph.nodes, cost_classes(self.graph), strict=True)
        return [
            first.setdefault((own, self.is_fused(node)), index)
            for index, (node, own) in enumerate(pairs)
        ]

    def op_time_s(self, node: Node, strategy: Strategy) -> float:
        """Return the time of an op under ``strategy``.

        Ops that are folded at load or fused into another op take no time. Caches are updated in
        place; see `apart_s`.
        """
        if node.constant or not isinstance(node, Op) or self.is_fused(node):
            return 0.0
        return node_time_s(node.info, node.rule, strategy, self.mesh, self.device)

    def apart_s(self, node: Node, strategy: Strategy) -> list[tuple[int, float]]:
        """Return the operands that an op updates in place, with the extra seconds of a reshard.

        After a reshard of the operand, the result of the op is a tensor of its own.
        """
        if not isinstance(node, Op) or not node.info.in_place or self.is_fused(node):
            return []
        return apart_s(node.info, node.rule, strategy, self.mesh, self.device)

    def is_fused(self, node: Node) -> bool:
        """Return whether ``node`` was measured as fused into another op, after its producers."""
        return node in self._fused

    @cached_property
    def _fused(self) -> frozenset[Node]:
        nodes = self.graph.nodes if self.device.operators else ()
        return frozenset(node for node in nodes if self._was_fused(node))

    def _was_fused(self, node: Node) -> bool:
        if not isinstance(node, Op):
            return False
        known = measured_operator(node.info, self.device)
        return known is not None and context(self.graph, node) in known.fused

    def inner_time_s(self, node: Node, strategy: Strategy) -> float:
        """Return the time of the collectives inside the op of one rank, and of copies for them."""
        return sum(time_s for *_, time_s in self.inner_steps(node, strategy))

    def inner_steps(
        self, node: Node, strategy: Strategy
    ) -> list[tuple[InnerKind, tuple[int, ...], int, float]]:
        """Return (kind, mesh axes, bytes put in per rank, time in seconds) of each inner step."""
        if node.constant or not isinstance(node, Op):
            return []
        folded = partial(is_folded, self.graph, node)
        return inner_steps(node.info, node.rule, strategy, self.mesh, self.device, folded)

    def static_bytes(self, node: Node, strategy: Strategy) -> int:
        """Return the bytes that ``node`` keeps: its parameters, or its result if constant or state.

        ONNX Runtime frees the parameters of a node that it folds.
        """
        total = sum(
            tensor_bytes(self.graph.values[value].info, layout, self.mesh)
            for value, layout in zip(node.results, strategy.results, strict=True)
            if value in self.graph.storage.static
        )
        for operand, info in () if node.constant else self.graph.private_operands(node):
            total += tensor_bytes(info, stored(strategy.operands[operand]), self.mesh)
        return total

    def inner_bytes(self, node: Node, strategy: Strategy) -> int:
        """Return the bytes of bodies, inner steps and kernels, besides operands and results."""
        if node.constant or not isinstance(node, Op):
            return 0
        kernel = node.info, strategy, self.mesh, self.device.architectures
        inner = node.info.inner_bytes + node.rule.inner_bytes(strategy, self.mesh)
        return inner + attention_workspace_bytes(*kernel)

    def transient_bytes(
        self, node: Node, strategy: Strategy, but: Container[int] = frozenset()
    ) -> int:
        """Return the bytes that ``node`` reads and writes, with its bodies and fills.

        Parameters, caches that are updated in place and values in ``but`` are left out.
        """
        if node.constant or (isinstance(node, Op) and node.is_alias):
            return 0
        staying, next_caches = self.graph.storage.staying, self.graph.storage.next_caches
        read = {
            operand: (value, strategy.operands[operand])
            for operand, value in enumerate(node.operands)
            if not (value is None or value in but or value in staying or value in next_caches)
        }
        made = self.inner_bytes(node, strategy)
        for value, layout in zip(node.results, strategy.results, strict=True):
            if not (value in but or value in staying or value in next_caches):
                made += tensor_bytes(self.graph.values[value].info, layout, self.mesh)
        infos = {v: self.graph.values[v].info for v, _ in read.values()}
        if fills := self.fills(node, strategy):
            held = {o: (x, tensor_bytes(infos[x[0]], x[1], self.mesh)) for o, x in read.items()}
            return most_bytes(held, fills, made)
        return made + sum(tensor_bytes(infos[v], x, self.mesh) for v, x in {*read.values()})

    def fills(self, node: Node, strategy: Strategy) -> list[Fill]:
        """Return the fills of padding of operands before ``node`` runs."""
        return fills_of(self.graph, node, strategy, self.mesh)
