"""A program as tasks that read and make tensors: all that an order of it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensoropt.compiler.cost.memory import record_lifetimes
from tensoropt.dialects import onnx
from tensoropt.dialects.lifetimes import Lifetimes
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import COLLECTIVE_PERMUTE, keys

__all__ = ["Task", "Tasks", "merged", "peaks", "read_tasks"]


_COLLECTIVES = ("shard.", COLLECTIVE_PERMUTE)
"""What the names of collectives begin with."""


@dataclass(frozen=True)
class Task:
    """One operation that runs. Tensors and tasks are numbers.

    ``after`` are the tasks that must come first, ``stage`` the part of a training step that it
    belongs to. What it holds only while it runs is a tensor that nothing reads.
    """

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    after: tuple[int, ...]
    stage: str = ""


@dataclass(frozen=True)
class Tasks:
    """The tasks of a program in its order, the bytes of its tensors, and those alive at first.

    The last task is the return. ``operations`` are those of the tasks, where they come from IR.
    """

    tasks: Sequence[Task]
    sizes: Sequence[int]
    given: Sequence[int] = ()
    operations: Sequence[ir.Operation] = ()


def merged(program: Tasks, units: Sequence[range]) -> Tasks:
    """Return a program whose tasks are ``units`` of tasks that stand together, in their order.

    What only a unit itself reads of what it makes is no tensor. ``operations`` are the first of
    each. Linear.
    """
    unit_of = [number for number, unit in enumerate(units) for _ in unit]
    outside: set[int] = set()
    inside: set[int] = set()
    makers: dict[int, int] = {t: u for u, own in _each(program, units) for t in own.makes}
    for number, task in _each(program, units):
        for tensor in task.reads:
            (inside if makers.get(tensor) == number else outside).add(tensor)
    hidden = inside - outside
    tasks = []
    for number, unit in enumerate(units):
        own = [program.tasks[task] for task in unit]
        made = dict.fromkeys(t for task in own for t in task.makes)
        reads = dict.fromkeys(t for task in own for t in task.reads if t not in made)
        after = dict.fromkeys(unit_of[t] for task in own for t in task.after)
        after.pop(number, None)
        kept = tuple(tensor for tensor in made if tensor not in hidden)
        tasks.append(Task(tuple(reads), kept, tuple(after), own[0].stage))
    operations = [program.operations[unit[0]] for unit in units]
    return Tasks(tasks, program.sizes, program.given, operations)


def _each(program: Tasks, units: Sequence[range]) -> Iterator[tuple[int, Task]]:
    yield from ((n, program.tasks[task]) for n, unit in enumerate(units) for task in unit)


def peaks(program: Tasks) -> list[int]:
    """Return the bytes alive while each task runs, as `program_memory` counts them. Linear."""
    left = [0] * len(program.sizes)
    for task in program.tasks:
        for tensor in task.reads:
            left[tensor] += 1
    alive = sum(program.sizes[tensor] for tensor in program.given)
    found = []
    for task in program.tasks:
        alive += sum(program.sizes[tensor] for tensor in task.makes)
        found.append(alive)
        for tensor in task.reads:
            left[tensor] -= 1
        over = {tensor for tensor in (*task.reads, *task.makes) if not left[tensor]}
        alive -= sum(program.sizes[tensor] for tensor in over)
    return found


def read_tasks(function: ir.Operation, *, keeps_collectives: bool = True) -> Tasks:
    """Return the tasks of a function: what is folded at load is none. Linear in its operands.

    Beside those that read what others make, tasks wait for what draws numbers before them and,
    if they are collectives, for the collective before: these keep their order, unless collectives
    need not (``keeps_collectives``).
    """
    return _Reader(function, keeps_collectives=keeps_collectives).read()


class _Recorder(Lifetimes):
    """Writes down what each operation reads and makes, by number."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[object, int] = {}
        self.sizes: list[int] = []
        self.reads: dict[int, None] = {}
        self.makes: list[int] = []

    def define(self, tensor: object, size_bytes: int) -> None:
        self.numbers[tensor] = len(self.sizes)
        self.makes.append(len(self.sizes))
        self.sizes.append(size_bytes)

    def use(self, tensor: object) -> None:
        if tensor in self.numbers:
            self.reads[self.numbers[tensor]] = None

    def take(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what was read and made since the last call."""
        taken = tuple(self.reads), tuple(self.makes)
        self.reads, self.makes = {}, []
        return taken


class _Reader:
    def __init__(self, function: ir.Operation, *, keeps_collectives: bool) -> None:
        self.function = function
        self.keeps_collectives = keeps_collectives
        self.recorder = _Recorder()
        self.tasks: list[Task] = []
        self.operations: list[ir.Operation] = []
        self.makers: dict[ir.Value, int] = {}
        self.chains: dict[str, int] = {}

    def read(self) -> Tasks:
        given: tuple[int, ...] = ()
        for op in record_lifetimes(self.function, self.recorder):
            reads, makes = self.recorder.take()
            if op is None:
                given = makes
            else:
                self._append(op, reads, makes)
        return Tasks(self.tasks, self.recorder.sizes, given, self.operations)

    def _append(self, op: ir.Operation, reads: tuple[int, ...], makes: tuple[int, ...]) -> None:
        after = tuple(dict.fromkeys(self._after(op)))
        self.tasks.append(Task(reads, makes, after, self._stage(op)))
        self.operations.append(op)
        self.makers.update((value, len(self.tasks) - 1) for value in op.results)

    def _stage(self, op: ir.Operation) -> str:
        """Return the part of a training step that an op is in, that of the one before it if it does
        not say; what is computed anew is part of the backward pass."""
        before = self.tasks[-1].stage if self.tasks else ""
        phase = keys.PHASE.get(op.attributes, before)
        return "backward" if phase == "recompute" else phase

    def _after(self, op: ir.Operation) -> Iterator[int]:
        yield from (self.makers[v] for v in onnx.read_values(op) if v in self.makers)
        for chain, belongs in (
            ("random", any(map(onnx.is_random, (op, *onnx.walk(op))))),
            ("collective", self.keeps_collectives and op.name.startswith(_COLLECTIVES)),
        ):
            if belongs:
                if chain in self.chains:
                    yield self.chains[chain]
                self.chains[chain] = len(self.tasks)
