"""Recomputation of activations: graphs of a step in which the backward pass reads clones.

The forward graph is divided into blocks. Of a recomputed block, only values that other blocks read
are saved. When the gradient arrives at the block, the required ops are run again. A clone reads
saved values through ``tensoropt.Barrier(x, after)``, which returns x once the gradient ``after``
has been computed. This keeps clones from running early or being merged with their originals.

By "blocks", copies of weights in a narrower type are cast again, too. So a rank that has a part of
a weight gathers it again for the backward pass, and has the whole of it for one layer at a time.

The step is built and read once; the graph of each policy is derived from it, and the clones of the
chosen policy are written into the IR after the search (``passes/recompute.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.program.constants import weight_ops
from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, Value
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.support.identity import Same
from tensoropt.compiler.support.names import free_name
from tensoropt.compiler.training.segments import divide
from tensoropt.dialects import onnx

__all__ = ["Recomputation"]

_SAVED = """
    MatMul Gemm Einsum Conv ConvTranspose ConvInteger MatMulInteger DeformConv
    Attention LSTM GRU RNN Gather GatherND com.microsoft.FusedMatMul com.microsoft.Attention
    com.microsoft.MoE com.microsoft.MultiHeadAttention com.microsoft.GroupQueryAttention
    tensoropt.Attention
"""
_CONTRACTIONS = frozenset(_SAVED.split())
"""Ops with results that "light" saves: products and table lookups."""


class Recomputation:
    """Derives the graphs of all recompute policies from ``graph``, the step without clones."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ops = _forward_ops(graph)
        self.place = {
            value: place for place, op in enumerate(self.ops) for value in graph.nodes[op].results
        }
        blocks = self._blocks()
        self.block_of = [number for number, block in enumerate(blocks) for _ in block]
        self.last_block = len(blocks) - 1
        self.barriers: dict[OpInfo, tuple[OpInfo, Rule]] = {}  # shared by equal ops

    def _blocks(self) -> list[range]:
        """Divide the forward ops into blocks of few crossing bytes."""
        nodes, values = self.graph.nodes, self.graph.values
        last = dict(self.place)
        for place, op in enumerate(self.ops):
            last.update((v, place) for v in nodes[op].operands if v in self.place)
        lives = []
        for value, place in self.place.items():
            info = values[value].info
            lives.append((place, last[value], 0 if info is None else info.memory_bytes))

        # Ops of repeated layers are equal except for literals, such as seeds of dropout.
        kinds = []
        for op in self.ops:
            touched = (*nodes[op].operands, *nodes[op].results)
            infos = tuple(v if v is None else Same(values[v].info) for v in touched)
            kinds.append((self.graph.op(op).info.name, infos))
        return divide(kinds, lives)

    @cached_property
    def narrowed(self) -> dict[int, int]:
        """The copies of weights in a narrower type, with the block that reads each first."""
        values, places = self.graph.values, {op: place for place, op in enumerate(self.ops)}
        found = {}
        for index in weight_ops(self.graph):
            node = self.graph.op(index)
            read = [
                places[reader] for reader, _ in values[node.results[0]].uses if reader in places
            ]
            if node.info.name == "Cast" and read and _is_narrower(node.info):
                found[node.results[0]] = self.block_of[min(read)]
        return found

    def block(self, value: int) -> int:
        """Return the block that computes ``value``, or reads this copy of a weight first."""
        return self.narrowed[value] if value in self.narrowed else self.block_of[self.place[value]]

    @cached_property
    def crossing(self) -> set[int | None]:
        """The forward values that another block reads."""
        found = set[int | None]()
        for op, block in zip(self.ops, self.block_of, strict=True):
            for value in self.graph.nodes[op].operands:
                if value in self.place and self.block_of[self.place[value]] != block:
                    found.add(value)
        return found

    def derive(self, policy: str) -> Graph:
        """Return the graph in which the backward pass recomputes by ``policy``.

        ``policy`` is one of RECOMPUTE; the last block is never recomputed: the backward pass begins
        with it, while all its values are still live. Without anything to recompute, the graph is
        ``graph``. Linear in the operands.
        """
        if policy == "none":
            return self.graph
        derivation = _Derivation(self, policy)
        derivation.run()
        return derivation.graph() if derivation.clones else self.graph

    def saves(self, value: int, policy: str) -> bool:
        """Return whether the backward pass reads ``value`` itself, and not a clone."""
        if value in self.narrowed:
            return policy != "blocks" or self.narrowed[value] == self.last_block
        place = self.place.get(value)
        if place is None or value in self.crossing:
            return True
        op, block = self.graph.op(self.ops[place]), self.block_of[place]
        if policy == "light" and op.info.name in _CONTRACTIONS:
            return True
        every = 2 if policy == "half" else 1
        if block == self.last_block or block % every:
            return True
        return op.is_random or len(op.info.bodies) > 0


def _forward_ops(graph: Graph) -> list[int]:
    """Return the forward ops that depend on more than weights and literals, in order."""
    fixed = {*weight_ops(graph)}
    return [
        index
        for index, node in enumerate(graph.nodes)
        if isinstance(node, Op) and node.is_forward and index not in fixed
    ]


def _is_narrower(info: OpInfo) -> bool:
    """Return whether the result of an op has smaller elements than its operand."""
    operand, result = info.operands[0], info.results[0]
    return operand is not None and result is not None and result.item_bytes < operand.item_bytes


