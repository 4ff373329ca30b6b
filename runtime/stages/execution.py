"""Execution of a schedule: the times of its tasks, the memory of its stages, and deadlocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensoropt.runtime.stages.schedule import WORKS, Schedule, Task
from tensoropt.runtime.support.errors import UserError

__all__ = ["ChunkCost", "Execution", "check_schedule", "check_tasks", "check_waits", "execute"]


@dataclass(frozen=True)
class ChunkCost:
    """Cost of a chunk for one micro-batch on its stage.

    ``backward_s`` is the time of the gradients of its input, ``weights_s`` the time of the
    gradients of its weights. ``sent_s`` is the time to send its output to a chunk that reads it,
    and the gradient back. ``kept_bytes`` stay from the forward pass to the backward pass,
    ``weights_bytes`` from there to the gradients of weights, if these are tasks of their own. A
    pass has ``working_bytes`` more while it runs, a task of gradients of weights
    ``gradient_bytes``.
    """

    forward_s: float = 1.0
    backward_s: float = 1.0
    weights_s: float = 1.0
    sent_s: float = 0.0
    kept_bytes: int = 0
    weights_bytes: int = 0
    working_bytes: int = 0
    gradient_bytes: int = 0

    def time_s(self, task: Task, *, splits_weights: bool) -> float:
        """Return the time of a task of this chunk."""
        if task.work == "F":
            return self.forward_s
        if task.work == "W":
            return self.weights_s
        return self.backward_s + (0.0 if splits_weights else self.weights_s)


@dataclass(frozen=True)
class Execution:
    """The start and the end of each task, by stage.

    ``kept_bytes`` are the most that each stage keeps between its tasks, ``peak_bytes`` the most
    while they run.
    """

    starts_s: tuple[tuple[float, ...], ...]
    ends_s: tuple[tuple[float, ...], ...]
    kept_bytes: tuple[int, ...]
    peak_bytes: tuple[int, ...]

    @property
    def time_s(self) -> float:
        """The end of the last task."""
        return max((own[-1] for own in self.ends_s if own), default=0.0)

    def idle_s(self, stage: int) -> float:
        """Return the time in which a stage has no task, until the last task of all stages ends."""
        spans = zip(self.starts_s[stage], self.ends_s[stage], strict=True)
        return self.time_s - sum(end - start for start, end in spans)


def check_schedule(schedule: Schedule, *, trains: bool) -> None:
    """Check that every stage has each of its tasks once, and that none waits forever.

    Only if it ``trains``, chunks have backward passes. Sends are buffered, so that only the order
    of tasks can stop a stage. Linear in the tasks. Raises :class:`UserError` with the stage and the
    task.
    """
    check_tasks(schedule, trains=trains)
    check_waits(schedule)


def check_waits(schedule: Schedule) -> None:
    """Check that no stage waits forever, as :func:`check_schedule` does."""
    execute(schedule, [ChunkCost()] * schedule.chunks)


def check_tasks(schedule: Schedule, *, trains: bool) -> None:
    """Check that every stage has each of its tasks once, as :func:`check_schedule` does."""
    if {*schedule.places} != {*range(schedule.stages)}:
        listed = ", ".join(map(str, schedule.places))
        raise UserError(
            f"schedule: expected tasks for each stage of places, and a chunk for each stage, got: "
            f"tasks for {schedule.stages} stages and places {listed}"
        )
    for stage, order in enumerate(schedule.orders):
        wanted = set(_tasks_of(schedule, stage, trains))
        for number, task in enumerate(order):
            if task not in wanted:
                kind = "a second time" if task in order[:number] else "unexpected"
                raise UserError(
                    f"schedule: stage {stage}, task {number}: expected each task of its chunks "
                    f"once, got: {task}, {kind}"
                )
            wanted.remove(task)
        if wanted:
            raise UserError(
                f"schedule: stage {stage}: expected all tasks of its chunks, got: no {min(wanted)}"
            )
        _check_order(stage, order)


def _check_order(stage: int, order: Sequence[Task]) -> None:
    """Check that each pass of a micro-batch through a chunk follows the pass before it."""
    seen: set[Task] = set()
    for number, task in enumerate(order):
        first = {"F": None, "B": task._replace(work="F"), "W": task._replace(work="B")}[task.work]
        if first is not None and first not in seen:
            raise UserError(
                f"schedule: stage {stage}, task {number}: expected {first} before {task}"
            )
        seen.add(task)


def _tasks_of(schedule: Schedule, stage: int, trains: bool) -> Iterator[Task]:
    works = WORKS if schedule.splits_weights else WORKS[:2]
    works = works if trains else WORKS[:1]
    for chunk, place in enumerate(schedule.places):
        if place == stage:
            for micro_batch in range(schedule.micro_batches):
                yield from (Task(work, micro_batch, chunk) for work in works)


def execute(schedule: Schedule, costs: Sequence[ChunkCost]) -> Execution:
    """Return the execution of a schedule by stages that run their tasks in order, one at a time.

    A task starts when its stage is free and its inputs have arrived. Linear in the tasks and in
    their inputs. Raises :class:`UserError` if stages wait for each other forever.
    """
    split = schedule.splits_weights
    done: dict[Task, float] = {}
    starts: list[list[float]] = [[] for _ in schedule.orders]
    ends: list[list[float]] = [[] for _ in schedule.orders]
    waiting: dict[Task, list[int]] = {}
    ready = deque(range(schedule.stages))
    while ready:
        stage = ready.popleft()
        order, own = schedule.orders[stage], ends[stage]
        while len(own) < len(order):
            task = order[len(own)]
            start_s, missing = own[-1] if own else 0.0, None
            for source in _sources(task, schedule):
                if source not in done:
                    missing = source
                    break
                start_s = max(start_s, done[source] + _sent_s(source, task, costs))
            if missing is not None:
                waiting.setdefault(missing, []).append(stage)
                break
            end_s = start_s + costs[task.chunk].time_s(task, splits_weights=split)
            starts[stage].append(start_s)
            own.append(end_s)
            done[task] = end_s
            ready.extend(waiting.pop(task, ()))
    if waiting:
        sources = {stage: task for task, stages in waiting.items() for stage in stages}
        stage = min(sources)
        for _ in sources:  # the way ends in a circle of stages that wait for each other
            stage = schedule.places[sources[stage].chunk]
        source, task = sources[stage], schedule.orders[stage][len(ends[stage])]
        raise UserError(
            f"schedule: stage {stage} waits forever: expected {source} on stage "
            f"{schedule.places[source.chunk]} to run before {task}"
        )
    kept, peaks = zip(*(_bytes(order, costs, split) for order in schedule.orders), strict=True)
    return Execution(tuple(map(tuple, starts)), tuple(map(tuple, ends)), kept, peaks)


def _sources(task: Task, schedule: Schedule) -> list[Task]:
    """Return the tasks with the results that ``task`` reads, none for inputs of the model."""
    work, micro_batch, chunk = task
    if work == "W":
        return [Task("B", micro_batch, chunk)]
    if work == "F":
        return [Task("F", micro_batch, own) for own in schedule.reads[chunk]]
    readers = schedule.readers[chunk]
    return [Task("B", micro_batch, own) for own in readers] or [Task("F", micro_batch, chunk)]


def _sent_s(source: Task, task: Task, costs: Sequence[ChunkCost]) -> float:
    """Return the time between the end of a task and the arrival of its result."""
    return costs[min(source.chunk, task.chunk)].sent_s if source.chunk != task.chunk else 0.0


def _bytes(order: Sequence[Task], costs: Sequence[ChunkCost], split: bool) -> tuple[int, int]:
    """Return the most bytes of activations that a stage keeps, and the most of all tensors."""
    now = most = peak = 0
    for task in order:
        cost = costs[task.chunk]
        before = now
        if task.work == "F":
            now += cost.kept_bytes
        elif task.work == "W":
            now -= cost.weights_bytes
        else:
            now += (cost.weights_bytes if split else 0) - cost.kept_bytes
        most = max(most, now)
        own = cost.gradient_bytes if task.work == "W" else cost.working_bytes
        peak = max(peak, max(before, now) + own)
    return most, peak
