"""One rank's training step: two graphs over arrays that stay where they are.

The new value of a state tensor is written over the old one. That is safe because every node that
reads a state tensor is an ancestor of the one that writes it, or is that one, element by element:
the compiler sees to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tensoropt.runtime.dtypes import Array, dtype_of
from tensoropt.runtime.errors import UserError
from tensoropt.runtime.plan import Tensor
from tensoropt.runtime.provider import HostArray
from tensoropt.runtime.session import Session, training_session
from tensoropt.runtime.training.constants import constant_bytes
from tensoropt.runtime.training.plan import TrainingPlan
from tensoropt.runtime.training.state import Held

__all__ = ["Feed", "Step"]

_LARGE = 1 << 26  # bytes

Feed = Callable[[Tensor, Array], None]
"""Fills the rank's array of an input (one micro-batch)."""


class Step:
    """The sessions of one rank and all that they read and write; sessions are made at once.

    The graphs as ONNX Runtime optimises them go to ``folder``, if given."""

    def __init__(
        self, plan: TrainingPlan, held: Held, threads: int, folder: Path | None = None
    ) -> None:
        self.plan, self.held = plan, held
        self.batch = {t.name: _empty(t) for t in plan.plan.inputs}
        self.scalars = {h.name: np.zeros((), dtype_of(h.dtype)) for h in plan.hyper}
        self.loss = np.zeros((), dtype_of(plan.plan.outputs[0].dtype))
        self._folder = folder
        graphs = (plan.plan.graph(held.rank), plan.update_graph(held.rank))
        self._files = [self._optimised(graph) or graph for graph in graphs]
        self.gradients, self.update = (
            training_session(graph, threads, None if file == graph else file)
            for graph, file in zip(graphs, self._files, strict=True)
        )
        self._bind("gradients", self.gradients, self._read_first(), {plan.loss_output: self.loss})
        self._bind("update", self.update, held.gradients, {})

    def _optimised(self, graph: Path) -> Path | None:
        """Return where the optimised graph goes, None where large weights would go with it."""
        weights = self.plan.folder / "weights" / f"rank{self.held.rank}.bin"
        is_large = weights.is_file() and weights.stat().st_size > _LARGE
        return None if is_large or self._folder is None else self._folder / graph.name

    def constant_bytes(self) -> int:
        """Return the size of what the sessions hold by themselves.

        That is with folded constants where a folder was given, which must still be there.
        """
        return sum(map(constant_bytes, self._files))

    def _read_first(self) -> dict[str, Array]:
        """Return what the first graph reads beside state and scalars."""
        sums = {g.accumulator: self.held.gradients[g.tensor.name] for g in self.plan.gradients}
        return {**self.batch, **{name: array for name, array in sums.items() if name is not None}}

    def _bind(
        self, role: str, graph: Session, read: Mapping[str, Array], written: Mapping[str, Array]
    ) -> None:
        held, plan = self.held, self.plan
        read = {**read, **self.scalars, **held.state}
        changed = {s.result: held.state[s.name] for s in plan.state if s.graph == role}
        written = {**written, **changed, **(held.gradients if role == "gradients" else {})}
        for names, arrays, bind in (
            (graph.inputs, read, graph.read),
            (graph.outputs, written, graph.write),
        ):
            for name in names:
                if name not in arrays:
                    raise UserError(f"{plan.folder}: {role} graph: unknown tensor '{name}'")
                bind(name, HostArray(arrays[name]))

    def set(self, role: str, value: float) -> None:
        """Set the scalars of a role for the runs to come."""
        for hyper in self.plan.hyper:
            if hyper.role == role:
                self.scalars[hyper.name][...] = value

    def start(self) -> None:
        """Begin a step: sums of gradients become zeros."""
        for gradient in self.plan.gradients:
            if gradient.accumulator is not None:
                self.held.gradients[gradient.tensor.name].fill(0)

    def forward_backward(self, feed: Feed, seed: int) -> float:
        """Run the first graph on one micro-batch; returns its loss. Raises `UserError`."""
        for tensor in self.plan.plan.inputs:
            feed(tensor, self.batch[tensor.name])
        self.set("seed", seed)
        self.gradients.run()
        return float(self.loss)


def _empty(tensor: Tensor) -> Array:
    shape = tensor.layout.local_shape([int(size) for size in tensor.shape])
    return np.zeros(shape, dtype_of(tensor.dtype))
