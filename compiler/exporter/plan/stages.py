"""Entries of plan.json for a program in stages, and the memory of a stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tensoropt.compiler.cost.memory import RankMemory, program_memory
from tensoropt.compiler.exporter.plan.describe import dtype_of
from tensoropt.compiler.training.cut import Parts, argument_names
from tensoropt.compiler.training.memory import StaticParts, static_parts
from tensoropt.dialects import onnx
from tensoropt.dialects.elements import type_bytes
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.runtime.plan.entries import StagesEntry
from tensoropt.runtime.plan.graphs import UPDATE, graph_name, work_graph
from tensoropt.runtime.plan.stages import Stages
from tensoropt.runtime.stages.schedule import Schedule, Task

__all__ = ["StepMemory", "describe_stages", "memory_of"]


def describe_stages(module: ir.Module, parts: Parts, memory: StepMemory) -> StagesEntry:
    """Return the entry ``stages`` of plan.json; ``module`` is the partitioned program.

    Raises :class:`UserError` for a schedule that was edited and cannot run.
    """
    attributes, main = module.operation.attributes, onnx.function(module)
    entry: StagesEntry = {
        "places": keys.PLACES.of(attributes),
        "schedule": keys.SCHEDULE.of(attributes),
        "fullest": memory.stage,
        "graphs": list(parts.modules),
        "passed": [
            {
                "name": own.name,
                "dtype": dtype_of(own.type, own.name),
                "shape": _sizes(ir.RankedTensorType(own.type)),
                "graph": own.graph,
                "read_by": list(own.read_by),
            }
            for own in parts.passed
        ],
    }
    devices = keys.STAGE_DEVICES.get(attributes)
    if devices is not None:
        entry["devices"] = devices
    trains = keys.TRAINING.on(attributes)
    Stages.of_entry(entry, (keys.MICRO_BATCHES.get(main.attributes) or 1) if trains else None)
    return entry


def _sizes(kind: ir.RankedTensorType) -> list[int | None]:
    """Return the sizes of a rank's part, ``None`` for those that only a run has."""
    dims = range(kind.rank)
    return [None if kind.is_dynamic_dim(dim) else kind.get_dim_size(dim) for dim in dims]


@dataclass(frozen=True)
class StepMemory:
    """The memory of a rank of a program, of the ``stage`` with the most if there are several."""

    rank: RankMemory
    static: StaticParts
    stage: int = 0


def memory_of(module: ir.Module, parts: Parts) -> StepMemory:
    """Return the memory of a partitioned step, or of inference in stages.

    On a stage, values that pass between its graphs stay for each micro-batch between them. In
    inference, the values of an earlier input are still being sent.
    """
    if parts.stages is None:
        memory = program_memory(module)
        return StepMemory(memory, static_parts(module, memory))
    attributes = module.operation.attributes
    places, texts = keys.PLACES.of(attributes), keys.SCHEDULE.of(attributes)
    batches = keys.MICRO_BATCHES.get(onnx.function(module).attributes) or 1
    schedule = Schedule.parse(places, batches, texts)
    found = [_of_stage(parts, schedule, stage) for stage in range(schedule.stages)]
    return max(found, key=lambda own: own.rank.static_bytes + own.rank.working_bytes)


def _of_stage(parts: Parts, schedule: Schedule, stage: int) -> StepMemory:
    constants, sizes = 0, dict[str, int]()  # of state, by kind
    transient, working = dict[str, int](), dict[str, int]()  # by graph
    state: dict[str, tuple[str, int]] = {}  # kind and bytes by name
    for graph, module in parts.of_stage(stage).items():
        memory, own = program_memory(module), _state(module, parts)
        state.update(own)
        # The update has gradients as arguments, which count as transient there.
        read = parts.parameters.keys() & argument_names(module)
        given = sum(own[name][1] for name in read)
        held = sum(size for _, size in own.values()) - given
        constants += memory.static_bytes - held
        transient[graph] = memory.transient_bytes - given
        working[graph] = memory.working_bytes - given
    for kind, size in state.values():
        sizes[kind] = sizes.get(kind, 0) + size
    known = [sizes.pop(kind, 0) for kind in ("parameter", "gradient", "buffer")]
    static = StaticParts(known[0], known[1], sum(sizes.values()), known[2], constants)
    passing = _Passing.of_stage(parts, stage)
    peaks = (passing.peak_bytes(schedule.orders[stage], own) for own in (transient, working))
    update = graph_name(UPDATE, stage)
    if update in transient:
        whole = [*map(max, peaks, (transient[update], working[update]))]
    else:
        sent = sum(type_bytes(own.type) for own in parts.passed if own.graph in transient)
        whole = [peak + sent for peak in peaks]
    return StepMemory(RankMemory(sum(vars(static).values()), *whole), static, stage)


def _state(module: ir.Module, parts: Parts) -> dict[str, tuple[str, int]]:
    """Return the kind and the bytes of the state and the gradients of a graph, by name."""
    main = onnx.function(module)
    found: dict[str, tuple[str, int]] = {}
    for value, own in onnx.arguments(main):
        name, kind = keys.NAME.of(own), keys.STATE.get(own)
        if name in parts.parameters or kind not in (None, "gradient"):
            found[name] = (kind or "gradient", type_bytes(value.type))
    for op in main.regions[0].blocks[0]:
        if keys.GRADIENT_OF.on(op.operation.attributes):
            name = parts.names[keys.GRADIENT_OF.of(op.operation.attributes)]
            found[name] = ("gradient", type_bytes(op.operation.results[0].type))
    return found


@dataclass(frozen=True)
class _Passing:
    """The bytes of the values that pass between the graphs of a stage and others, by graph.

    Values begin ``before`` the first graph that makes or reads them, and end ``after`` the last;
    ``touched`` are those that a graph makes or reads.
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    touched: Mapping[str, int]

    @classmethod
    def of_stage(cls, parts: Parts, stage: int) -> _Passing:
        """Return the values of a stage; linear in the values, times its graphs."""
        order = list(parts.of_stage(stage))
        before, after, touched = (dict.fromkeys(order, 0) for _ in range(3))
        for own in parts.passed:
            users = [graph for graph in order if graph in (own.graph, *own.read_by)]
            if users:
                size = type_bytes(own.type)
                before[users[0]] += size
                after[users[-1]] += size
                for graph in users:
                    touched[graph] += size
        return cls(before, after, touched)

    def peak_bytes(self, tasks: Iterable[Task], transient: Mapping[str, int]) -> int:
        """Return the most bytes of transient tensors while a stage runs its tasks.

        These are the ``transient`` bytes of the graph that runs, which include the values that it
        reads and computes, and the other values that pass between graphs.
        """
        now = most = 0
        for task in tasks:
            graph = work_graph(task.work, task.chunk)
            if graph in transient:
                now += self.before[graph]
                most = max(most, now - self.touched[graph] + transient[graph])
                now -= self.after[graph]
        return most
