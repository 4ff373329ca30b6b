"""The graphs of a stage on a rank, and the values that pass between them and other stages.

A value that passes between graphs stays on the rank until its last reader has run, for each
micro-batch separately. Rank r of a stage sends its part to rank r of another stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tensoropt.runtime.device.provider import HostArray, PlacedArray, Provider
from tensoropt.runtime.plan.graphs import work_graph
from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.plan.stages import Passed, Stages
from tensoropt.runtime.session.messages import Messages
from tensoropt.runtime.session.session import RankSession
from tensoropt.runtime.stages.schedule import Task
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError

__all__ = ["Batch", "StageGraphs"]

Batch = Callable[[int], Mapping[str, Array]]
"""Returns the inputs of a micro-batch, by name."""


def _no_batch(micro_batch: int) -> Mapping[str, Array]:
    return {}


@dataclass(eq=False)
class _Value:
    """A value on this rank; ``readers`` and ``sends`` are those that it still waits for."""

    array: PlacedArray
    readers: int
    sends: int = 0


class _Arrays:
    """Arrays for values, which other values of the same shape and type take over."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._free: dict[tuple[tuple[int, ...], str], list[PlacedArray]] = {}

    def take(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> PlacedArray:
        """Return an array with any elements."""
        free = self._free.get((shape, dtype.name))
        return free.pop() if free else self._provider.empty(shape, dtype)

    def give(self, array: PlacedArray) -> None:
        """Take an array back."""
        self._free.setdefault((array.shape, array.dtype.name), []).append(array)


class StageGraphs:
    """Runs the graphs of one ``stage``, by task, and passes their values on.

    ``sessions`` has the sessions of the rank's graphs, by name. ``inputs`` of the model are read
    from the batch of a task; others are bound to the sessions elsewhere. Tags from ``tags`` on are
    free.
    """

    def __init__(
        self,
        stages: Stages,
        stage: int,
        sessions: Mapping[str, RankSession],
        messages: Messages,
        provider: Provider,
        inputs: Iterable[Tensor] = (),
    ) -> None:
        self.stages, self.stage, self._sessions = stages, stage, sessions
        self.messages = messages
        self.passed = {own.name: number for number, own in enumerate(stages.passed)}
        self._readers = Counter(name for session in sessions.values() for name in session.inputs)
        self.inputs = {t.name: t for t in inputs}
        self.batch = [name for name in self.inputs if name in self._readers]
        self._arrays, self._provider = _Arrays(provider), provider
        self._values: dict[tuple[str, int], _Value] = {}
        self.tags = self._tag(len(self.passed), 0)

    @property
    def sends(self) -> int:
        """The number of messages that all graphs send for a micro-batch."""
        own = {name for session in self._sessions.values() for name in session.outputs}
        return sum(
            len(self._readers_elsewhere(name)) * (1 if self._is_fixed(name) else 2)
            for name in self.passed
            if name in own
        )

    def _passed(self, name: str) -> Passed:
        return self.stages.passed[self.passed[name]]

    def _is_fixed(self, name: str) -> bool:
        """Return True for a value with one shape in all runs."""
        return name in self.inputs or self._passed(name).fixed_shape is not None

    def _readers_elsewhere(self, name: str) -> list[int]:
        """Return the other stages that read a value."""
        read_by = self._passed(name).read_by
        return sorted({*map(self.stages.stage_of, read_by)} - {self.stage})

    def run(
        self, task: Task, batch: Batch = _no_batch, compute: Callable[[], None] | None = None
    ) -> None:
        """Run one task of this stage: receive its inputs, run its graph, send its results.

        ``compute`` runs the graph, by default its session. Raises `UserError`.
        """
        graph, micro = work_graph(task.work, task.chunk), task.micro_batch
        session = self._sessions.get(graph)
        if session is None:
            return  # such as the gradients of the inputs of the first chunk
        self.messages.collect()
        read = [name for name in session.inputs if name in self.passed or name in self.inputs]
        for name in read:
            session.read(name, self._value(name, micro, batch).array)
        made = [name for name in session.outputs if name in self.passed]
        fixed = [name for name in made if self._is_fixed(name)]
        others = {*made}.difference(fixed)  # ONNX Runtime allocates them
        for name in fixed:
            session.write(name, self._make(name, micro, self._readers[name] + 1).array)
        try:
            (compute or session.run)()
        except UserError:
            for name in (*read, *fixed):
                del self._values[name, micro]  # the next input has others
            raise
        for name, array in session.results(others) if others else ():
            self._values[name, micro] = _Value(HostArray(array), self._readers[name] + 1)
        for name in made:
            self._send(name, micro)
        for name in (*read, *made):
            self._release(name, micro)

    def _value(self, name: str, micro: int, batch: Batch) -> _Value:
        """Return a value that a graph reads, received or read from the batch on its first use."""
        if (name, micro) not in self._values:
            if name in self.inputs:
                self._feed(micro, batch(micro))
            else:
                self._receive(name, micro)
        return self._values[name, micro]

    def _receive(self, name: str, micro: int) -> None:
        """Receive a value, in an array that other values may take over if its shape is fixed."""
        passed, tag = self._passed(name), self._tag(self.passed[name], micro)
        source, readers = self.stages.stage_of(passed.graph), self._readers[name]
        if self._is_fixed(name):
            self.messages.receive(source, self._make(name, micro, readers).array, tag)
        else:
            make = partial(self._provider.empty, dtype=dtype_of(passed.dtype))
            array = self.messages.receive_sized(source, len(passed.shape), make, tag)
            self._values[name, micro] = _Value(array, readers)

    def _make(self, name: str, micro: int, readers: int) -> _Value:
        passed = self._passed(name)
        shape = passed.fixed_shape
        assert shape is not None
        array = self._arrays.take(shape, dtype_of(passed.dtype))
        self._values[name, micro] = value = _Value(array, readers)
        return value

    def _feed(self, micro: int, batch: Mapping[str, Array]) -> None:
        for name, part in batch.items():
            tensor = self.inputs[name]
            array = self._arrays.take(tensor.local_shape(), dtype_of(tensor.dtype))
            array.put(part)
            self._values[name, micro] = _Value(array, self._readers[name])

    def _send(self, name: str, micro: int) -> None:
        value, tag = self._values[name, micro], self._tag(self.passed[name], micro)

        send = self.messages.send if self._is_fixed(name) else self.messages.send_sized

        def count_send() -> None:
            value.sends -= 1
            self._give_back(name, value)

        for stage in self._readers_elsewhere(name):
            value.sends += 1
            send(stage, value.array, tag, count_send)

    def _tag(self, number: int, micro: int) -> int:
        return number * self.stages.schedule.micro_batches + micro

    def _release(self, name: str, micro: int) -> None:
        """Count a reader of a value that has run; the last one ends its life on this stage."""
        value = self._values[name, micro]
        value.readers -= 1
        if not value.readers:
            del self._values[name, micro]
            self._give_back(name, value)

    def _give_back(self, name: str, value: _Value) -> None:
        if self._is_fixed(name) and not value.readers and not value.sends:
            self._arrays.give(value.array)
