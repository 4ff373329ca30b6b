"""Annotation of a rank's operations with the times that the search charged for the model's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from tensoropt.compiler.cost.compute import FREE, measured_operator
from tensoropt.compiler.cost.measurements import context_of
from tensoropt.compiler.cost.nodes import inner_steps, node_time_s
from tensoropt.compiler.layout.rule import Rule, Strategy
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.reshard.steps import ReshardStep
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import RESHARD
from tensoropt.dialects.topt.keys import TAKES
from tensoropt.runtime.support.collectives import BY_IR_NAME

__all__ = ["NodeTimes"]


class NodeTimes:
    """Writes `topt.takes`, the times that scheduling collectives needs; a no-op without overlap.

    One operation of the model may become several on a rank, of other kinds and with collectives
    between them. The search models it as one operation that computes and then communicates.
    """

    def __init__(self, function: ir.Operation, resharder: Resharder) -> None:
        self.resharder = resharder
        self.mesh, self.device = resharder.mesh, resharder.device
        self.count = 0
        self.folded = onnx.folded_values(function) if self.device.overlaps else set[ir.Value]()

    def note(
        self,
        op: ir.Operation,
        chosen: tuple[OpInfo, Rule, Strategy],
        results: Sequence[ir.Value],
        operands: Iterable[ir.Value],
    ) -> None:
        """Assign the time of ``op`` to the operations that make ``results`` from ``operands``."""
        if not self.device.overlaps:
            return
        read = zip(op.results, results, strict=True)
        used = [made for own, made in read if next(iter(own.uses), None) is not None]
        self._note(_parts(used, operands), self._compute_s(op, *chosen), self._sent_s(op, *chosen))

    def note_fills(self, read: Iterable[ir.Value], filled: Iterable[ir.Value]) -> None:
        """Assign no time to the operations that make each of ``filled`` from ``read``.

        Each is a node of its own: the search counts filling as a step before the operation.
        """
        if not self.device.overlaps:
            return
        for source, made in zip(read, filled, strict=True):
            if made != source:
                self._note(_parts([made], [source]), 0.0, 0.0)

    def note_step(self, step: ReshardStep, values: Sequence[ir.Value], info: TensorInfo) -> None:
        """Assign the time of each move of ``step`` to the operations that make its value.

        ``values`` are the input and the results of the moves in order. Collectives are left out, as
        they are timed by themselves.
        """
        if not self.device.overlaps:
            return
        path = self.resharder.path(info.sizes, info.item_bytes, step.src, step.dst)
        alone = replace(path, steps=(step,))
        moves = self.resharder.moves(info.sizes, info.item_bytes, alone)
        for move, (source, made) in zip(moves, pairwise(values), strict=True):
            parts = list(_parts([made], [source]))
            if any(part.name in BY_IR_NAME for part in parts):
                continue
            self._note(parts, move.time_s, 0.0)

    def _note(self, parts: Iterable[ir.Operation], compute_s: float, sent_s: float) -> None:
        takes = {"node": self.count, "compute_s": compute_s, "sent_s": sent_s}
        for part in parts:
            TAKES.set(part.attributes, takes)
        self.count += 1

    def _compute_s(self, op: ir.Operation, info: OpInfo, rule: Rule, strategy: Strategy) -> float:
        known = measured_operator(info, self.device)
        if known is not None:
            # The operators that make the operands in the graph of the search.
            context = context_of(info.name, map(self._maker, op.operands))
            if context in known.fused:
                return 0.0
        return node_time_s(info, rule, strategy, self.mesh, self.device)

    def _sent_s(self, op: ir.Operation, info: OpInfo, rule: Rule, strategy: Strategy) -> float:
        def is_folded(operand: int) -> bool:
            return op.operands[operand] in self.folded

        inner = inner_steps(info, rule, strategy, self.mesh, self.device, is_folded)
        return sum((time_s for *_, time_s in inner), 0.0)

    def _maker(self, value: ir.Value) -> str:
        maker = onnx.owner(value)
        if maker is not None and maker.name == RESHARD:
            return self._maker(maker.operands[0])
        if maker is None or value in self.folded:
            return ""
        name = maker.name.removeprefix("onnx.")
        return "" if name in FREE else name


def _parts(results: Iterable[ir.Value], operands: Iterable[ir.Value]) -> Iterator[ir.Operation]:
    """Yield the operations that compute ``results`` from ``operands``."""
    seen, left = set(operands), list(results)
    while left:
        value = left.pop()
        maker = None if value in seen else onnx.owner(value)
        if maker is not None:
            if maker.name != onnx.CONSTANT:
                yield maker
            seen.update(maker.results)
            left.extend(maker.operands)
