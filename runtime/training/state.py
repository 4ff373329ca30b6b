"""What a rank holds from step to step: parameters, buffers, moments and gradients, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.runtime.dtypes import Array, dtype_of
from tensoropt.runtime.errors import UserError, one_line
from tensoropt.runtime.plan import Tensor
from tensoropt.runtime.training.plan import TrainingPlan

__all__ = ["Held", "all_finite", "hold"]

_ALIGNMENT = 64  # bytes of a cache line
_CHUNK = 1 << 20  # elements looked at together


class Held:
    """A rank's arrays: ``state`` by the name of its tensor, ``gradients`` by theirs."""

    def __init__(self, plan: TrainingPlan, rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.state = {s.name: _zeros(s.tensor, rank) for s in plan.state}
        self.gradients = {g.tensor.name: _zeros(g.tensor, rank) for g in plan.gradients}
        self._before = {
            s.name: np.empty_like(self.state[s.name]) for s in plan.state if s.graph == "gradients"
        }

    def remember(self) -> None:
        """Copy what the first graph changes (running statistics), in case the step is dropped."""
        for name, copy in self._before.items():
            np.copyto(copy, self.state[name])

    def restore(self) -> None:
        """Take back what the first graph changed since `remember`."""
        for name, copy in self._before.items():
            np.copyto(self.state[name], copy)

    def gradients_are_finite(self) -> bool:
        return all(map(all_finite, self.gradients.values()))

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the sizes of what is held, as ``static_parts`` of plan.json names them."""
        found = {f"{kind}_bytes": 0 for kind in ("parameters", "gradients", "optimizer", "buffers")}
        for state in self.plan.state:
            kind = {"parameter": "parameters", "buffer": "buffers"}.get(state.kind, "optimizer")
            found[f"{kind}_bytes"] += self.state[state.name].nbytes
        found["gradients_bytes"] = sum(array.nbytes for array in self.gradients.values())
        return found


def hold(plan: TrainingPlan, rank: int, resume: Path | None) -> Held:
    """Return a rank's arrays with the values of the plan, or its slices of a checkpoint.

    Only those slices are read. Raises `UserError` where the file holds another tensor.
    """
    held = Held(plan, rank)
    path = plan.initial(rank) if resume is None else resume
    names = [s.name for s in plan.state if resume is not None or not s.is_moment]
    tensors = {s.name: s.tensor for s in plan.state}
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            for name in names:
                _fill(held.state[name], file, tensors[name], rank, resume is not None)
    except (OSError, SafetensorError, ValueError) as error:
        raise UserError(f"{path}: {one_line(error)}") from None
    return held


def _fill(array: Array, file: Any, tensor: Tensor, rank: int, is_whole: bool) -> None:
    found = file.get_slice(tensor.name)
    expected = tensor.shape if is_whole else array.shape
    if tuple(found.get_shape()) != expected:
        raise UserError(
            f"'{tensor.name}': expected shape {expected}, got: {tuple(found.get_shape())}"
        )
    where = tensor.layout.bounds([int(n) for n in expected], rank) if is_whole else ()
    values = found[where] if where else file.get_tensor(tensor.name)
    if values.dtype != array.dtype:
        raise UserError(f"'{tensor.name}': expected {array.dtype}, got: {values.dtype}")
    array[...] = values


def _zeros(tensor: Tensor, rank: int) -> Array:
    """Return zeros of the shape of the rank's part, at the start of a cache line."""
    shape = tensor.layout.local_shape([int(size) for size in tensor.shape])
    dtype = dtype_of(tensor.dtype)
    size = dtype.itemsize * int(np.prod(shape))
    raw = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def all_finite(array: Array) -> bool:
    """Say whether no element is NaN or infinite; no copy of the array is made."""
    if array.dtype.kind not in "fV":
        return True
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        # NaN and infinity survive a sum; a sum that overflows by itself is looked at again.
        if array.dtype in (np.float32, np.float64) and np.isfinite(np.add.reduce(flat)):
            return True
    pieces = (flat[i : i + _CHUNK] for i in range(0, flat.size, _CHUNK))
    return all(bool(np.isfinite(piece.astype(np.float64)).all()) for piece in pieces)
