"""Programs as tasks that read and make tensors, the input of scheduling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensoropt.compiler.cost.memory import record_lifetimes
from tensoropt.dialects import onnx
from tensoropt.dialects.lifetimes import Lifetimes
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys
from tensoropt.runtime.support.collectives import BY_IR_NAME

__all__ = ["Task", "Tasks", "merged", "peaks", "read_tasks"]


@dataclass(frozen=True)
class Task:
    """One operation. Tensors and tasks are identified by number.

    ``after`` are the tasks that must run first, ``stage`` is the part of a training step that the
    task belongs to. Its scratch memory is modelled as a result without readers.
    """

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    after: tuple[int, ...]
    stage: str = ""


@dataclass(frozen=True)
class Tasks:
    """The tasks of a program in order, and the bytes of its tensors.

    ``given`` are the tensors that are live at the start. The last task is the return.
    ``operations`` has the operation of each task if the program was read from IR.
    """

    tasks: Sequence[Task]
    sizes: Sequence[int]
    given: Sequence[int] = ()
    operations: Sequence[ir.Operation] = ()


def merged(program: Tasks, units: Sequence[range]) -> Tasks:
    """Return a program with each of ``units``, ranges of consecutive tasks, merged into one task.

    Tensors that only their own unit reads are dropped. ``operations`` has the first operation of
    each unit. Linear.
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
    """Return the live bytes while each task runs, counted like `program_memory`. Linear."""
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
        dead = {tensor for tensor in (*task.reads, *task.makes) if not left[tensor]}
        alive -= sum(program.sizes[tensor] for tensor in dead)
    return found


def read_tasks(function: ir.Operation, *, keeps_collectives: bool = True) -> Tasks:
    """Return the tasks of a function, without operations that are folded at load.

    Besides its operands, a task depends on the previous one of its kind if it draws random numbers
    or, with ``keeps_collectives``, if it is a collective: these keep their order. Linear in the
    operands.
    """
    return _Reader(function, keeps_collectives=keeps_collectives).read()


class _Recorder(Lifetimes):
    """Records the numbers of the tensors that each operation reads and makes."""

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
        """Return the tensors read and made since the last call."""
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
        after = tuple(dict.fromkeys(self._predecessors(op)))
        self.tasks.append(Task(reads, makes, after, self._stage(op)))
        self.operations.append(op)
        self.makers.update((value, len(self.tasks) - 1) for value in op.results)

    def _stage(self, op: ir.Operation) -> str:
        """Return the part of a training step that an op belongs to.

        An op without a phase belongs to the part of the previous op. Recomputation is part of the
        backward pass.
        """
        before = self.tasks[-1].stage if self.tasks else ""
        phase = keys.PHASE.get(op.attributes, before)
        return "backward" if phase == "recompute" else phase

    def _predecessors(self, op: ir.Operation) -> Iterator[int]:
        yield from (self.makers[v] for v in onnx.read_values(op) if v in self.makers)
        for chain, belongs in (
            ("random", any(map(onnx.is_random, (op, *onnx.walk(op))))),
            ("collective", self.keeps_collectives and op.name in BY_IR_NAME),
        ):
            if belongs:
                if chain in self.chains:
                    yield self.chains[chain]
                self.chains[chain] = len(self.tasks)
