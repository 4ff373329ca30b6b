"""The problem of a training step: a variable per cluster, and edges for the tensors between them.

Forward and backward pass are charged together: an edge has the reshards of an activation and of its
gradient, and the bytes saved for the backward pass. The layouts of a stored parameter, of its
gradient and of its moments are variables like others. So ZeRO (arXiv 1910.02054) is a choice:
stored whole with split moments is its stage 1 or 2 (gradients are always split like moments). All
split is stage 3, fetched once for the forward and once for the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.program.graph import Graph
from tensoropt.compiler.search.problem.cluster_kind import ClusterKind
from tensoropt.compiler.search.problem.clusters import Cluster, clusters_of
from tensoropt.compiler.search.problem.cost_tables import Assignment, Flags, Memo
from tensoropt.compiler.search.problem.problem import Problem
from tensoropt.compiler.search.problem.shared_gradients import SharedGradient
from tensoropt.compiler.search.problem.small_step import small_step
from tensoropt.compiler.search.problem.step_problem import StepProblem
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["TrainingTables", "mesh_tables"]


class TrainingTables(MeshTables):
    """The options and costs of a training step on one mesh."""

    pins_nodes = False  # a cluster has the options that meet the pins of all members

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clusters = clusters_of(self.graph)
        self._cluster_of = {m: n for n, c in enumerate(self.clusters) for m in c.members}
        self._options: Sequence[ClusterKind | SharedGradient] | None = None
        self._is_exact: bool | None = None

    @property
    def leaders(self) -> list[int]:
        return [cluster.leader for cluster in self.clusters]

    def kind(self, cluster: Cluster) -> ClusterKind:
        """Return the costs of a cluster, the same for all equal clusters."""
        return self._kinds[self._cluster_of[cluster.leader]]

    @cached_property
    def _kinds(self) -> list[ClusterKind]:
        has_marks, found = self._fused or self.graph.conditions, list[ClusterKind]()
        for cluster in self.clusters:
            marks = self._mark(cluster) if has_marks else 0
            make = partial(ClusterKind, self, cluster)
            found.append(self.known.get(("cluster", cluster.kind, marks), make))
        return found

    def _mark(self, cluster: Cluster) -> int:
        """Return a number for the properties of the members that the kind of a cluster lacks."""
        fused = tuple(self.is_fused(self.graph.nodes[member]) for member in cluster.members)
        pins = tuple(self.graph.conditions.get(member, ()) for member in cluster.members)
        return self.graph.intern((fused, pins))

    def _picks(self, number: int) -> NDArray[np.int32]:
        """Return the strategies [option, member] of a cluster as a node of the problem."""
        return (self._options or self._kinds)[number].picks

    def choices(self, index: int) -> Sequence[Strategy]:
        """Return the strategy of a leader under each option of its node of the problem."""
        picks = self._picks(self._cluster_of[index])[:, 0]
        return [self.options[index][number] for number in picks.tolist()]

    def decode(self, assignment: Assignment) -> Assignment:
        """Return the option of each of ``variables`` in an assignment of the problem."""
        picked = np.zeros(len(self.graph.nodes), dtype=np.int32)
        for number, option in enumerate(assignment[: len(self.clusters)].tolist()):
            picked[self.clusters[number].members] = self._picks(number)[option]
        return picked[self.variables]

    def _connect(self) -> Problem:
        """Return the problem of a step; a small one has the costs of its programs.

        See ``small_step.py``, and :class:`StepProblem` for others.
        """
        step = StepProblem(self, self._kinds)
        members = [cluster.members for cluster in self.clusters]
        picks = [kind.picks for kind in self._kinds]
        own = small_step(self, members, picks, step.constant_edges)
        self._is_exact, self._options = own is not None, step.options
        return own or step.build()

    @property
    def learns(self) -> bool:
        """True if the tables charge at most the memory of programs, as in small steps."""
        if self._is_exact is None:
            self.build()
        return bool(self._is_exact)

    @property
    def is_small(self) -> bool:
        """True if tables learn until points have the memory of programs."""
        return self.learns

    def on_variables(self, masks: Mapping[int, Flags]) -> dict[int, Flags]:
        """Return ``masks`` of graph nodes as masks over the options of the problem's nodes."""
        found: dict[int, Flags] = {}
        for node, mask in masks.items():
            number = self._cluster_of[node]
            picked = self._picks(number)[:, self.clusters[number].members.index(node)]
            found[number] = found.get(number, True) & mask[picked]
        return found


def mesh_tables(graph: Graph, mesh: Mesh, device: Device, memo: Memo | None = None) -> MeshTables:
    """Return the tables of a model or of a training step; see :class:`CostTables` for ``memo``."""
    return (TrainingTables if graph.trains else MeshTables)(graph, mesh, device, memo)
