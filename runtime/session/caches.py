"""Caches of a decoder that a run updates in place: the output has the memory of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.runtime.device.provider import HostArray, PlacedArray
from tensoropt.runtime.plan.dims import bound
from tensoropt.runtime.plan.plan import Plan, Tensor
from tensoropt.runtime.session.session import RankSession
from tensoropt.runtime.support.dtypes import Array

__all__ = ["SharedCache", "shared_caches", "update_in_place"]

_Shape = tuple[int, ...]


@dataclass(frozen=True)
class SharedCache:
    """An input and the output that overwrites it; ``dim`` grows, if any does."""

    past: Tensor
    present: Tensor
    dim: int | None

    def shape(self, past: Sequence[int], dims: Mapping[str, int]) -> _Shape | None:
        """Return the global shape of the memory for both, of an input of shape ``past``.

        ``dims`` are the sizes of symbolic dimensions. ``None`` where they do not tell how many
        tokens the output has.
        """
        if self.dim is None:
            return tuple(past)
        size = self.present.shape[self.dim]
        tokens = bound(size, dims) if isinstance(size, str) else size
        if isinstance(tokens, str):
            return None
        return *past[: self.dim], max(past[self.dim], tokens), *past[self.dim + 1 :]

    def may_grow(self, accepted: Sequence[int | str | None]) -> bool:
        """Return whether a rank's memory can have room behind its tokens, given the shape that its
        session accepts: not if others have the tokens that follow."""
        dim = self.dim
        if dim is None or isinstance(accepted[dim], int):
            return False
        return self.past.layout.parts(dim) == 1


def shared_caches(
    plan: Plan, session: RankSession, shapes: Mapping[str, Sequence[int]]
) -> dict[SharedCache, _Shape]:
    """Return the caches that a run on inputs of these global ``shapes`` can update in place, each
    with the global shape of its memory.

    ``session`` runs a graph of the plan, or its model: its inputs must accept that shape.
    """
    inputs = {tensor.name: tensor for tensor in plan.inputs}
    outputs = {tensor.name: tensor for tensor in plan.outputs}
    dims = _sizes(inputs, shapes)
    accepted = {name: shape for name, _, shape in session.signature()}
    found = {}
    for entry in plan.document.get("caches", []):
        if not entry["in_place"]:
            continue
        cache = SharedCache(inputs[entry["past"]], outputs[entry["present"]], entry["dim"])
        name = cache.past.name
        shape = cache.shape(shapes[name], dims)
        if shape == tuple(shapes[name]) or (shape and cache.may_grow(accepted[name])):
            found[cache] = shape
    return found


def update_in_place(
    session: RankSession, cache: SharedCache, array: PlacedArray, part: Array
) -> None:
    """Let a session read a cache from ``array`` and write the next one there.

    ``array`` gets the values of ``part``; behind them it may have room for more tokens.
    """
    if isinstance(array, HostArray):
        _fill(array.get(), part)
    elif array.shape == part.shape:
        array.put(part)
    else:
        whole = np.empty(array.shape, array.dtype)
        _fill(whole, part)
        array.put(whole)
    session.read(cache.past.name, array)
    session.write(cache.present.name, array)


def _fill(array: Array, part: Array) -> None:
    if array is part:
        return
    if array.shape != part.shape:
        array[...] = 0
    array[tuple(slice(size) for size in part.shape)] = part


def _sizes(tensors: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, tensor in tensors.items():
        pairs = zip(tensor.shape, shapes[name], strict=True)
        found.update({size: got for size, got in pairs if isinstance(size, str)})
    return found
