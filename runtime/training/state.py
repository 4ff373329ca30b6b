"""Arrays that a rank keeps between steps: parameters, buffers, moments and gradients."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.runtime.device.provider import CPU, PlacedArray, Provider
from tensoropt.runtime.plan.graphs import UPDATE
from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.dtypes import dtype_of
from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Held"]


class Held:
    """A rank's arrays, ``state`` and ``gradients``, by the names of their tensors.

    They are on the rank's device, and uninitialised before `load`. ``own`` is the state that the
    graphs of the rank read or write. ``state`` may be passed in, as
    memory that other processes can read.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        rank: int,
        provider: Provider = CPU,
        state: Mapping[str, PlacedArray] | None = None,
    ) -> None:
        self.plan, self.rank, self.provider = plan, rank, provider
        self.own, gradients = plan.state_of(rank), plan.gradients_of(rank)
        changed = [s.tensor for s in self.own if not s.graph.startswith(UPDATE)]
        own = [] if state is not None else [s.tensor for s in self.own]
        tensors = [*own, *(g.tensor for g in gradients), *changed]
        sizes = (math.prod(t.local_shape()) * dtype_of(t.dtype).itemsize for t in tensors)
        provider.reserve(sizes)
        self.state = state or {tensor.name: self._empty(tensor) for tensor in own}
        self.gradients = {g.tensor.name: self._empty(g.tensor) for g in gradients}
        self._before = {tensor.name: self._empty(tensor) for tensor in changed}

    def _empty(self, tensor: Tensor) -> PlacedArray:
        return self.provider.empty(tensor.local_shape(), dtype_of(tensor.dtype))

    def remember(self) -> None:
        """Save the state that the first graph changes (running statistics) for `restore`."""
        with self.provider.defer_waits():
            for name, copy in self._before.items():
                copy.copy(self.state[name])

    def restore(self) -> None:
        """Restore the state that `remember` saved, when a step is dropped."""
        with self.provider.defer_waits():
            for name, copy in self._before.items():
                self.state[name].copy(copy)

    def clear_gradients(self) -> None:
        """Set all gradients to zero."""
        with self.provider.defer_waits():
            for array in self.gradients.values():
                array.zero()

    def load(self, resume: Path | None = None) -> None:
        """Set the state to the values of the plan, or to the rank's slices of a checkpoint.

        Reads only those slices, one tensor at a time. Sets gradients to zero, and moments too when
        training starts. Raises `UserError` if a tensor in the file does not match.
        """
        self.clear_gradients()
        path = self.plan.initial(self.rank) if resume is None else resume
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "np") as file:
                # A checkpoint from before the first step has no moments: they are zeros.
                starts = resume is None or json.loads(file.metadata()["moments"]) is None
                for state in self.own:
                    if starts and state.is_moment:
                        self.state[state.name].zero()
                    else:
                        self._fill(state.tensor, file, is_whole=resume is not None)
        except (OSError, SafetensorError, ValueError) as error:
            raise UserError(f"{path}: {cause_of(error)}") from None

    def _fill(self, tensor: Tensor, file: Any, *, is_whole: bool) -> None:
        array, found = self.state[tensor.name], file.get_slice(tensor.name)
        shape = [int(size) for size in tensor.shape]
        expected = tuple(shape) if is_whole else array.shape
        if tuple(found.get_shape()) != expected:
            raise UserError(
                f"'{tensor.name}': expected shape {expected}, got: {tuple(found.get_shape())}"
            )
        if is_whole and shape:
            values = tensor.layout.read_part(found, shape, self.plan.place(self.rank))
        else:
            values = file.get_tensor(tensor.name)
        if values.dtype != array.dtype:
            raise UserError(f"'{tensor.name}': expected {array.dtype}, got: {values.dtype}")
        if values.shape != array.shape:  # the padding is zero, and training keeps it zero
            padded = np.zeros(array.shape, values.dtype)
            padded[tuple(map(slice, values.shape))] = values
            values = padded
        array.put(values)

    def bytes_by_kind(self) -> dict[str, int]:
        """Return bytes by kind, under the names of ``static_parts`` in plan.json."""
        found = {f"{kind}_bytes": 0 for kind in ("parameters", "gradients", "optimizer", "buffers")}
        for state in self.own:
            kind = {"parameter": "parameters", "buffer": "buffers"}.get(state.kind, "optimizer")
            found[f"{kind}_bytes"] += self.state[state.name].nbytes
        found["gradients_bytes"] = sum(array.nbytes for array in self.gradients.values())
        return found
