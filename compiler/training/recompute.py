"""Recomputation of activations: the backward pass reads clones of forward ops.

The forward graph is divided into blocks. Of a recomputed block, only values that other blocks read
are saved. When the gradient arrives at the block, the required ops are run again. A clone reads
saved values through ``tensoropt.Barrier(x, after)``, which returns x once the gradient ``after``
has been computed. This keeps clones from running early or being merged with their originals.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tensoropt.compiler.sharding.rule.describe import tensor_info
from tensoropt.compiler.training.marks import Marker, number_of
from tensoropt.compiler.training.segments import divide
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["CONTRACTIONS", "ForwardPass", "Recomputation"]

_SAVED = """
    MatMul Gemm Einsum Conv ConvTranspose ConvInteger MatMulInteger DeformConv
    Attention LSTM GRU RNN Gather GatherND com.microsoft.FusedMatMul com.microsoft.Attention
    com.microsoft.MoE com.microsoft.MultiHeadAttention com.microsoft.GroupQueryAttention
"""
CONTRACTIONS = frozenset(f"onnx.{name}" for name in _SAVED.split())
"""Ops with results that "light" saves: products and table lookups."""


@dataclass(frozen=True)
class ForwardPass:
    """The ops that depend on the batch, in order; ``place`` maps each value to its op's index."""

    ops: Sequence[ir.Operation]
    place: Mapping[ir.Value, int]

    @classmethod
    def from_block(cls, block: ir.Block, weights: Collection[ir.Value]) -> ForwardPass:
        """Return the forward ops that depend on more than ``weights`` and literals. Linear."""
        fixed, ops = set(weights), []
        for view in block:
            op = view.operation
            if onnx.is_random(op) or not fixed.issuperset(onnx.read_values(op)):
                ops.append(op)
            else:
                fixed.update(op.results)
        return cls(ops, {value: i for i, op in enumerate(ops) for value in op.results})

    def blocks(self) -> list[range]:
        """Divide the ops into blocks."""
        last = dict(self.place)
        for i, op in enumerate(self.ops):
            last.update((value, i) for value in onnx.read_values(op) if value in self.place)
        values = []
        for value, made in self.place.items():
            info = tensor_info(value.type)
            values.append((made, last[value], 0 if info is None else info.memory_bytes))
        # Ops of repeated layers are equal except for literals, such as seeds of dropout.
        kinds = [
            (op.name, tuple(v.type for v in op.operands), tuple(v.type for v in op.results))
            for op in self.ops
        ]
        return divide(kinds, values)


class Recomputation:
    """Supplies forward values to the backward pass, some of them recomputed.

    ``policy`` is one of RECOMPUTE, but not "none". The last block is never recomputed: the backward
    pass begins with it, while all its values are still live. Clones are built at the insertion
    point when they are first read.
    """

    def __init__(
        self,
        block: ir.Block,
        weights: Collection[ir.Value],
        marker: Marker,
        opset: int,
        policy: str,
    ) -> None:
        self.weights, self.marker, self.opset, self.policy = set(weights), marker, opset, policy
        self.forward = ForwardPass.from_block(block, weights)
        self.blocks = self.forward.blocks()
        self.block_of = [n for n, block in enumerate(self.blocks) for _ in block]
        self.crossing = set[ir.Value]()  # the values that another block reads
        for op, own in zip(self.forward.ops, self.block_of, strict=True):
            for value in onnx.read_values(op):
                made = self.forward.place.get(value)
                if made is not None and self.block_of[made] != own:
                    self.crossing.add(value)
        self.clones: dict[ir.Value, ir.Value] = {}
        self.barriers: dict[tuple[int, ir.Value], ir.Value] = {}
        self.after: dict[int, ir.Value | None] = {}
        self.arriving: ir.Value | None = None

    def arrive(self, gradient: ir.Value) -> None:
        """Record ``gradient`` as the point that the backward pass has reached."""
        self.arriving = gradient

    def read(self, value: ir.Value) -> ir.Value:
        """Return the value that the backward pass reads instead of ``value``: itself or a clone."""
        if self._saves(value):
            return value
        if value not in self.clones:
            number = self.block_of[self.forward.place[value]]
            self.after.setdefault(number, self.arriving)
            for op in self._needed(value):
                self._clone(op, number)
        return self.clones[value]

    def _saves(self, value: ir.Value) -> bool:
        place = self.forward.place.get(value)
        if place is None or value in self.crossing:
            return True
        op, number = self.forward.ops[place], self.block_of[place]
        if self.policy == "light" and op.name in CONTRACTIONS:
            return True
        every = 2 if self.policy == "half" else 1
        if number == len(self.blocks) - 1 or number % every:
            return True
        return onnx.is_random(op) or len(op.regions) > 0

    def _needed(self, value: ir.Value) -> list[ir.Operation]:
        """Return the ops to recompute for ``value``, in order."""
        found: set[int] = set()
        pending = [value]
        while pending:
            place = self.forward.place[pending.pop()]
            if place in found:
                continue
            found.add(place)
            operands = self.forward.ops[place].operands
            pending += [v for v in operands if not self._saves(v) and v not in self.clones]
        return [self.forward.ops[place] for place in sorted(found)]

    def _clone(self, op: ir.Operation, number: int) -> None:
        operands = [self._operand(value, op, number) for value in op.operands]
        attributes = {
            name: value for name, value in op.attributes.items() if name not in _OF_ORIGINAL
        }
        attributes |= {
            **keys.ID.item(self.marker.number()),
            **keys.PHASE.item("recompute"),
            **keys.FOLLOWS.item(leader_of(op)),
            **keys.REPEATS.item(number_of(op)),
        }
        name = self.marker.name(f"{onnx.node_name(op) or onnx.split_name(op.name)[1]}.again")
        made = ir.Operation.create(
            op.name,
            results=[value.type for value in op.results],
            operands=operands,
            attributes=attributes,
            loc=ir.Location.name(name),
        )
        self.clones.update(zip(op.results, made.results, strict=True))

    def _operand(self, value: ir.Value, reader: ir.Operation, number: int) -> ir.Value:
        """Return an operand of a clone: another clone, a weight, or a barrier of a saved value."""
        if value in self.clones and not self._saves(value):
            return self.clones[value]
        made = onnx.owner(value)
        fixed = value in self.weights if made is None else value not in self.forward.place
        if fixed or onnx.is_no_value(value):
            return value
        if (number, value) not in self.barriers:
            leader = leader_of(reader if made is None else made)
            make = self.marker.builder("barrier", self.opset, "recompute", leader)
            after = self.after[number]
            assert after is not None, "no gradient has arrived"
            self.barriers[number, value] = make.onnx(onnx.BARRIER, [value, after], value.type)
        return self.barriers[number, value]


_OF_ORIGINAL = {
    key.name for key in (keys.ID, keys.PHASE, keys.FOLLOWS, keys.REPEATS, keys.GRADIENTS)
}


def leader_of(op: ir.Operation) -> int:
    """Return the number of the op that decides the strategy of a marked op."""
    return keys.FOLLOWS.get(op.attributes, number_of(op))