class _Derivation:
    """Derivation of the graph of one policy.

    Until the end, new nodes and values have numbers after the nodes and values of the step.
    """

    def __init__(self, plan: Recomputation, policy: str) -> None:
        self.plan, self.policy, self.step = plan, policy, plan.graph
        self.nodes = [*self.step.nodes]
        self.operands: dict[int, list[int | None]] = {}  # of backward ops, with clones
        self.values = [*self.step.values]
        self.order: list[int] = []  # the nodes in the order of the program
        self.clones: dict[int, int] = {}  # value -> its clone
        self.barriers: dict[tuple[int, int], int] = {}  # (block, value) -> its barrier
        self.after: dict[int, int] = {}  # block -> the gradient that arrived at it
        self.arrived: int | None = None
        ops = (node for node in self.nodes if isinstance(node, Op))
        self.gradients = {after for op in ops for _, after in op.gradients}
        self.names = {node.name for node in self.nodes}

    def run(self) -> None:
        """Walk the step, and clone forward ops before the first backward op that reads them."""
        for index, node in enumerate(self.step.nodes):
            if isinstance(node, Op) and node.phase == "backward":
                operands = [None if v is None else self._read(v) for v in node.operands]
                self.operands[index] = operands
            self.order.append(index)
            if not node.constant:
                self.arrived = next((v for v in node.results if v in self.gradients), self.arrived)

    def _read(self, value: int) -> int:
        """Return the value that the backward pass reads instead of ``value``: itself or a clone."""
        if self.plan.saves(value, self.policy):
            return value
        if value not in self.clones:
            block = self.plan.block(value)
            if self.arrived is not None:
                self.after.setdefault(block, self.arrived)
            if block not in self.after:
                return value
            for op in self._needed(value):
                self._clone(op, block)
        return self.clones[value]

    def _needed(self, value: int) -> list[int]:
        """Return the ops to recompute for ``value``, in order."""
        found: set[int] = set()
        pending = [value]
        while pending:
            op = self.step.values[pending.pop()].producer
            if op not in found:
                found.add(op)
                pending += [
                    operand
                    for operand in self.step.nodes[op].operands
                    if operand is not None
                    and operand not in self.clones
                    and not self.plan.saves(operand, self.policy)
                ]
        return sorted(found)

    def _clone(self, index: int, block: int) -> None:
        op = self.step.op(index)
        clone = Op(
            name=free_name(f"{op.name}.again", self.names),
            operands=[None if v is None else self._operand(v, index, block) for v in op.operands],
            follows=self._leader(index),
            info=op.info,
            rule=op.rule,
            source=op.source,
            repeats=index,
        )
        self._append(clone, [self.step.values[v].info for v in op.results])
        self.clones.update(zip(op.results, clone.results, strict=True))

    def _operand(self, value: int, reader: int, block: int) -> int:
        """Return an operand of a clone: another clone, a weight, or a barrier of a saved value."""
        if not self.plan.saves(value, self.policy):
            return self.clones[value]
        producer = self.step.values[value].producer
        node = self.step.nodes[producer]
        is_fed = isinstance(node, Argument) and node.is_fed
        is_narrowed = self.step.op(reader).results[0] in self.plan.narrowed
        if not is_fed and not is_narrowed and value not in self.plan.place:
            return value
        if (block, value) not in self.barriers:
            barrier = self._barrier(value, self.after[block])
            barrier.follows = self._leader(reader if is_fed or is_narrowed else producer)
            self._append(barrier, [self.step.values[value].info])
            self.barriers[block, value] = barrier.results[0]
        return self.barriers[block, value]

    def _barrier(self, value: int, after: int) -> Op:
        info, other = self.values[value].info, self.values[after].info
        near = self.values[value if value in self.plan.place else after].producer
        own = OpInfo(
            onnx.BARRIER,
            1,
            (info, other),
            (info,),
            literals=(None, None),
            unranked=info is None or other is None,
            standard_version=self.step.op(near).info.standard_version,
        )
        if own not in self.plan.barriers:
            self.plan.barriers[own] = own, rule_for(own)
        own, rule = self.plan.barriers[own]
        return Op(
            name=free_name("barrier", self.names),
            operands=[value, None],
            info=own,
            rule=rule,
            awaits=after,
        )

    def _append(self, node: Op, infos: Sequence[TensorInfo | None]) -> None:
        """Append a recomputed node before the next node of the step."""
        node.phase, number = "recompute", len(self.nodes)
        self.nodes.append(node)
        self.order.append(number)
        for index, info in enumerate(infos):
            node.results.append(len(self.values))
            self.values.append(Value(number, index, info))

    def _leader(self, index: int) -> int:
        follows = self.step.nodes[index].follows
        return index if follows is None else follows

    def graph(self) -> Graph:
        """Return the graph with nodes and values numbered in program order."""
        node_of = {old: new for new, old in enumerate(self.order)}
        in_order = [value for old in self.order for value in self.nodes[old].results]
        value_of = {old: new for new, old in enumerate(in_order)}

        def numbered(old: int) -> Node:
            own = self.nodes[old]
            node = type(own)(**vars(own))  # faster than copy, and much faster than replace
            operands = self.operands.get(old, node.operands)
            node.operands = [None if v is None else value_of[v] for v in operands]
            node.results = [value_of[v] for v in node.results]
            node.follows = None if node.follows is None else node_of[node.follows]
            if isinstance(node, Op):
                node.repeats = None if node.repeats is None else node_of[node.repeats]
                node.awaits = None if node.awaits is None else value_of[node.awaits]
                node.gradients = tuple((value_of[a], value_of[b]) for a, b in node.gradients)
            return node  # results refer to arguments, which keep their numbers

        nodes = list(map(numbered, self.order))
        old_values = (self.values[old] for old in in_order)
        values = [Value(node_of[value.producer], value.index, value.info) for value in old_values]
        for index, node in enumerate(nodes):
            for place, operand in enumerate(node.operands):
                if operand is not None:
                    values[operand].uses.append((index, place))
        return replace(self.step, nodes=nodes, values=values)
