"""A rank's session in a plan with stages: it receives values, runs its graph, and sends others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.session.messages import Messages
from tensoropt.runtime.session.session import RankSession
from tensoropt.runtime.session.stage import StageGraphs
from tensoropt.runtime.support.options import OptionError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["StagedSession", "check_staged"]


def check_staged(plan: Plan, *, cuda_graphs: bool, debug: bool = False) -> None:
    """Raise `UserError` for options that a plan in stages or on replicas cannot have."""
    if debug and plan.replicas > 1:
        raise OptionError("{debug}: {0} is on replicas, expected a plan for one mesh", plan.folder)
    if plan.staged is None:
        return
    if cuda_graphs:
        raise OptionError(
            "{cuda_graphs}: {0} is in stages, which run without CUDA graphs", plan.folder
        )
    if debug:
        raise OptionError(
            "{debug}: {0} is in stages, expected a plan made with --stages 1", plan.folder
        )


class StagedSession(RankSession):
    """The session of the one graph that a stage runs for each input; `join` it before a run.

    A run waits for the values of earlier stages, and returns while its own are being sent, so all
    stages work at the same time, on different inputs. Those of one earlier run may still be on
    their way, which limits the memory of a stage that is faster than the next one.
    """

    def join(self, plan: Plan, comm: MPI.Comm, provider: Provider) -> None:
        """Connect the stages; a collective of all ranks. Raises `UserError`."""
        stages, stage, place = plan.staged, plan.stage(comm.rank), plan.place(comm.rank)
        assert stages is not None
        self._messages = Messages(comm.Dup(), place, math.prod(plan.mesh))
        (graph,) = stages.graphs[stage]
        self._graphs = StageGraphs(stages, stage, {graph: self}, self._messages, provider)
        self._messages.check_tags(self._graphs.tags, str(plan.folder))
        self._tasks = stages.schedule.orders[stage]
        self._sends = self._graphs.sends

    def run(self) -> None:
        """Run the stage once; all stages must. Raises `UserError`."""
        self._messages.end_sends(self._sends)
        for task in self._tasks:
            self._graphs.run(task, compute=super().run)
