"""The graph of each operation of a partitioned program.

A training step has two graphs, or with stages the graphs of each chunk: forward, backward, and the
gradients of weights if these are tasks of their own. Inference has a forward graph for each chunk.
A cache of a decoder belongs to the graph that returns it. Graphs are listed in an order in which
they can run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.compiler.training.weight_gradients import weight_gradients
from tensoropt.dialects import onnx
from tensoropt.dialects.elements import element_of, element_text
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.runtime.plan.graphs import GRADIENTS, UPDATE, work_graph
from tensoropt.runtime.stages.execution import check_tasks
from tensoropt.runtime.stages.schedule import Schedule, Work

__all__ = ["Division", "body", "divide"]


@dataclass(frozen=True)
class Division:
    """The names of the graphs, and the number of the graph of each operation of `@main`.

    An operation without a number is in each graph that reads its results; in inference so is one
    that depends on inputs of integers alone, such as a mask. ``stages`` has the stage of each
    graph, if there are several. Of a training step, ``update`` is the number of the last graph, and
    all stages have a part of it.
    """

    graphs: Sequence[str]
    numbers: Sequence[int | None]
    stages: Sequence[int] | None = None
    update: int | None = None


def body(main: ir.Operation) -> list[ir.Operation]:
    """Return the operations of `@main`, except its return."""
    return [op.operation for op in main.regions[0].blocks[0]][:-1]


def divide(module: ir.Module) -> Division:
    """Return the division of the operations of a program; linear in their operands.

    Raises :class:`UserError` for a schedule that was edited and cannot run.
    """
    attributes, main = module.operation.attributes, onnx.function(module)
    if not keys.PLACES.on(attributes):
        return Division((GRADIENTS, UPDATE), _Divider(main, chunks=0).in_two(), update=1)
    places = keys.PLACES.of(attributes)
    batches = keys.MICRO_BATCHES.get(main.attributes) or 1
    schedule = Schedule.parse(places, batches, keys.SCHEDULE.of(attributes))
    divider = _Divider(main, len(places))
    trains = divider.trains
    check_tasks(schedule, trains=trains)
    splits = schedule.splits_weights
    chunks = range(len(places))
    works: list[tuple[Work, int]] = [("F", chunk) for chunk in chunks]
    works += [("B", chunk) for chunk in reversed(chunks) if trains]
    works += [("W", chunk) for chunk in chunks if splits]
    graphs = [work_graph(*work) for work in works]
    stages = [places[chunk] for _, chunk in works]
    numbers = divider.in_chunks(splits=splits)
    if not trains:
        return Division(graphs, numbers, stages)
    return Division((*graphs, UPDATE), numbers, stages, len(graphs))


class _Divider:
    """Assigns operations to graphs: forward passes in order, then backward passes in reverse."""

    def __init__(self, main: ir.Operation, chunks: int) -> None:
        self.main, self.ops, self.chunks = main, body(main), chunks
        self.trains = any(onnx.phase(op) is not None for op in self.ops)
        self.free = {value for value, own in onnx.arguments(main) if self._is_free(own)}
        self.caches = _cache_chunks(main, self.ops)
        self.fed = {value for value, own in onnx.arguments(main) if self._is_fed(value, own)}
        self.made: dict[ir.Value, int] = {}

    def _is_free(self, own: ir.DictAttr) -> bool:
        """Return whether an argument has the same value in all graphs.

        Parameters do so before the update. A cast of them would have to be kept for each
        micro-batch, so each chunk casts them again.
        """
        if keys.HYPER.on(own):
            return True
        return self.chunks > 0 and (keys.PARAM.on(own) or keys.STATE.get(own) == "parameter")

    def _is_fed(self, value: ir.Value, own: ir.DictAttr) -> bool:
        """Return whether each stage of inference can have an argument: integers, and no cache."""
        if keys.PARAM.on(own) or keys.STATE.on(own) or keys.HYPER.on(own) or value in self.caches:
            return False
        if self.trains or not isinstance(value.type, ir.RankedTensorType):
            return False
        element = element_of(element_text(value.type))
        return self.chunks > 0 and element is not None and element.is_integer

    def in_two(self) -> list[int | None]:
        return [
            None if self._passes_freely(op) else int(onnx.phase(op) == "update") for op in self.ops
        ]

    def in_chunks(self, *, splits: bool) -> list[int | None]:
        update = (3 if splits else 2) * self.chunks
        numbers: list[int | None] = []
        for op in self.ops:
            number = None if self._passes_freely(op) else self._number(op, update)
            numbers.append(number)
            if number is not None:
                self.made.update(dict.fromkeys(op.results, number))
        return self._with_weights(numbers) if splits else numbers

    def _passes_freely(self, op: ir.Operation) -> bool:
        """Return whether every graph may compute ``op`` for itself, and note its results."""
        if not onnx.is_foldable(op):
            return False
        read = onnx.read_values(op)
        holders = [own for own in (self.free, self.fed) if own.issuperset(read)]
        for own in holders:
            own.update(op.results)
        return bool(holders)

    def _number(self, op: ir.Operation, update: int) -> int:
        """Return the first graph with all operands, not before the chunk of ``op``."""
        phase, chunk = onnx.phase(op), keys.CHUNK.get(op.attributes)
        if phase == "update":
            return update
        latest = max((self.made.get(value, 0) for value in _read(op)), default=0)
        kept = [self.caches[value] for value in _read(op) if value in self.caches]
        if kept:
            return max(latest, *kept)
        is_backward = phase in ("backward", "recompute")
        if chunk is None:
            chunk = latest if latest < self.chunks else 2 * self.chunks - 1 - latest
        return max(latest, 2 * self.chunks - 1 - chunk if is_backward else chunk)

    def _with_weights(self, numbers: Sequence[int | None]) -> list[int | None]:
        """Move the gradients of weights from the backward graphs to graphs of their own."""
        end, backward = 2 * self.chunks, range(self.chunks, 2 * self.chunks)
        makers = {value: at for at, op in enumerate(self.ops) for value in op.results}
        moved = weight_gradients(
            [number if number in backward else None for number in numbers],
            [[makers[value] for value in _read(op) if value in makers] for op in self.ops],
            self._undivided(),
        )
        return [
            end + (end - 1 - number) if number is not None and at in moved else number
            for at, number in enumerate(numbers)
        ]

    def _undivided(self) -> set[int]:
        """Return the operations of nodes that compute values of unknown sizes, by their places.

        Only values of known sizes pass between graphs.
        """
        nodes = {onnx.node_name(op) for op in self.ops if not all(map(_is_static, op.results))}
        return {at for at, op in enumerate(self.ops) if onnx.node_name(op) in nodes}


def _cache_chunks(main: ir.Operation, ops: Sequence[ir.Operation]) -> dict[ir.Value, int]:
    """Return the chunk of each cache of a decoder: the operation that returns it has it too."""
    results = main.regions[0].blocks[0].operations[len(ops)].operands
    pairs = zip(results, onnx.carried(main, "res_attrs"), strict=True)
    makers = {keys.CACHE.of(own): onnx.owner(value) for value, own in pairs if keys.CACHE.on(own)}
    found = {}
    for value, own in onnx.arguments(main):
        maker = makers.get(keys.NAME.of(own))
        if maker is not None:
            found[value] = keys.CHUNK.get(maker.attributes) or 0
    return found


def _is_static(value: ir.Value) -> bool:
    return not isinstance(value.type, ir.RankedTensorType) or value.type.has_static_shape


def _read(op: ir.Operation) -> Sequence[ir.Value]:
    """Return the values that ``op`` reads; a barrier reads its first operand alone."""
    return onnx.read_values(op)[: 1 if onnx.is_barrier(op) else None]
