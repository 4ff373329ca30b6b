"""The profile of a machine: the order of all measurements, and their result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from tensoropt.compiler.calibrate import basics
from tensoropt.compiler.calibrate.cross_validation import measured_models
from tensoropt.compiler.calibrate.description import Description
from tensoropt.compiler.calibrate.description_fit import Identity, describe
from tensoropt.compiler.calibrate.floor import Floor
from tensoropt.compiler.calibrate.machine import machine_of
from tensoropt.compiler.calibrate.machine_load import busy_fraction
from tensoropt.compiler.calibrate.overlap import measure_overlap
from tensoropt.compiler.calibrate.plans import MeasuredPlan, Model, PlanFiles, write_plans
from tensoropt.compiler.calibrate.processes import measure_process, plan_process_bytes
from tensoropt.compiler.calibrate.ranks import Ranks
from tensoropt.compiler.calibrate.samples import Basics, Measurements, PlanSample
from tensoropt.compiler.cost.device import load_device
from tensoropt.compiler.planning.request import device_counts
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.support.rank_options import RankOptions

__all__ = ["Calibration", "ProfileRequest", "run"]


@dataclass(frozen=True)
class ProfileRequest:
    """Request for a profile, on up to ``ranks`` ranks, that takes about ``budget_s`` seconds.

    The budget starts at ``started_s`` of the monotonic clock. Measurements from ``before``, on the
    same kind of machine, are merged in.
    """

    models: Sequence[Model]
    ranks: int
    options: RankOptions
    name: str
    base: str
    quick: bool
    budget_s: float
    before: Measurements | None = None
    started_s: float = field(default_factory=time.monotonic)

    @property
    def end_s(self) -> float:
        """The end of the budget, in seconds of the monotonic clock."""
        return self.started_s + self.budget_s


@dataclass(frozen=True)
class Calibration:
    """A device description, measured and predicted plans, and the lines on left-out graphs.

    ``busy`` is the fraction of the machine that other work took before the measurements.
    """

    description: Description
    measured: Measurements
    plans: Sequence[MeasuredPlan]
    left_out: Sequence[str]
    busy: float | None = None


_LOOK_S = 0.5
_PART = 1 / 200  # of the budget, for the runs of one graph
_OPERATORS, _COLLECTIVES = 0.25, 0.25  # of the remaining budget, if there are models
_LAST = 0.1  # of the budget, for the predictions at the end
_MOST_BYTES = 1 << 24
_QUICK_BYTES = 1 << 20


def run(request: ProfileRequest, folder: Path, say: Callable[[str], None]) -> Calibration:
    """Measure the machine; ``folder`` is temporary space for graphs, plans and traces.

    Common operators come first. Then each round searches plans with the description so far and
    measures them. So the plans that later searches find were measured.
    """
    return _Run(request, folder, say).run()


@dataclass
class _Run:
    request: ProfileRequest
    folder: Path
    say: Callable[[str], None]
    known: set[str] = field(default_factory=set)
    floors: dict[Path, Floor] = field(default_factory=dict)

    def run(self) -> Calibration:
        request, busy = self.request, busy_fraction(_LOOK_S)
        self.ranks = Ranks(request.options, self.say)
        self.measured = self._basics()
        if request.models:
            self._rounds()
        self.say("fitting")
        description = self._describe(checked=True)
        left_out = list(dict.fromkeys(self.ranks.left_out))
        predictions = self._predictions(description)
        return Calibration(description, self.measured, predictions, left_out, busy)

    @property
    def seconds(self) -> float:
        """Time for the runs of one graph, in seconds; less for many models."""
        return self.request.budget_s * _PART / max(len(self.request.models) / 2, 1.0)

    def _basics(self) -> Measurements:
        """Measure everything that needs no model; common operators as far as time allows."""
        request, seconds = self.request, self.seconds
        machine = machine_of(self.ranks, request.ranks)
        before = request.before
        if before is not None and before.machine != machine:
            raise UserError(
                f"-o: the file has measurements of {before.machine}, expected the same machine and "
                f"flags, or --anew, got: {machine}"
            )
        where = self.ranks, request.ranks, self.folder
        floor = basics.measure_floor(*where, seconds)
        peaks = basics.measure_peaks(*where, seconds, floor)
        bandwidth = basics.measure_bandwidth(*where, seconds)
        process = measure_process(*where, load_device(request.base).process)
        most = _QUICK_BYTES if request.quick else _MOST_BYTES
        overlap = measure_overlap(*where, seconds, most)
        self._allow(_OPERATORS if request.models else 0.5)
        common = basics.measure_operators(*where, seconds, floor)
        self._allow(_COLLECTIVES if request.models else 1.0)
        collectives = basics.measure_collectives(*where, seconds, floor, most)
        memory = basics.capacity_bytes(self.ranks, request.ranks)
        own = Basics(floor, peaks, bandwidth, memory, process, overlap)
        found = Measurements(machine, own, common, collectives)
        return found if before is None else before.merge(found)

    def _allow(self, part: float) -> None:
        """Limit the ranks to ``part`` of the remaining time."""
        now = time.monotonic()
        self.ranks.until = now + part * max(self.request.end_s - now, 0.0)

    def _describe(self, *, checked: bool = False) -> Description:
        """Return the description so far; with ``checked`` it has the expected error."""
        request = self.request
        plans = self.measured.plans
        names = dict.fromkeys(own.name for own in measured_models(plans))
        source = (
            f"Measured by tensoropt-profile on {time.strftime('%Y-%m-%d')}: "
            f"{request.ranks} ranks of {request.options.threads} threads, "
            f"provider {request.options.provider}, "
            f"{', '.join(names) or 'common operators'}."
        )
        identity = Identity(request.name, load_device(request.base), source)
        return describe(identity, self.measured, checked=checked)

    def _rounds(self) -> None:
        """Plan and measure: each round, model and number of ranks has an equal share of the time.

        If that share is too short, the first steps get the time that they need.
        """
        request = self.request
        rounds, counts = range(1 if request.quick else 2), device_counts(request.ranks)
        steps = [(m, n) for _ in rounds for m in request.models for n in counts]
        late: dict[str, None] = {}
        for done, (model, count) in enumerate(steps):
            left_s = request.end_s - _LAST * request.budget_s - time.monotonic()
            if left_s <= 0:
                late[f"{model.path.name}, plans of {count} ranks"] = None
                continue
            device = self.folder / f"step{done}.toml"  # files are read once
            device.write_text(self._describe().toml(), encoding="utf-8")
            part_s = max(left_s / (len(steps) - done), 4 * self.ranks.start_s + 50 * self.seconds)
            self._step(model, count, device, min(part_s, left_s))
        if late:
            self.ranks.left_out.append(self.ranks.out_of_time(list(late)))

    def _step(self, model: Model, count: int, device: Path, seconds: float) -> None:
        """Spend about ``seconds`` on plans of a model on ``count`` ranks, half on the search."""
        self.say(f"planning {model.path.name} for {count} ranks")
        begun_s = time.monotonic()
        until = begun_s + seconds / 2
        try:
            written = list(write_plans(model, count, device, self.folder, self.known, until))
        except UserError as error:
            self.ranks.left_out.append(f"{model.path.name}, plans of {count} ranks: {error}")
            return
        end_s = begun_s + seconds
        # Leave time for the jobs at the end, which measure the memory of processes.
        self.ranks.until = end_s - min(len(written) * self.ranks.start_s, seconds / 4)
        for plan in written:
            plan.fuse_updates()
        graphs = [graph for plan in written for graph in plan.graphs]
        # The overhead of tracing is fitted to graphs without collectives; other graphs use the last
        # floor of their model.
        floor = self.measured.basics.floor
        own = self.floors.get(written[0].model.path, floor) if written else floor
        measured = iter(self.ranks.samples(graphs, count, 4 * self.seconds, own))
        self.ranks.until = end_s
        for plan in written:
            found = [result for result in islice(measured, len(plan.graphs)) if result is not None]
            if len(found) == len(plan.graphs):
                self.measured.add(self._with_process(plan, plan.sample(found)))
            self.floors.update((plan.model.path, result.floor) for result in found[:1])
            plan.drop_graphs()

    def _with_process(self, plan: PlanFiles, sample: PlanSample) -> PlanSample:
        """Return the sample with the predicted and measured bytes of a rank's process.

        A training step has none, as it needs data.
        """
        if plan.model.training is not None or plan.predicted_process_bytes is None:
            return sample
        taken = plan_process_bytes(self.ranks, plan.folder)
        predicted = plan.predicted_process_bytes
        return replace(sample, predicted_process_bytes=predicted, process_bytes=taken)

    def _predictions(self, description: Description) -> list[MeasuredPlan]:
        return [
            MeasuredPlan(
                plan.model.name,
                plan.name,
                plan.step.ranks,
                plan.measured_s,
                plan.step.time_s(description.device),
            )
            for plan in self.measured.plans
        ]
