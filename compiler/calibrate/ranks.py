"""Runs of graphs on ranks, with the times of graphs and of their nodes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tensoropt.compiler.calibrate.attribution import attribute
from tensoropt.compiler.calibrate.features import read_facts
from tensoropt.compiler.calibrate.floor import Floor
from tensoropt.compiler.calibrate.samples import OpSample, merge_equal
from tensoropt.runtime.launch.launcher import launch
from tensoropt.runtime.launch.workers import worker_of
from tensoropt.runtime.profile.job import NO_TIME, Measured, ProfileJob, Task
from tensoropt.runtime.support.rank_options import RankOptions

__all__ = ["MeasuredGraph", "Ranks", "Samples"]

_PATH = re.compile(r"\S*/\S+\.onnx:? ?")  # in a temporary folder, so of no use in a message
_SHOWN = 6
_TRACE_PART = 0.5  # relative to the time for timing
_FIRST_PART = 1 / 3  # of the time for a graph, which is timed, traced, and timed again


@dataclass(frozen=True)
class MeasuredGraph:
    """A graph to run: ``{rank}`` in ``path`` is a rank's number; ``name`` is for messages.

    With ``alone`` it has no collectives, so it never waits for other ranks. With ``trains`` it is
    part of a training step, which has kernels of its own.
    """

    name: str
    path: str
    alone: bool = True
    trains: bool = False

    @property
    def first(self) -> Path:
        """The graph of rank 0."""
        return Path(self.path.replace("{rank}", "0"))


@dataclass(frozen=True)
class Samples:
    """Samples of a graph: the time of one run, its nodes, and the floor fitted to them.

    ``peak_bytes`` is the largest memory of a rank, ``None`` if it was not measured.
    """

    step_s: float
    nodes: list[OpSample]
    floor: Floor
    peak_bytes: int | None = None


@dataclass
class Ranks:
    """Ranks on this machine that measure; ``left_out`` collects the graphs that could not run.

    No graph is started after ``until``, in seconds of the monotonic clock. ``start_s`` is an upper
    bound of the time to start the ranks: the least time of all jobs so far.
    """

    options: RankOptions
    say: Callable[[str], None]
    left_out: list[str] = field(default_factory=list)
    until: float | None = None
    start_s: float = 0.0

    def times_s(
        self, graphs: Sequence[MeasuredGraph], ranks: int, seconds: float
    ) -> list[float | None]:
        """Return the time of one run of each graph on all ``ranks``, None if it fails."""
        found = self._run(graphs, ranks, seconds, traced=False)
        return [None if result.error else result.step_s for result in found]

    def process_bytes(self, graph: MeasuredGraph, ranks: int, seconds: float) -> int | None:
        """Return the peak memory of a rank's process that only runs ``graph``."""
        [found] = self._run([graph], ranks, seconds, traced=False)
        return found.process_bytes

    def kernels(
        self, graphs: Sequence[MeasuredGraph], ranks: int, seconds: float
    ) -> list[Measured]:
        """Return the traced nodes of each graph."""
        return self._run(graphs, ranks, seconds * _TRACE_PART, traced=True)

    def samples(
        self, graphs: Sequence[MeasuredGraph], ranks: int, seconds: float, floor: Floor
    ) -> list[Samples | None]:
        """Return the samples of each graph, None if it does not run.

        Each graph is timed, traced, and timed again, and the faster time counts: other work may
        slow a machine for seconds.
        """
        end = self.until
        if end is not None:  # leave time for all three jobs to start
            left_s = end - time.monotonic() - 3 * self.start_s
            self.until = end - 2 * self.start_s - left_s * (1 - _FIRST_PART)
        timed = self._run(graphs, ranks, seconds / 2, traced=False)
        self.until = end
        ran = [at for at, whole in enumerate(timed) if not whole.error]
        running = [graphs[at] for at in ran]
        traced = dict(zip(ran, self.kernels(running, ranks, seconds), strict=True))
        for at, step_s in zip(ran, self._time_again(running, ranks, seconds / 2), strict=True):
            timed[at] = replace(timed[at], step_s=min(timed[at].step_s, step_s))
        return [
            _samples(graph, timed[at], traced[at], floor)
            if at in traced and traced[at].nodes is not None
            else None
            for at, graph in enumerate(graphs)
        ]

    def _time_again(
        self, graphs: Sequence[MeasuredGraph], ranks: int, seconds: float
    ) -> list[float]:
        """Return second times of graphs, infinite for graphs for which no time is left."""
        before = len(self.left_out)
        found = self._run(graphs, ranks, seconds, traced=False)
        del self.left_out[before:]  # the graphs have a time already
        return [math.inf if result.error else result.step_s for result in found]

    def _run(
        self, graphs: Sequence[MeasuredGraph], ranks: int, seconds: float, *, traced: bool
    ) -> list[Measured]:
        if not graphs:
            return []
        self.say(f"{'tracing' if traced else 'timing'} {len(graphs)} graphs on {ranks} ranks")
        tasks = tuple(Task(graph.path, seconds, graph.trains) for graph in graphs)
        if self.until is not None and time.monotonic() + self.start_s > self.until:
            found = [Measured(error=NO_TIME) for _ in graphs]
        else:
            found = self._launch(tasks, ranks, traced=traced, until=self.until)
        if len(found) < len(graphs):
            raise KeyboardInterrupt
        late = dict.fromkeys(
            g.name for g, result in zip(graphs, found, strict=True) if result.error == NO_TIME
        )
        self.left_out += [self.out_of_time(list(late))] if late else []
        for graph, result in zip(graphs, found, strict=True):
            if result.error not in (None, NO_TIME) and not traced:
                self.left_out.append(f"{graph.name}: {_PATH.sub('', result.error)}")
        return found

    @staticmethod
    def out_of_time(names: Sequence[str]) -> str:
        """Return the line on graphs and plans for which there was no time."""
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"{', '.join(names[:_SHOWN])}{more}: {NO_TIME}, expected a longer --budget"

    def gpus(self) -> Measured:
        """Return memory and names of the GPUs of this machine, none for the CPU."""
        return self._launch((), 1)[0]

    def _launch(
        self,
        tasks: tuple[Task, ...],
        ranks: int,
        *,
        traced: bool = False,
        until: float | None = None,
    ) -> list[Measured]:
        job = ProfileJob(tasks=tasks, traced=traced, until=until, **vars(self.options))
        start_s = time.monotonic()
        found = list(worker_of(job.kind).from_values(launch(job, ranks, stoppable=True)))
        self.start_s = min(self.start_s or math.inf, time.monotonic() - start_s)
        return found


def _samples(graph: MeasuredGraph, whole: Measured, traced: Measured, floor: Floor) -> Samples:
    assert traced.nodes is not None and traced.graph is not None
    own = floor.fit_tracing(traced.nodes.values(), whole.step_s) if graph.alone else floor
    times = {name: own.untraced_s(time_s) for name, time_s in traced.nodes.items()}
    found = attribute(read_facts(graph.first), Path(traced.graph), times)
    nodes = merge_equal(OpSample(n.facts.work, n.facts.context, n.time_s) for n in found)
    return Samples(whole.step_s, nodes, own, whole.peak_bytes)
