"""The search's problem for a graph: times and bytes of every assignment on one mesh.

Times add up. Memory is a static sum and a transient maximum. Parameters, and constants that ONNX
Runtime folds from them, are static; the tensors of one op are transient. Equal ops share their
tables, so that the engine solves repeated layers once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Self

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.search.problem.cost_tables import Assignment, CostTables, Flags
from tensoropt.compiler.search.problem.model_problem import ModelProblem, TensorEnds
from tensoropt.compiler.search.problem.problem import NodeTable, Problem

__all__ = ["MeshTables"]


class MeshTables(CostTables):
    """The cost tables of a graph on one mesh of one device description, and their problem.

    The nodes of the problem that decide the layouts of tensors are its ``ends``.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ends = TensorEnds()

    @property
    def learns(self) -> bool:
        """True if the tables charge at most the memory of programs, and learn from programs."""
        return True

    @property
    def leaders(self) -> list[int]:
        """The graph nodes of the first nodes of the problem, in its order."""
        return self.variables

    @property
    def rest_bytes(self) -> int:
        """The memory of a process without its tensors, the same for all plans."""
        return self.device.rest_bytes(self.mesh.size, trains=self.graph.trains)

    @cached_property
    def problem(self) -> Problem:
        """The problem of the graph; memory includes the rest of a process, on the first node."""
        problem = self._connect()
        if self.rest_bytes:
            first = problem.nodes[0] if problem.nodes else NodeTable([0.0])
            static_bytes = first.static_bytes + self.rest_bytes
            problem.nodes[:1] = [NodeTable(first.time_s, static_bytes, first.transient_bytes)]
        return problem

    def _connect(self) -> Problem:
        """Return the problem of the tensors; see :class:`ModelProblem`."""
        model = ModelProblem(self)
        self.ends = model.ends
        return model.build()

    def build(self) -> Problem:
        """Return the problem; the first call builds it and all records about it."""
        return self.problem

    def forget_edges(self) -> None:
        """Free the problem too."""
        self.__dict__.pop("problem", None)
        super().forget_edges()

    def moved_to(self, device: Device) -> MeshTables:
        """Return the tables of the same strategies on another device."""
        tables = MeshTables(self.graph, self.mesh, device)
        tables.options = self.options
        return tables

    @cached_property
    def ample(self) -> Self:
        """The tables of the same plans, with programs in which collectives start early."""
        tables = copy(self)
        tables.options = self.options
        tables.device, tables.evaluator = self.device.with_ample_memory(), None
        tables.forget_edges()
        return tables

    def choices(self, index: int) -> Sequence[Strategy]:
        """Return the strategy of a leader under each option of its node of the problem."""
        return self.options[index]

    def decode(self, assignment: Assignment) -> Assignment:
        """Return the option of each of ``variables`` in an assignment of the problem."""
        return assignment[: len(self.variables)]

    def on_variables(self, masks: Mapping[int, Flags]) -> dict[int, Flags]:
        """Return ``masks`` of graph nodes as masks over the options of the problem's nodes."""
        position = {node: number for number, node in enumerate(self.variables)}
        return {position[node]: mask for node, mask in masks.items()}
