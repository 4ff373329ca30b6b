"""What a rank holds from step to step: parameters, buffers, moments and gradients, each once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.runtime.device.provider import CPU, PlacedArray, Provider
from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.support.dtypes import Array, dtype_of
from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Held"]


class Held:
    """A rank's arrays: ``state`` by the name of its tensor, ``gradients`` by theirs.

    They are where the rank computes, and their values are not set before `load`. ``state`` may be
    given, as memory that others can read.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        rank: int,
        provider: Provider = CPU,
        state: Mapping[str, PlacedArray] | None = None,
    ) -> None:
        self.plan, self.rank, self.provider = plan, rank, provider
        changed = [s.tensor for s in plan.state if s.graph == "gradients"]
        own = [] if state is not None else [s.tensor for s in plan.state]
        provider.reserve(map(self._size, [*own, *(g.tensor for g in plan.gradients), *changed]))
        self.state = state or {tensor.name: self._empty(tensor) for tensor in own}
        self.gradients = {g.tensor.name: self._empty(g.tensor) for g in plan.gradients}
        self._before = {tensor.name: self._empty(tensor) for tensor in changed}

    def _empty(self, tensor: Tensor) -> PlacedArray:
        return self.provider.empty(tensor.local_shape(), dtype_of(tensor.dtype))

    def _size(self, tensor: Tensor) -> int:
        return math.prod(tensor.local_shape()) * dtype_of(tensor.dtype).itemsize

    def remember(self) -> None:
        """Copy what the first graph changes (running statistics), in case the step is dropped."""
        with self.provider.defer_waits():
            for name, copy in self._before.items():
                copy.copy(self.state[name])

    def restore(self) -> None:
        """Take back what the first graph changed since `remember`."""
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

        Only those slices are read, one tensor at a time; gradients become zeros, and so do moments
        where training starts. Raises `UserError` where the file holds another tensor.
        """
        self.clear_gradients()
        path = self.plan.initial(self.rank) if resume is None else resume
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "np") as file:
                starts = resume is None or not _has_moments(file.metadata())
                for state in self.plan.state:
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
        where = tensor.layout.bounds(shape, self.rank) if is_whole else ()
        values = found[where] if where else file.get_tensor(tensor.name)
        if values.dtype != array.dtype:
            raise UserError(f"'{tensor.name}': expected {array.dtype}, got: {values.dtype}")
        array.put(_with_padding(values, array.shape))

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the sizes of what is held, as ``static_parts`` of plan.json names them."""
        found = {f"{kind}_bytes": 0 for kind in ("parameters", "gradients", "optimizer", "buffers")}
        for state in self.plan.state:
            kind = {"parameter": "parameters", "buffer": "buffers"}.get(state.kind, "optimizer")
            found[f"{kind}_bytes"] += self.state[state.name].nbytes
        found["gradients_bytes"] = sum(array.nbytes for array in self.gradients.values())
        return found


def _with_padding(values: Array, shape: tuple[int, ...]) -> Array:
    """Return ``values`` with zeros behind them where a part is larger, which training keeps."""
    if values.shape == shape:
        return values
    padded = np.zeros(shape, values.dtype)
    padded[tuple(map(slice, values.shape))] = values
    return padded


def _has_moments(metadata: Mapping[str, str]) -> bool:
    """Say whether a checkpoint with this metadata holds moments; where not, they are zeros."""
    return json.loads(metadata["moments"]) is not None
