"""The graphs that ranks would run of a model: those of a few plans, on a few numbers of ranks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from tensoropt.compiler.calibrate.graphs import fuse_update
from tensoropt.compiler.calibrate.planned import PlannedStep, planned_step
from tensoropt.compiler.calibrate.ranks import MeasuredGraph, Samples
from tensoropt.compiler.calibrate.samples import PlanSample
from tensoropt.compiler.cost.expected_error import MeasuredModel
from tensoropt.compiler.exporter.plan.writer import PLAN_FILE
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.given_plan import read_given_plan
from tensoropt.compiler.search.frontier.points import fastest, leanest
from tensoropt.compiler.search.frontier.request import Request
from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.cut import copy_of
from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import PassError
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.plan.dims import Sizes
from tensoropt.runtime.support.files import sha256_of

__all__ = ["MeasuredPlan", "Model", "PlanFiles", "prepared", "written_plans"]


@dataclass(frozen=True)
class Model:
    """A model to measure, ready for the search; ``training`` is the step that it is, if any."""

    path: Path
    module: ir.Module
    training: BuildTrainingStepPass | None = None

    @property
    def batches(self) -> int:
        """How often the first graph runs in a step."""
        return 1 if self.training is None else self.training.micro_batches

    @cached_property
    def key(self) -> MeasuredModel:
        """What tells it apart in a description."""
        return MeasuredModel(self.path.name, sha256_of(self.path), self.training is not None)


@dataclass(frozen=True)
class PlanFiles:
    """A plan directory: which plan of which model it is, and what its prediction is made of."""

    model: Model
    name: str
    folder: Path
    step: PlannedStep
    predicted_bytes: int
    predicted_process_bytes: int | None = None

    @property
    def ranks(self) -> int:
        """How many ranks run it."""
        return self.step.ranks

    @property
    def graphs(self) -> list[MeasuredGraph]:
        """What its ranks run in a step: one graph, or for training gradients and update."""
        name = f"{self.model.path.name}, {self.name} plan of {self.ranks} ranks"
        trains, alone = self.model.training is not None, not self.step.sends
        kinds = ("", ".update") if trains else ("",)
        paths = [self.folder / f"rank{{rank}}{kind}.onnx" for kind in kinds]
        return [MeasuredGraph(name, str(path), alone, trains) for path in paths]

    def step_s(self, times_s: Sequence[float]) -> float:
        """Return the time of a step from those of ``graphs``: gradients once per micro-batch."""
        return self.model.batches * times_s[0] + sum(times_s[1:])

    def sample(self, measured: Sequence[Samples]) -> PlanSample:
        """Return what was measured of it: of each of its ``graphs``.

        Of a step of training the memory is not that of its graphs one by one.
        """
        nodes = [node for graph in measured for node in graph.nodes]
        peak_bytes = measured[0].peak_bytes if self.model.training is None else None
        time_s = self.step_s([graph.step_s for graph in measured])
        sizes = self.predicted_bytes, peak_bytes
        return PlanSample(self.model.key, self.name, self.step, time_s, nodes, *sizes)

    def fuse_updates(self) -> None:
        """Make the updates of its ranks passes over arrays; of a forward pass there are none."""
        for path in self.folder.glob("rank*.update.onnx"):
            fuse_update(path)

    def drop_graphs(self) -> None:
        """Remove all but plan.json: weights of many plans would fill a disk."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path.name != PLAN_FILE:
                path.unlink()


@dataclass(frozen=True)
class MeasuredPlan:
    """A plan, and the time of its step as measured and as predicted from the fit."""

    model: str
    name: str
    ranks: int
    measured_s: float
    predicted_s: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_s / self.measured_s

    @property
    def error(self) -> float:
        """The relative error of what was predicted."""
        return abs(self.ratio - 1.0)


def prepared(
    path: Path, dims: Mapping[str, Sizes], training: BuildTrainingStepPass | None = None
) -> Model:
    """Return the model in a file; raises :class:`UserError` for what is wrong with it."""
    if path.suffix != ".onnx":
        raise UserError(f"{path}: expected an .onnx model")
    try:
        module = driver.load(path, dims, training=training is not None)
        if training is None:
            driver.advance(module, "rules")
        else:
            driver.run_phase(module, "prepare", training=True)
            driver.train(module, training)
    except PassError as error:
        raise UserError(f"{path}: {error}") from error
    return Model(path, module, training)


def written_plans(
    model: Model, ranks: int, device: Path, folder: Path, known: set[str], until: float
) -> Iterator[PlanFiles]:
    """Write the fastest, the leanest and the data-parallel plan on ``ranks``; yield the new ones.

    ``known`` collects what was written before: equal strategies are one plan. None but the first is
    begun after ``until``, in seconds of the clock that does not jump.
    """
    limit_s = max(until - time.monotonic(), 0.0) / 2
    # Nodes beside a transfer would take longer than they do.
    request = Request(ranks, device=str(device), epsilon=1.0, search_time=limit_s, overlap="off")
    for number, (name, own, result, point) in enumerate(_points(model, request)):
        if number and time.monotonic() > until:
            return
        directory = folder / f"{model.path.stem}-{ranks}-{len(known)}"
        module = copy_of(model.module)
        driver.settle(module, point, own, result)
        driver.compile_plan(module, model.path, directory)
        document = read_given_plan(directory / PLAN_FILE)
        key = json.dumps([str(model.path), *(document[k] for k in ("mesh", "strategies"))])
        predicted = document["predicted"]
        sizes = predicted["memory_bytes"], predicted.get("process_bytes")
        files = PlanFiles(model, name, directory, planned_step(point), *sizes)
        if key in known:
            files.drop_graphs()
            continue
        known.add(key)
        yield files


def _points(
    model: Model, request: Request
) -> Iterator[tuple[str, Request, FrontierResult, FrontierPoint]]:
    result = driver.frontier(model.module, request)
    yield "fastest", request, result, fastest(result.points)
    if request.devices == 1:
        return
    yield "leanest", request, result, leanest(result.points)
    own = replace(request, search="data-parallel", search_time=None)
    result = driver.frontier(model.module, own)
    yield "data-parallel", own, result, result.points[0]
