"""One rank's training step: two graphs over persistent arrays.

State tensors are updated in place. That is safe because the compiler guarantees that each node that
reads a state tensor is an ancestor of its writer, or is the writer itself, elementwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from tensoropt.runtime.device.provider import PlacedArray
from tensoropt.runtime.plan.graphs import GRADIENTS, UPDATE
from tensoropt.runtime.session.session import RankSession, training_session
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.training.constants import constant_bytes
from tensoropt.runtime.training.finite import FiniteCheck
from tensoropt.runtime.training.loss import BatchLoss
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held

__all__ = ["ROLES", "Step", "TrainingStep"]

ROLES = (GRADIENTS, UPDATE)
"""The graphs of a step, in execution order."""

_LARGE = 1 << 26  # bytes


class Step:
    """The sessions, the scalars and the loss of a rank's training step, on the rank's device.

    ``sums`` accumulate gradients. ``sessions`` has the ``names`` of the graphs; the one called
    ``update`` fuses its operators. ONNX Runtime writes its optimised graphs to ``folder``, if
    given. The graphs ``captured`` run as CUDA graphs. Creates all sessions; raises `UserError`,
    also for a graph that cannot be captured.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        state: Held,
        names: Sequence[str],
        update: str,
        threads: int,
        folder: Path | None = None,
        captured: Collection[str] = (),
    ) -> None:
        self.plan, self.held = plan, state
        graphs = {name: plan.graph(state.rank, name) for name in names}
        # An optimised graph would include large weights, so it is not written then.
        self._files = {
            name: folder / graph.name
            if folder is not None and constant_bytes(graph) <= _LARGE
            else graph
            for name, graph in graphs.items()
        }
        self.sessions: dict[str, RankSession] = {
            name: training_session(
                graph,
                threads,
                None if self._files[name] == graph else self._files[name],
                provider=state.provider,
                graphs=name in captured,
                transient_bytes=plan.plan.transient_bytes,
                fused=name == update,
            )
            for name, graph in graphs.items()
        }
        self.update = self.sessions[update]
        make = state.provider.zeros
        self.scalars = {h.name: make((), dtype_of(h.dtype)) for h in plan.hyper}
        self._losses = {
            t.name: make((), dtype_of(t.dtype))
            for t in plan.plan.outputs
            if t.name in (plan.loss_output, plan.weight_output)
        }
        self.sums = {
            gradient.accumulator: state.gradients[gradient.tensor.name]
            for gradient in plan.gradients_of(state.rank)
            if gradient.accumulator is not None
        }
        self.gradients_are_finite = FiniteCheck(list(state.gradients.values()), state.provider)

    def batch_loss(self) -> BatchLoss:
        """Return the loss of the last run of the graph that computes it."""
        loss = float(self._losses[self.plan.loss_output].get())
        name = self.plan.weight_output
        return BatchLoss(loss) if name is None else BatchLoss(loss, float(self._losses[name].get()))

    @property
    def waited_s(self) -> float:
        """The time in messages outside of the graphs."""
        return 0.0

    def bind(
        self,
        graph: str,
        read: Mapping[str, PlacedArray],
        written: Mapping[str, PlacedArray],
        later: Collection[str] = (),
    ) -> None:
        """Bind the arrays of a graph, except tensors that are bound ``later``.

        Raises `UserError` for a tensor without an array.
        """
        session = self.sessions[graph]
        for names, arrays, bind in (
            (session.inputs, read, session.read),
            (session.outputs, written, session.write),
        ):
            for name in names:
                if name in arrays:
                    bind(name, arrays[name])
                elif name not in later:
                    raise UserError(f"{self.plan.folder}: {graph} graph: unknown tensor '{name}'")

    def set(self, role: str, value: float) -> None:
        """Set the scalars of a role for the following runs."""
        for hyper in self.plan.hyper:
            if hyper.role == role:
                scalar = self.scalars[hyper.name]
                scalar.put(np.array(value, scalar.dtype))

    def start(self) -> None:
        """Begin a step: set accumulated gradients to zero."""
        if any(gradient.accumulator is not None for gradient in self.plan.gradients):
            self.held.clear_gradients()

    def constant_bytes(self) -> int:
        """Return the bytes of the constants in the sessions.

        Includes folded constants if a folder was given, which must still exist.
        """
        return sum(map(constant_bytes, self._files.values()))

    def nodes_on_cpu(self) -> int | None:
        """Return the number of nodes that a device left to the CPU, None on the CPU itself."""
        counts = [session.nodes_on_cpu() for session in self.sessions.values()]
        return None if None in counts else sum(count or 0 for count in counts)


class TrainingStep(Step):
    """A rank's step without stages; ``batch`` is on the rank's device."""

    def __init__(
        self,
        plan: TrainingPlan,
        state: Held,
        threads: int,
        folder: Path | None = None,
        captured: Collection[str] = (),
    ) -> None:
        super().__init__(plan, state, ROLES, UPDATE, threads, folder, captured)
        make = state.provider.zeros
        self.gradients = self.sessions[GRADIENTS]
        self.batch = {t.name: make(t.local_shape(), dtype_of(t.dtype)) for t in plan.plan.inputs}
        self._bind(GRADIENTS, {**self.batch, **self.sums}, self._losses)
        self._bind(UPDATE, state.gradients, {})

    def _bind(
        self, role: str, read: Mapping[str, PlacedArray], written: Mapping[str, PlacedArray]
    ) -> None:
        state, plan = self.held, self.plan
        changed = {s.result: state.state[s.name] for s in plan.state if s.graph == role}
        kept = state.gradients if role == GRADIENTS else {}
        self.bind(role, {**read, **self.scalars, **state.state}, {**written, **changed, **kept})

    def rehearse(self) -> None:
        """Run both graphs once on arbitrary values, which also captures their CUDA graphs.

        The state must be loaded afterwards. Raises `UserError`.
        """
        self.gradients.run()
        self.update.run()

    def feed(self, batch: Mapping[str, Array]) -> None:
        """Set the rank's part of one micro-batch, by input, for the first graph."""
        for name, array in batch.items():
            self.batch[name].put(array)

    def losses(
        self, seed: Callable[[int], int], batch: Callable[[int], Mapping[str, Array]]
    ) -> list[BatchLoss]:
        """Run the first graph on each micro-batch of the rank; returns their losses.

        ``seed`` and ``batch`` return the seed and the inputs of a micro-batch. Raises `UserError`.
        """
        found = []
        for micro in self.plan.batches_of(self.held.rank):
            inputs = batch(micro)
            self.set("seed", seed(micro))
            self.feed(inputs)
            found.append(self.forward_backward())
        return found

    def run_update(self) -> None:
        """Run the second graph. Raises `UserError`."""
        self.update.run()

    def forward_backward(self) -> BatchLoss:
        """Run the first graph on one micro-batch; returns its loss. Raises `UserError`."""
        self.gradients.run()
        return self.batch_loss()
