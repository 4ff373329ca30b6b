"""One rank's training step: two graphs over arrays that stay where they are.

The new value of a state tensor is written over the old one. That is safe because every node that
reads a state tensor is an ancestor of the one that writes it, or is that one, element by element:
the compiler sees to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from tensoropt.runtime.device.provider import PlacedArray
from tensoropt.runtime.session.session import RankSession, training_session
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.constants import constant_bytes
from tensoropt.runtime.training.finite import FiniteCheck
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held

__all__ = ["ROLES", "TrainingStep"]

ROLES = ("gradients", "update")
"""The graphs of a step, in the order in which they run."""

_LARGE = 1 << 26  # bytes


class TrainingStep:
    """The sessions of one rank and all that they read and write; sessions are made at once.

    ``batch``, ``scalars`` and ``loss`` are where the rank computes. The graphs as ONNX Runtime
    optimises them go to ``folder``, if given. Those of the roles ``captured`` are to run as CUDA
    graphs; raises `UserError` where one cannot.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        state: Held,
        threads: int,
        folder: Path | None = None,
        captured: Collection[str] = (),
    ) -> None:
        self.plan, self.held = plan, state
        make = state.provider.zeros
        self.batch = {t.name: make(t.local_shape(), dtype_of(t.dtype)) for t in plan.plan.inputs}
        self.scalars = {h.name: make((), dtype_of(h.dtype)) for h in plan.hyper}
        self.loss = make((), dtype_of(plan.plan.outputs[0].dtype))
        self._folder = folder
        graphs = (plan.plan.graph(state.rank), plan.update_graph(state.rank))
        self._files = [self._optimised(graph) or graph for graph in graphs]
        self.gradients, self.update = (
            training_session(
                graph,
                threads,
                None if file == graph else file,
                provider=state.provider,
                graphs=role in captured,
                transient_bytes=plan.plan.transient_bytes,
                fused=role == "update",
            )
            for role, graph, file in zip(ROLES, graphs, self._files, strict=True)
        )
        self._bind("gradients", self.gradients, self._read_first(), {plan.loss_output: self.loss})
        self._bind("update", self.update, state.gradients, {})
        self.gradients_are_finite = FiniteCheck(list(state.gradients.values()), state.provider)

    def _optimised(self, graph: Path) -> Path | None:
        """Return where the optimised graph goes, None where large weights would go with it."""
        if self._folder is None or constant_bytes(graph) > _LARGE:
            return None
        return self._folder / graph.name

    def constant_bytes(self) -> int:
        """Return the size of what the sessions hold by themselves.

        That is with folded constants where a folder was given, which must still be there.
        """
        return sum(map(constant_bytes, self._files))

    def nodes_on_cpu(self) -> int | None:
        """Return how many nodes a device left to the CPU, None where all are meant to be there."""
        counts = self.gradients.nodes_on_cpu(), self.update.nodes_on_cpu()
        return None if None in counts else sum(count or 0 for count in counts)

    def _read_first(self) -> dict[str, PlacedArray]:
        """Return what the first graph reads beside state and scalars."""
        sums = {g.accumulator: self.held.gradients[g.tensor.name] for g in self.plan.gradients}
        return {**self.batch, **{name: array for name, array in sums.items() if name is not None}}

    def _bind(
        self,
        role: str,
        graph: RankSession,
        read: Mapping[str, PlacedArray],
        written: Mapping[str, PlacedArray],
    ) -> None:
        state, plan = self.held, self.plan
        read = {**read, **self.scalars, **state.state}
        changed = {s.result: state.state[s.name] for s in plan.state if s.graph == role}
        written = {**written, **changed, **(state.gradients if role == "gradients" else {})}
        for names, arrays, bind in (
            (graph.inputs, read, graph.read),
            (graph.outputs, written, graph.write),
        ):
            for name in names:
                if name not in arrays:
                    raise UserError(f"{plan.folder}: {role} graph: unknown tensor '{name}'")
                bind(name, arrays[name])

    def capture(self) -> None:
        """Run both graphs on what their arrays hold, so that CUDA graphs are there afterwards.

        ONNX Runtime runs a graph several times to capture it, which a step must not be: the state
        is to be loaded after this. Raises `UserError`.
        """
        self.gradients.run()
        self.update.run()

    def set(self, role: str, value: float) -> None:
        """Set the scalars of a role for the runs to come."""
        for hyper in self.plan.hyper:
            if hyper.role == role:
                scalar = self.scalars[hyper.name]
                scalar.put(np.array(value, scalar.dtype))

    def start(self) -> None:
        """Begin a step: sums of gradients become zeros."""
        if any(gradient.accumulator is not None for gradient in self.plan.gradients):
            self.held.clear_gradients()

    def feed(self, batch: Mapping[str, Array]) -> None:
        """Set what the first graph reads: the rank's part of one micro-batch, by input."""
        for name, array in batch.items():
            self.batch[name].put(array)

    def forward_backward(self) -> float:
        """Run the first graph on one micro-batch; returns its loss. Raises `UserError`."""
        self.gradients.run()
        return float(self.loss.get())
