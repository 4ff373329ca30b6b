"""Plans of a model to measure: the graphs of a few plans on a few numbers of ranks."""

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
from tensoropt.compiler.planning.given_plan import read_given_plan
from tensoropt.compiler.planning.request import Request
from tensoropt.compiler.search.frontier.points import fastest, leanest
from tensoropt.compiler.search.frontier.search import FrontierPoint, FrontierResult
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.cut import copy_of
from tensoropt.dialects.mlir import ir
from tensoropt.passes.base import PassError
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.runtime.plan.dims import Sizes
from tensoropt.runtime.support.files import sha256_of

__all__ = ["MeasuredPlan", "Model", "PlanFiles", "prepare_model", "write_plans"]


@dataclass(frozen=True)
class Model:
    """A model to measure, ready for the search; ``training`` is set for a training step."""

    path: Path
    module: ir.Module
    training: BuildTrainingStepPass | None = None

    @property
    def batches(self) -> int:
        """The number of runs of the first graph in a step."""
        return 1 if self.training is None else self.training.micro_batches

    @cached_property
    def key(self) -> MeasuredModel:
        """The identity of the model in a description."""
        return MeasuredModel(self.path.name, sha256_of(self.path), self.training is not None)


@dataclass(frozen=True)
class PlanFiles:
    """A plan directory with its model, its name, and the inputs of its prediction."""

    model: Model
    name: str
    folder: Path
    step: PlannedStep
    predicted_bytes: int
    predicted_process_bytes: int | None = None

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.step.ranks

    @property
    def graphs(self) -> list[MeasuredGraph]:
        """The graphs of a step: one, or for training the gradients and the update."""
        name = f"{self.model.path.name}, {self.name} plan of {self.ranks} ranks"
        trains, alone = self.model.training is not None, not self.step.sends
        kinds = ("", ".update") if trains else ("",)
        paths = [self.folder / f"rank{{rank}}{kind}.onnx" for kind in kinds]
        return [MeasuredGraph(name, str(path), alone, trains) for path in paths]

    def step_s(self, times_s: Sequence[float]) -> float:
        """Return the time of a step from the times of ``graphs``; gradients run per micro-batch."""
        return self.model.batches * times_s[0] + sum(times_s[1:])

    def sample(self, measured: Sequence[Samples]) -> PlanSample:
        """Return the sample of the plan, made of the samples of its ``graphs``.

        It has no peak memory for a training step, which keeps state between its graphs.
        """
        nodes = [node for graph in measured for node in graph.nodes]
        peak_bytes = measured[0].peak_bytes if self.model.training is None else None
        time_s = self.step_s([graph.step_s for graph in measured])
        sizes = self.predicted_bytes, peak_bytes
        return PlanSample(self.model.key, self.name, self.step, time_s, nodes, *sizes)

    def fuse_updates(self) -> None:
        """Fuse the updates of its ranks into passes over arrays; inference has no updates."""
        for path in self.folder.glob("rank*.update.onnx"):
            fuse_update(path)

    def drop_graphs(self) -> None:
        """Remove all files except plan.json, as the weights of many plans would fill a disk."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path.name != PLAN_FILE:
                path.unlink()


@dataclass(frozen=True)
class MeasuredPlan:
    """A plan with the measured time of its step, and the time that the fit predicts."""

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
        """The relative error of the prediction."""
        return abs(self.ratio - 1.0)


def prepare_model(
    path: Path, dims: Mapping[str, Sizes], training: BuildTrainingStepPass | None = None
) -> Model:
    """Return the model in a file, prepared for a search. Raises :class:`UserError`."""
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


def write_plans(
    model: Model, ranks: int, device: Path, folder: Path, known: set[str], until: float
) -> Iterator[PlanFiles]:
    """Write the fastest, the leanest and the data-parallel plan on ``ranks``; yield the new ones.

    ``known`` collects the plans written so far: equal strategies are one plan. Only the first plan
    is started after ``until``, in seconds of the monotonic clock.
    """
    limit_s = max(until - time.monotonic(), 0.0) / 2
    # Without overlap, which would slow the nodes that run during a transfer.
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
