"""What the search charged for the operations of a model, on those that a rank runs instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensoropt.compiler.cost.compute import FREE, measured
from tensoropt.compiler.cost.measured import context_of
from tensoropt.compiler.cost.nodes import inner_steps, node_time_s
from tensoropt.compiler.layout.rule import Rule, Strategy
from tensoropt.compiler.reshard.resharder import Resharder
from tensoropt.compiler.reshard.steps import ReshardStep
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.dialects import onnx
from tensoropt.dialects.collectives import STARTED
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import COLLECTIVE_PERMUTE, RESHARD
from tensoropt.dialects.topt.keys import TAKES

__all__ = ["NodeTimes"]


class NodeTimes:
    """Writes `topt.takes` for what runs beside operators; nothing where nothing can.

    One operation of the model may be several on a rank, of other kinds, with collectives between
    them. The search knows it as one, which computes and then sends.
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
        """Let what makes ``results`` from ``operands`` take as long as ``op`` with its strategy."""
        if not self.device.overlaps:
            return
        read = zip(op.results, results, strict=True)
        used = [made for own, made in read if next(iter(own.uses), None) is not None]
        self._note(_parts(used, operands), self._compute_s(op, *chosen), self._sent_s(*chosen))

    def note_step(
        self, step: ReshardStep, made: ir.Value, source: ir.Value, info: TensorInfo
    ) -> None:
        """Let what makes a tensor from another layout take the time of that step; collectives have
        their own, and padding and cropping beside them none."""
        if not self.device.overlaps:
            return
        parts = list(_parts([made], [source]))
        if any(part.name in STARTED or part.name == COLLECTIVE_PERMUTE for part in parts):
            for part in parts:
                if onnx.is_onnx(part):
                    self._note([part], 0.0, 0.0)
            return
        path = self.resharder.path(info.sizes, info.item_bytes, step.src, step.dst)
        self._note(parts, path.time_s, 0.0)

    def _note(self, parts: Iterable[ir.Operation], compute_s: float, sent_s: float) -> None:
        takes = {"node": self.count, "compute_s": compute_s, "sent_s": sent_s}
        for part in parts:
            TAKES.set(part.attributes, takes)
        self.count += 1

    def _compute_s(self, op: ir.Operation, info: OpInfo, rule: Rule, strategy: Strategy) -> float:
        known = measured(info, self.device)
        if known is not None and self._context(op, info) in known.fused:
            return 0.0
        return node_time_s(info, rule, strategy, self.mesh, self.device)

    def _sent_s(self, _: OpInfo, rule: Rule, strategy: Strategy) -> float:
        inner = inner_steps(rule, strategy, self.mesh, self.device)
        return sum((time_s for *_, time_s in inner), 0.0)

    def _context(self, op: ir.Operation, info: OpInfo) -> tuple[str, ...]:
        """Return the operators that make the operands, as the graph of the search has them."""
        return context_of(info.name, map(self._maker, op.operands))

    def _maker(self, value: ir.Value) -> str:
        maker = onnx.owner(value)
        if maker is not None and maker.name == RESHARD:
            return self._maker(maker.operands[0])
        if maker is None or value in self.folded:
            return ""
        name = maker.name.removeprefix("onnx.")
        return "" if name in FREE else name


def _parts(results: Iterable[ir.Value], operands: Iterable[ir.Value]) -> Iterator[ir.Operation]:
    """Yield what makes ``results`` from ``operands``."""
    seen, left = set(operands), list(results)
    while left:
        value = left.pop()
        maker = None if value in seen else onnx.owner(value)
        if maker is not None:
            if maker.name != onnx.CONSTANT:
                yield maker
            seen.update(maker.results)
            left.extend(maker.operands)
