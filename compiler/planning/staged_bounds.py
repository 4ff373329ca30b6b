"""Lower bounds on the times of all pipelines, from the searches of the mesh of one stage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tensoropt.compiler.planning.replicas import ReplicasBound
from tensoropt.compiler.planning.request import THROUGHPUT, Request
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.search.frontier.search import FrontierResult
from tensoropt.compiler.stages.bounds import (
    UNEVEN,
    least_interval_s,
    least_place_s,
    least_sent_s,
    least_shared_s,
    least_time_s,
    least_v_s,
    uneven_chunks,
)
from tensoropt.compiler.stages.branches import begin_s
from tensoropt.compiler.stages.families import FAMILIES
from tensoropt.compiler.stages.order import Floats, order_of
from tensoropt.compiler.stages.pipeline import Pipeline

__all__ = ["Bound", "UnlikeBound", "time_epsilon"]


@dataclass(frozen=True)
class Bound:
    """A search of one number of stages and of micro-batches, with the pipelines of its points."""

    found: FrontierResult
    pipelines: Sequence[Pipeline]
    request: Request
    graph: Graph

    @cached_property
    def _begins(self) -> list[int]:
        """The places at which parallel branches begin in some pipeline."""
        return sorted({branch.begin for own in self.pipelines for branch in own.branches})

    @property
    def one_stage_s(self) -> float:
        """A lower bound on the time of all work of a step; graphs start at no cost."""
        epsilon = self.found.time_epsilon
        if epsilon is None or not self.found.points:
            return 0.0
        starts_s = self.request.description.step_overhead_s * self.graph.runs
        return max(self.found.points[0].time_s / (1 + epsilon) - starts_s, 0.0)

    @property
    def least_s(self) -> float:
        """A lower bound on the time that is fast to compute."""
        is_sum = not self.graph.trains and self.request.objective != THROUGHPUT
        return self.one_stage_s / (1 if is_sum else self.request.stages)

    def best_s(self) -> float:
        """Return the best known lower bound.

        In training it includes the time to fill the stages; in inference the objective decides.
        """
        epsilon = self.found.time_epsilon
        if self.request.stages == 1 and epsilon is not None:
            return self.found.points[0].time_s / (1 + epsilon)
        if not self.one_stage_s:
            return 0.0
        return self._filled_s() if self.graph.trains else self._of_stream_s()

    def _of_stream_s(self) -> float:
        request = self.request
        overhead_s = request.description.step_overhead_s
        if request.objective != THROUGHPUT:
            return self.one_stage_s + request.stages * overhead_s
        _, place_s = least_place_s(self.graph, request.meshes, request.description)
        return least_interval_s(self.one_stage_s, place_s, request.stages, overhead_s)

    def _filled_s(self) -> float:
        request, stages, batches = self.request, self.request.stages, self.graph.micro_batches
        device = request.description
        place_s = least_place_s(self.graph, request.meshes, device)
        sent_s = least_sent_s(self.graph, request.meshes, device, stages)
        all_s = place_s[1]
        work_s = batches * float(all_s.sum())
        # On a mesh of one device operations have no other times.
        v_s = self.one_stage_s if all(mesh.size == 1 for mesh in request.meshes) else work_s
        bounds_s = []
        for kind, (early, late) in self._uneven(all_s).items():
            sizes = stages, batches, kind.chunks, early
            forward_s, passes_s, own_s = None, None, sent_s
            if kind.has_branches:
                order, own_s = order_of(self.graph), 0.0
                forward_s, passes_s = (begin_s(order, own, self._begins) for own in place_s)
            bound_s = least_time_s(self.one_stage_s, place_s, *sizes, own_s, forward_s)
            if not kind.splits_weights:
                both = least_time_s(work_s, (all_s, all_s), *sizes, 2 * own_s, passes_s)
                bound_s = max(bound_s, both)
            if kind.is_v and not kind.has_branches:
                by_v = least_v_s(v_s, place_s, stages, batches, (early, late), sent_s)
                bound_s = max(bound_s, by_v)
            bounds_s.append(bound_s)
        return min(bounds_s, default=math.inf)

    def _uneven(self, place_s: Floats) -> dict[_Kind, tuple[float, float]]:
        """Return by how many chunks cuts may differ from even ones: early, and late.

        All pipelines of a kind differ by no more. ``place_s`` has the least times of places.
        """
        found: dict[_Kind, tuple[float, float]] = {}
        for own in self.pipelines:
            kind = _Kind.of_pipeline(own)
            most = found.setdefault(kind, (UNEVEN, UNEVEN))
            if kind.has_branches:
                found[kind] = math.inf, math.inf
            elif kind.chunks > 1:
                early, late = uneven_chunks(place_s, own.cuts, own.stages)
                found[kind] = max(early, most[0]), max(late, most[1])
        return found


class _Kind(NamedTuple):
    """Pipelines with a bound in common; they have the same number of ``chunks`` per stage.

    In a V, micro-batches go along the stages and back.
    """

    chunks: int
    is_v: bool
    splits_weights: bool
    has_branches: bool

    @classmethod
    def of_pipeline(cls, own: Pipeline) -> _Kind:
        family, is_v = FAMILIES[own.family], own.orders.places[-1] < own.stages - 1
        return cls(family.chunks, is_v, family.splits_weights, bool(own.branches))


@dataclass(frozen=True)
class UnlikeBound:
    """All pipelines of one number of stages and of micro-batches on unlike devices."""

    request: Request
    graph: Graph
    stages: int
    chunks: int

    @property
    def least_s(self) -> float:
        return 0.0

    def best_s(self) -> float:
        """Return a lower bound on the time; it leaves out communication."""
        groups, size = self.request.groups, self.request.devices // self.stages
        place_s = []
        for group in groups:
            own = replace(self.request, device=group.name, stages=self.stages)
            place_s.append(least_place_s(self.graph, own.meshes, own.description)[1])
        if not self.graph.trains and self.request.objective != THROUGHPUT:
            return float(np.min(place_s, axis=0).sum())
        stages = [group.count // size for group in groups]
        return least_shared_s(place_s, stages, self.chunks) * self.graph.micro_batches


def time_epsilon(
    time_s: float, bounds: Sequence[Bound | UnlikeBound | ReplicasBound]
) -> float | None:
    """Return the relative excess of ``time_s`` over the least bound of all searches.

    The closer bounds are computed where they may decide.
    """
    least_s = math.inf
    for own in sorted(bounds, key=lambda one: one.least_s):
        if own.least_s >= min(least_s, time_s):
            break
        least_s = min(least_s, own.best_s())
    least_s = min(least_s, time_s)
    return time_s / least_s - 1 if least_s > 0 else None
