"""The training part of a plan: the tensors of a step, and the graphs that read and write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tensoropt.runtime.plan.entries import (
    GradientEntry,
    HyperEntry,
    LossEntry,
    OptimizerEntry,
    StateEntry,
    TensorEntry,
)
from tensoropt.runtime.plan.graphs import GRADIENTS, UPDATE
from tensoropt.runtime.plan.plan import Plan, Tensor, tensor_of
from tensoropt.runtime.plan.stages import Stages
from tensoropt.runtime.support.errors import UserError

__all__ = ["Gradient", "Hyper", "State", "TrainingPlan"]


@dataclass(frozen=True)
class State:
    """A parameter, buffer or moment; ``result`` is the output of ``graph`` that replaces it."""

    tensor: Tensor
    kind: str
    of: str | None
    result: str
    graph: str
    read_by: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def is_moment(self) -> bool:
        return self.kind not in ("parameter", "buffer")


@dataclass(frozen=True)
class Gradient:
    """A gradient that the first graph passes to the second, added to ``accumulator`` if any.

    With an accumulator it may be partial; the second graph then sums it over the ranks.
    """

    tensor: Tensor
    of: str
    accumulator: str | None


@dataclass(frozen=True)
class Hyper:
    """A scalar input that is set in every step."""

    name: str
    role: str
    dtype: str
    graphs: tuple[str, ...]


@dataclass(frozen=True)
class TrainingPlan:
    """A plan directory for training; ``batch`` is the number of samples in one run of the graph.

    ``start`` is "weights" if the plan includes the initial parameters and buffers, "checkpoint" if
    a run must pass them, as for a plan of a family.
    """

    plan: Plan
    batch: int
    micro_batches: int
    start: str
    loss: LossEntry
    loss_output: str
    weight_output: str | None
    optimizer: OptimizerEntry
    hyper: tuple[Hyper, ...]
    state: tuple[State, ...]
    gradients: tuple[Gradient, ...]
    stages: Stages | None

    @classmethod
    def from_plan(cls, plan: Plan) -> TrainingPlan:
        """Return the training part of ``plan``; raises `UserError` if it is missing or invalid."""
        training = plan.document.get("training")
        if training is None:
            raise UserError(
                f"{plan.folder}: is a plan for inference, "
                "expected one made by: tensoropt-opt MODEL --train --loss LOSS -o PLAN"
            )
        found = cls(
            plan,
            _batch(plan),
            training["micro_batches"],
            training["start"],
            training["loss"],
            training["loss_output"],
            training.get("weight_output"),
            training["optimizer"],
            tuple(_hyper(entry) for entry in training["hyper"]),
            tuple(_state(plan, entry) for entry in training["state"]),
            tuple(_gradient(plan, entry) for entry in training["gradients"]),
            plan.staged,
        )
        _check(found)
        return found

    @property
    def folder(self) -> Path:
        return self.plan.folder

    @property
    def samples_per_step(self) -> int:
        return self.batch * self.micro_batches

    @property
    def fullest(self) -> int:
        """The stage with the most memory; the predicted memory is for it."""
        entry = self.plan.document.get("stages")
        return 0 if entry is None else entry["fullest"]

    @property
    def scales_loss(self) -> bool:
        return any(hyper.role == "loss_scale" for hyper in self.hyper)

    def graph(self, rank: int, name: str) -> Path:
        """Return the path of a rank's graph by its name."""
        return self.plan.graph(rank, "" if name == GRADIENTS else name)

    def graphs(self, rank: int) -> Sequence[str]:
        """Return the names of a rank's graphs, in an order in which they can run."""
        return (GRADIENTS, UPDATE) if self.stages is None else self.stages.graphs[self.stage(rank)]

    def batches_of(self, rank: int) -> range:
        """Return the micro-batches of a step that a rank runs: all of them without replicas."""
        return self.plan.batches_of(rank) if self.plan.replicas > 1 else range(self.micro_batches)

    def place(self, rank: int) -> int:
        """Return the number of a rank in the mesh of its stage or replica."""
        return self.plan.place(rank)

    def stage(self, rank: int) -> int:
        """Return the stage of a rank."""
        return self.plan.stage(rank)

    def owners(self, state: State) -> range:
        """Return the ranks of the stage that updates a tensor, in the order of their places.

        All replicas update it; these are the ranks of the first.
        """
        stage = 0 if self.stages is None else self.stages.stage_of(state.graph)
        ranks = math.prod(self.plan.mesh)
        return range(stage * ranks, (stage + 1) * ranks)

    def state_of(self, rank: int) -> list[State]:
        """Return the state that a rank's graphs read or write."""
        own = self.graphs(rank)
        return [s for s in self.state if not {s.graph, *s.read_by}.isdisjoint(own)]

    def gradients_of(self, rank: int) -> list[Gradient]:
        """Return the gradients that a rank's update reads."""
        own = {s.name for s in self.state if s.graph in self.graphs(rank)}
        return [gradient for gradient in self.gradients if gradient.of in own]

    def initial(self, rank: int) -> Path:
        """Return the path of the rank's initial weights, in a plan that includes them."""
        return self.folder / "weights" / f"rank{rank}.safetensors"


