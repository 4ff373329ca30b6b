"""The work of a generation's ranks: prepare, take over the state, train, hand it over."""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensoropt.elastic.generation.channel import Channel
from tensoropt.elastic.generation.clock import read_clock
from tensoropt.elastic.generation.job import GenerationJob
from tensoropt.elastic.generation.memories import memory_of
from tensoropt.elastic.generation.memory import StateMemory, Way
from tensoropt.elastic.generation.messages import NOTHING, PAUSE, PAUSE_ON_HOST, STOP
from tensoropt.elastic.generation.reports import Reports
from tensoropt.elastic.generation.snapshot import Snapshots
from tensoropt.elastic.generation.takeover import Takeover
from tensoropt.runtime.device.provider import MemoryMeter
from tensoropt.runtime.device.providers import provider_of
from tensoropt.runtime.launch.link import LauncherLink
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.ranks import share_of_cores
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message
from tensoropt.runtime.training.checkpoint import Progress, check_checkpoint
from tensoropt.runtime.training.evaluation import is_evaluated
from tensoropt.runtime.training.integrity import DamagedError, check_tensors
from tensoropt.runtime.training.job import TrainResult
from tensoropt.runtime.training.opening import open_step
from tensoropt.runtime.training.outcome import (
    export_trained,
    is_due,
    measure,
    result_of,
    save_checkpoint,
)
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.staged import StagedStep
from tensoropt.runtime.training.state import Held
from tensoropt.runtime.training.step import TrainingStep
from tensoropt.runtime.training.trainer import StoppedError, Trainer

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["run_generation"]

_LOOK_S = 1.0  # between two checks for a coordinator
_LEAVING = 19  # niceness of a leaving rank, so that freeing its memory does not slow others


def run_generation(job: GenerationJob, comm: MPI.Comm, link: LauncherLink) -> TrainResult:
    """Serve a generation on the ranks of ``comm``; the result is complete on rank 0 only.

    Raises `UserError` if a rank fails, or has had no coordinator for too long.
    """
    plan = TrainingPlan.from_plan(Plan.read(job.plan))
    provider = provider_of(job, comm)
    memory = provider.measure()
    state = memory_of(plan, comm.rank, provider)
    held = Held(plan, comm.rank, provider, state.arrays())
    threads = job.threads or share_of_cores(comm)
    with tempfile.TemporaryDirectory(prefix="tensoropt-") as folder:
        step, graphs, error = open_step(job, held, threads, Path(folder), comm)
        if step is None:
            raise UserError(str(error))
        _warm_up(step, comm)
        trainer = Trainer(job, step, Progress(), threads, comm)
        generation = _Generation(job, trainer, state, threads, comm)
        return generation.serve(memory, graphs)


def _warm_up(step: TrainingStep | StagedStep, comm: MPI.Comm) -> None:
    """Take a step on arbitrary values and discard it, so that one-time costs precede training."""
    step.set("loss_scale", 1.0)
    step.set("step", 1.0)
    step.set("loss_weight", 1.0)
    step.start()
    step.rehearse()
    step.gradients_are_finite()
    comm.Barrier()


