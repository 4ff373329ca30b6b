"""In-place updates of a decoder's caches: input and output share one buffer."""

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
    """A cache input and the output that overwrites it; ``dim`` is the growing dimension, if any."""

    past: Tensor
    present: Tensor
    dim: int | None

    def shape(self, past: Sequence[int], dims: Mapping[str, int]) -> _Shape | None:
        """Return the global shape of the shared buffer, for an input of shape ``past``.

        ``dims`` are the sizes of symbolic dimensions. Returns None if they do not determine the
        output's number of tokens.
        """
        if self.dim is None:
            return tuple(past)
        size = self.present.shape[self.dim]
        tokens = bound(size, dims) if isinstance(size, str) else size
        if isinstance(tokens, str):
            return None
        return *past[: self.dim], max(past[self.dim], tokens), *past[self.dim + 1 :]

    def may_grow(self, accepted: Sequence[int | str | None]) -> bool:
        """Return True if a rank's buffer may have room after its tokens.

        ``accepted`` is the shape that its session accepts. A dimension that is split over ranks
        cannot grow, because the next tokens belong to another rank.
        """
        dim = self.dim
        if dim is None or isinstance(accepted[dim], int):
            return False
        return self.past.layout.pieces(dim) == 1


def shared_caches(
    plan: Plan, session: RankSession, shapes: Mapping[str, Sequence[int]]
) -> dict[SharedCache, _Shape]:
    """Return the caches that a run on inputs of these global ``shapes`` can update in place.

    The values are the global shapes of their buffers. ``session`` runs a graph of the plan, or its
    model; its inputs must accept the shape of the buffer.
    """
    inputs = {tensor.name: tensor for tensor in plan.inputs}
    outputs = {tensor.name: tensor for tensor in plan.outputs}
    dims = _sizes(inputs, shapes)
    accepted = {name: shape for name, _, shape in session.signature()}
    found = {}
    for entry in plan.document.get("caches", []):
        if not entry["in_place"] or entry["past"] not in accepted:  # another stage has it
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
    """Bind ``array`` to a session as both input and output of a cache.

    ``array`` is set to the values of ``part``; after them it may have room for more tokens.
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
