"""The program "inference": one run of the plan's graphs for each request."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tensoropt.runtime.device.provider import PlacedArray
from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.pool.programs import Part, Rank, Reply, Request
from tensoropt.runtime.session.caches import SharedCache, shared_caches, update_in_place
from tensoropt.runtime.session.opening import open_session
from tensoropt.runtime.session.ranks import slowest_s
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

__all__ = ["Inference", "open_program"]

_Known = tuple[weakref.ref[Array], Array, PlacedArray | None]
"""A whole array, this rank's part of it, and the part as bound to the session without a copy."""


def open_program(rank: Rank) -> Inference:
    """Return the program of one rank, with its session opened. Raises `UserError`."""
    return Inference(rank)


class Inference:
    """Runs a rank's session on its slices of whole inputs.

    A request's message has one of these fields. ``outputs``: run, and return the outputs of these
    names. ``steps``: time this number of runs on the last inputs, and return the slowest rank's
    time of each. ``facts``: return the state of CUDA graphs.
    """

    def __init__(self, rank: Rank) -> None:
        opened = open_session(rank.job, rank.plan, rank.comm, rank.provider)
        session, self._refusal, error = opened
        if session is None:
            raise UserError(error or "")
        self.session, self._provider, self._comm = session, rank.provider, rank.comm
        self._rank = rank.plan.place(rank.comm.rank)
        self._batches = rank.plan.batches_of(rank.comm.rank)
        self._has_replicas = rank.plan.replicas > 1
        self._is_on_host, self._has_graphs = rank.provider.name == "cpu", rank.job.cuda_graphs
        # A stage has some of the inputs and outputs.
        self._inputs = {t.name: t for t in rank.plan.inputs if t.name in session.inputs}
        self._outputs = {t.name: t for t in rank.plan.outputs if t.name in session.outputs}
        self._has_run = False
        self._bound: dict[str, PlacedArray] = {}
        self._own: dict[str, PlacedArray] = {}
        self._parts: dict[tuple[str, int], _Known] = {}
        self._plan, self._has_caches = rank.plan, "caches" in rank.plan.document
        self._updated: dict[str, SharedCache] = {}  # caches of the last run, by output name
        outputs = self._outputs.values()
        self._gives = {t.name for t in outputs if self._rank in t.layout.sources()}

    def answer(self, request: Request) -> Reply:
        if "steps" in request.message:
            return self._time_steps(request.message["steps"])
        if "facts" in request.message:
            graphs = self._refusal or "captured" if self._has_graphs else None
            return Reply({"cuda_graphs": graphs})
        if not self._has_replicas:
            return self._run(request)
        for batch in self._batches:
            self._run(self._of_batch(request, batch))
        return Reply()

    def _of_batch(self, request: Request, batch: int) -> Request:
        """Return the request for one of the batches that a run takes: its rows of all arrays."""

        def rows(arrays: Mapping[str, Array], ends: Mapping[str, Tensor]) -> dict[str, Array]:
            sizes = {name: int(ends[name].shape[0]) for name in arrays}
            return {n: a[batch * sizes[n] : (batch + 1) * sizes[n]] for n, a in arrays.items()}

        arrays, room = rows(request.arrays, self._inputs), rows(request.room, self._outputs)
        return replace(request, arrays=arrays, room=room)

    def _run(self, request: Request) -> Reply:
        caches = self._caches(request)
        self._updated.clear()
        pasts = {cache.past.name for cache in caches}
        for name, array in request.arrays.items():
            if name in self._inputs and name not in pasts:
                self._feed(name, array)
        self._bind({n: whole for n, whole in request.room.items() if n in self._outputs})
        for cache, shape in caches.items():
            self._update(cache, shape, request)
        self.session.run()
        self._has_run = True
        for name in self._gives & request.room.keys():
            whole = request.room[name]
            part, placed = self._place(name, whole, in_place=True)
            if self._outputs[name].layout.layout.has_blocks:
                self._outputs[name].layout.put(whole, placed.get(), self._rank)
            elif not self._is_shared(name, part):
                placed.give(part)
        asked = request.message["outputs"]
        rest = [name for name in asked if name in self._outputs and name not in request.room]
        parts = self.session.results(rest) if rest else ()
        layouts = {name: tensor.layout for name, tensor in self._outputs.items()}
        return Reply(parts={name: Part(a, layouts[name], self._rank) for name, a in parts})

    def _caches(self, request: Request) -> dict[SharedCache, tuple[int, ...]]:
        """Return the caches that a run updates in place, with their shapes.

        A cache of another size than the caller expects is left out, and the run refuses it.
        """
        if not self._has_caches:
            return {}
        shapes = {name: array.shape for name, array in request.arrays.items()}
        found = shared_caches(self._plan, self.session, shapes)
        asked = {name: array.shape for name, array in request.room.items()}
        return {c: shape for c, shape in found.items() if asked.get(c.present.name, shape) == shape}

    def _update(self, cache: SharedCache, shape: tuple[int, ...], request: Request) -> None:
        """Bind a cache to the memory of its output; the caller's input stays unchanged."""
        name, past = cache.present.name, request.arrays[cache.past.name]
        part = cache.past.layout.part_of(past, self._rank)
        if name in request.room:
            array = self._bound[name]
        else:
            array = self._memory(name, cache.present.layout.local_shape(shape), part.dtype)
        self._bound[name] = self._bound[cache.past.name] = array
        update_in_place(self.session, cache, array, part)
        self._updated[name] = cache

    def _keep_caches(self) -> None:
        """Move the caches of the last run to the session's own memory, with their contents."""
        for name, cache in self._updated.items():
            last = self._bound[cache.past.name]
            array = self._memory(name, last.shape, last.dtype)
            if array is not last:
                array.copy(last)
            self._bound[name] = self._bound[cache.past.name] = array
            self.session.read(cache.past.name, array)
            self.session.write(name, array)

    def _time_steps(self, steps: int) -> Reply:
        if not self._has_run:
            raise UserError("nothing has run yet, expected a run before its steps are timed")
        self._bind({})  # the last outputs belong to the caller
        self._keep_caches()
        times = [slowest_s(self._comm, self._run_again) for _ in range(steps)]
        return Reply({"times_s": times})

    def _run_again(self) -> None:
        """Run all batches of the rank, with the last inputs."""
        for _ in self._batches:
            self.session.run()

    def _feed(self, name: str, whole: Array) -> None:
        """Bind this rank's part of an input."""
        if whole.dtype.hasobject:
            self.session.feed(name, self._inputs[name].layout.part_of(whole, self._rank))
            return
        part, array = self._place(name, whole, in_place=True)
        if array is not self._bound.get(name):
            self._bound[name] = array
            self.session.read(name, array)
        if not self._is_shared(name, part):
            array.put(part)

    def _bind(self, room: Mapping[str, Array]) -> None:
        """Bind the outputs, including outputs that other ranks provide, so that an unexpected size
        fails on all ranks.

        Bindings of the last run are removed, because its outputs belong to the caller. A CUDA graph
        always writes to the rank's own memory, so its bindings stay.
        """
        stale = self._outputs.keys() & self._bound.keys() - room.keys()
        for name in () if self._has_graphs else stale:
            del self._bound[name]
            self.session.allocate(name)
        for name, whole in room.items():
            _, array = self._place(name, whole, in_place=name in self._gives)
            if array is not self._bound.get(name):
                self._bound[name] = array
                self.session.write(name, array)

    def _place(self, name: str, whole: Array, *, in_place: bool) -> tuple[Array, PlacedArray]:
        """Return this rank's part of a whole array, and the array to bind to the session.

        The bound array is the part itself if ``in_place`` and possible, or else the rank's own
        memory. Results are cached by the identity of ``whole``: an array in the same place is the
        same object. A part in blocks is a copy of the array's values, so it is not cached.
        """
        key, layout = (name, id(whole)), self._tensor(name).layout
        known = self._parts.get(key)
        if layout.layout.has_blocks:
            part = layout.part_of(whole, self._rank)
            return part, self._memory(name, part.shape, part.dtype)
        if known is None or known[0]() is not whole:
            part = layout.part_of(whole, self._rank)
            is_used = in_place and self._is_shared(name, part)
            array = self._provider.place(part) if is_used else None
            gone = weakref.ref(whole, lambda _: self._parts.pop(key, None))
            known = self._parts[key] = gone, part, array
        _, part, placed = known
        return part, self._memory(name, part.shape, part.dtype) if placed is None else placed

    def _memory(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> PlacedArray:
        """Return memory of this rank; reuse the last array if shape and dtype are the same."""
        array = self._own.get(name)
        if array is None or (array.shape, array.dtype) != (shape, dtype):
            array = self._own[name] = self._provider.empty(shape, dtype)
        return array

    def _tensor(self, name: str) -> Tensor:
        return self._inputs.get(name) or self._outputs[name]

    def _is_shared(self, name: str, part: Array) -> bool:
        """Return True if the session can use the shared memory of a tensor's part directly."""
        is_copy = self._tensor(name).layout.layout.has_blocks
        return self._is_on_host and part.flags.c_contiguous and not is_copy