class _Generation:
    """One rank of a generation; ``_phase`` is repeated to every new coordinator."""

    def __init__(
        self, job: GenerationJob, trainer: Trainer, state: StateMemory, threads: int, comm: MPI.Comm
    ) -> None:
        self._job, self._trainer, self._comm = job, trainer, comm
        self._state, self._threads = state, threads
        self._phase = "ready"
        self._takeover: Takeover | None = None
        self._reports = Reports(comm.rank)
        self._start = Progress()
        self._channel = Channel(job.address, bytes.fromhex(job.key), self._hello)
        self._snapshots: Snapshots | None = None
        if job.snapshot_every is not None:
            self._snapshots = Snapshots(trainer.held, state, self._channel)
        self._channel.open()

    def _hello(self) -> Message:
        snapshots = self._snapshots
        return {
            "kind": "hello",
            "generation": self._job.generation,
            "rank": self._comm.rank,
            "pid": os.getpid(),
            "node": os.environ.get("TENSOROPT_NODE", ""),
            "clock": read_clock(),
            "phase": self._phase,
            "block": self._state.block().facts(),
            "snapshots": [a.block.facts() for a in snapshots.arenas] if snapshots else [],
            "snapshot": snapshots.latest if snapshots else None,
            "progress": asdict(self._trainer.progress),
            "steps": self._reports.recent(),
            "data": self._trainer.data.facts.values(),
        }

    def _enter(self, phase: str, **facts: Any) -> None:
        self._phase = phase
        self._channel.send("phase", phase=phase, **facts)

    def serve(self, memory: MemoryMeter, graphs: str | None) -> TrainResult:
        """Follow the coordinator's orders until this generation ends; return its result."""
        self._enter("ready")
        error = None
        while (order := self._next())["kind"] != "leave":
            if order["kind"] == "holders":
                self._map(order)
            elif order["kind"] == "take":
                self._take(order)
            elif order["kind"] == "load":
                self._load(order)
            elif order["kind"] == "go":
                error, is_over = self._train()
                if is_over:
                    return self._finish(error, memory, graphs)
        os.nice(_LEAVING)
        return self._result(None)

    def _next(self) -> Message:
        while (order := self._channel.next(_LOOK_S)) is None:
            if self._channel.lost_for_s() > self._job.grace_s:
                raise UserError(f"no coordinator for {self._job.grace_s:g} s")
        return order

    def _map(self, order: Message) -> None:
        """Open the memory that the state will be copied from, before its owners pause."""
        try:
            self._takeover = self._make_takeover(order)
        except UserError:
            self._takeover = None  # the owners have died; the coordinator will notice
            self._enter("mapped")
            return
        source = self._takeover.source
        self._enter("mapped", moved_by=source.moved_by, why=source.why)

    def _make_takeover(self, order: Message) -> Takeover:
        return Takeover(order, self._trainer.held, self._state, self._threads)

    def _take(self, order: Message) -> None:
        """Take over the state from other ranks' memory, usually opened by `_map` before."""
        takeover, self._takeover = self._takeover, None
        if takeover is None or takeover.facts["blocks"] != order["blocks"]:
            takeover = self._make_takeover(order)
        takeover.run()
        self._begin(Progress(**order["progress"]), takeover.bytes, takeover.source.moved_by)

    def _load(self, order: Message) -> None:
        """Load the state from a checkpoint or the family's initial state.

        Report a damaged file to the coordinator, which may have an older one.
        """
        path = Path(order["path"])
        try:
            check_tensors(path, self._comm)
        except DamagedError as damage:
            self._enter("damaged", why=str(damage))
            return
        progress = check_checkpoint(self._trainer.plan, path)
        self._trainer.held.load(path)
        self._begin(progress, 0, "file")

    def _begin(self, progress: Progress, moved: int, moved_by: Way) -> None:
        self._trainer.go_on_from(progress)
        self._start = progress
        self._enter("taken", moved_bytes=moved, moved_by=moved_by)

    def _train(self) -> tuple[str | None, bool]:
        """Train until the last step, or until all ranks agree to stop or pause.

        Returns the error that stopped training, if any, and whether the generation is over.
        """
        self._enter("training")
        trainer = self._trainer
        try:
            while trainer.progress.step < self._job.steps:
                facts = trainer.step(ask=self._ask(), before_update=self._finish_snapshot)
                if is_evaluated(self._job, facts.step, self._job.steps):
                    facts = replace(facts, evaluation_loss=trainer.evaluate())
                self._reports.add(facts, trainer.progress, self._channel)
                if self._is_over_after_step():
                    break
        except StoppedError as stopped:
            return f"{stopped}, first not finite: {trainer.first_not_finite()}", True
        finally:
            self._reports.flush(self._channel)
        if trainer.asked in (PAUSE, PAUSE_ON_HOST) and trainer.progress.step < self._job.steps:
            self._pause()
            return None, False
        return None, True

    def _finish_snapshot(self) -> None:
        """Finish a pending snapshot; report its steps before the snapshot itself."""
        if self._snapshots is not None and self._snapshots.is_pending:
            self._reports.flush(self._channel)
            self._snapshots.finish()

    def _ask(self) -> int:
        """Return this rank's request: the coordinator's order, which only rank 0 receives, or the
        end if there has been no coordinator for too long."""
        if self._channel.lost_for_s() > self._job.grace_s:
            return STOP
        return self._channel.ask

    def _is_over_after_step(self) -> bool:
        """Act on the requests agreed on with the last step; return whether to stop or pause."""
        step, asked = self._trainer.progress.step, self._trainer.asked
        if self._channel.ask == asked:
            self._channel.ask = NOTHING
        if self._snapshots is not None and step % (self._job.snapshot_every or 1) == 0:
            self._snapshots.begin(self._trainer.progress)
        if is_due(self._job, step):
            self._reports.flush(self._channel)
            self._save_checkpoint()
        return asked in (PAUSE, PAUSE_ON_HOST, STOP)

    def _save_checkpoint(self) -> None:
        """Write a checkpoint between steps; continue without it if it cannot be written.

        Recovery can still use the snapshots in memory and older files.
        """
        step = self._trainer.progress.step
        try:
            save_checkpoint(self._job, self._trainer, self._comm)
        except UserError as error:  # on all ranks
            self._channel.send("no-checkpoint", step=step, why=str(error))
        else:
            self._channel.send("checkpoint", step=step)

    def _pause(self) -> None:
        """Pause with an unchanging state, for the next generation to read."""
        self._finish_snapshot()
        if self._trainer.asked == PAUSE_ON_HOST:
            self._state.publish()
        self._enter("paused", progress=asdict(self._trainer.progress))

    def _finish(self, error: str | None, memory: MemoryMeter, graphs: str | None) -> TrainResult:
        """Write a checkpoint, export the trained model if training is complete, return the result.

        Then wait for the coordinator's permission to leave.
        """
        job, trainer, comm = self._job, self._trainer, self._comm
        is_complete = error is None and trainer.progress.step >= job.steps
        result = self._result(
            error,
            **measure(trainer, memory, comm),
            cuda_graphs=graphs,
            checkpoint=save_checkpoint(job, trainer, comm),
            export=export_trained(job, trainer, comm) if is_complete else None,
        )
        self._enter("done")
        self._wait_to_leave()
        return result

    def _wait_to_leave(self) -> None:
        """Wait until a coordinator has recorded every step, or the grace period ends."""
        order = None
        while order is None or order["kind"] != "leave":
            order = self._channel.next(_LOOK_S)
            if self._channel.lost_for_s() > self._job.grace_s:
                return

    def _result(self, error: str | None, **facts: Any) -> TrainResult:
        trainer, start = self._trainer, self._start
        return result_of(
            self._job,
            trainer.plan,
            trainer.progress,
            steps=trainer.progress.step - start.step,
            samples=trainer.progress.samples - start.samples,
            skipped=trainer.skipped,
            last_loss=self._reports.last_loss,
            error=error,
            **facts,
        )