def _batch(plan: Plan) -> int:
    """Return the size of the first dimension, which all inputs share."""
    first = plan.inputs[0] if plan.inputs else None
    for tensor in plan.inputs:
        if not tensor.shape or not isinstance(tensor.shape[0], int):
            raise UserError(f"{_where(plan)}: input '{tensor.name}': expected samples first")
        if first is not None and tensor.shape[0] != first.shape[0]:
            raise UserError(
                f"{_where(plan)}: input '{tensor.name}': expected samples first, "
                f"{first.shape[0]} as in input '{first.name}', got: {tensor.shape[0]}"
            )
    if first is None:
        raise UserError(f"{_where(plan)}: expected inputs to train on, got: none")
    return int(first.shape[0])


def _where(plan: Plan) -> Path:
    return plan.folder / "plan.json"


def _hyper(entry: HyperEntry) -> Hyper:
    return Hyper(entry["name"], entry["role"], entry["dtype"], tuple(entry["graphs"]))


def _state(plan: Plan, entry: StateEntry) -> State:
    return State(
        _tensor(plan, entry),
        entry["kind"],
        entry["of"],
        entry["result"],
        entry["graph"],
        tuple(entry["read_by"]),
    )


def _gradient(plan: Plan, entry: GradientEntry) -> Gradient:
    accumulator = entry["accumulator"]
    tensor = _tensor(plan, entry, is_sum=accumulator is not None)
    return Gradient(tensor, entry["of"], accumulator)


def _tensor(plan: Plan, entry: TensorEntry, *, is_sum: bool = False) -> Tensor:
    """Return a tensor that is stored on the ranks between the graphs; a sum may be partial."""
    place = f"{_where(plan)}: training: '{entry['name']}'"
    try:
        tensor = tensor_of(entry, plan.mesh)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None
    if tensor.layout.is_partial and not is_sum:
        raise UserError(f"{place}: expected no partial layout")
    if any(isinstance(size, str) for size in tensor.shape):
        raise UserError(f"{place}: expected known sizes")
    return tensor


def _check(found: TrainingPlan) -> None:
    plan = found.plan
    if plan.replicas > 1 and plan.batches != found.micro_batches:
        raise UserError(
            f"{_where(plan)}: replicas: expected the {found.micro_batches} micro-batches of a "
            f"step, got: {plan.batches}"
        )
    parameters = {state.name for state in found.state if state.kind == "parameter"}
    for owner in [*(s.of for s in found.state), *(g.of for g in found.gradients)]:
        if owner is not None and owner not in parameters:
            raise UserError(f"{_where(plan)}: training: '{owner}' is no parameter in state")
    for rank in range(plan.ranks):
        graphs = [found.graph(rank, name) for name in found.graphs(rank)]
        own = [found.initial(rank)] if found.start == "weights" else []
        for path in (*graphs, *own):
            name = path.relative_to(plan.folder).as_posix()
            if name not in plan.files:
                raise UserError(f"{_where(plan)}: files: expected {name} among them")
