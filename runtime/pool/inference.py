"""The program "inference": one run of the plan's graphs for each request."""

from __future__ import annotations

from collections.abc import Mapping

from tensoropt.runtime.device.provider import PlacedArray
from tensoropt.runtime.pool.programs import Part, Rank, Reply, Request
from tensoropt.runtime.session.opening import opened_session
from tensoropt.runtime.session.ranks import slowest_s
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

__all__ = ["Inference", "open_program"]


def open_program(rank: Rank) -> Inference:
    """Return the program of one rank, its session made. Raises `UserError`."""
    return Inference(rank)


class Inference:
    """Runs a rank's session on its slices of whole inputs.

    A request's message has ``outputs``, the names of those that are wanted. Or it has ``steps``:
    that many on the inputs of the last run are timed, the slowest rank's time of each. Or it has
    ``facts``: whether there are CUDA graphs.
    """

    def __init__(self, rank: Rank) -> None:
        opened = opened_session(rank.job, rank.plan, rank.comm, rank.provider)
        session, self._refusal, error = opened
        if session is None:
            raise UserError(error or "")
        self._session, self._provider, self._comm = session, rank.provider, rank.comm
        self._rank = rank.comm.rank
        self._is_on_host, self._has_graphs = rank.provider.name == "cpu", rank.job.cuda_graphs
        self._inputs = {tensor.name: tensor for tensor in rank.plan.inputs}
        self._outputs = {tensor.name: tensor for tensor in rank.plan.outputs}
        self._has_run = False
        self._bound: dict[str, PlacedArray] = {}
        self._own: dict[str, PlacedArray] = {}
        self._gives = {t.name for t in rank.plan.outputs if self._rank in t.layout.sources()}

    def answer(self, request: Request) -> Reply:
        if "steps" in request.message:
            return self._timed(request.message["steps"])
        if "facts" in request.message:
            graphs = self._refusal or "captured" if self._has_graphs else None
            return Reply({"cuda_graphs": graphs})
        for name, array in request.arrays.items():
            self._feed(name, self._inputs[name].layout.part_of(array, self._rank))
        places = {
            name: self._outputs[name].layout.part_of(whole, self._rank)
            for name, whole in request.room.items()
        }
        self._bind(places)
        self._session.run()
        self._has_run = True
        for name in self._gives & places.keys():
            if not self._is_shared(places[name]):
                self._own[name].give(places[name])
        rest = [name for name in request.message["outputs"] if name not in request.room]
        parts = self._session.results(rest) if rest else ()
        return Reply(parts={name: Part(a, self._outputs[name].layout) for name, a in parts})

    def _timed(self, steps: int) -> Reply:
        if not self._has_run:
            raise UserError("nothing has run yet, expected a run before its steps are timed")
        self._bind({})  # the last outputs are the caller's
        times = [slowest_s(self._comm, self._session.run) for _ in range(steps)]
        return Reply({"times_s": times})

    def _feed(self, name: str, part: Array) -> None:
        """Let the session read its part."""
        if part.dtype.hasobject:
            self._session.feed(name, part)
            return
        array = self._placed(name, part)
        if array is not self._bound.get(name):
            self._bound[name] = array
            self._session.read(name, array)
        if not self._is_shared(part):
            array.put(part)

    def _bind(self, places: Mapping[str, Array]) -> None:
        """Let the session write outputs, also those that stay here: where one has another size than
        is expected, all ranks fail alike.

        Outputs of the last time it must not write again: they are the caller's. A CUDA graph writes
        to memory of the rank's own, and always there.
        """
        stale = self._outputs.keys() & self._bound.keys() - places.keys()
        for name in () if self._has_graphs else stale:
            del self._bound[name]
            self._session.allocate(name)
        for name, place in places.items():
            array = self._placed(name, place) if name in self._gives else self._beside(name, place)
            if array is not self._bound.get(name):
                self._bound[name] = array
                self._session.write(name, array)

    def _placed(self, name: str, part: Array) -> PlacedArray:
        """Return what the session has in the place of a part: that itself, or memory beside it."""
        if not self._is_shared(part):
            return self._beside(name, part)
        bound = self._bound.get(name)
        return bound if bound is not None and _is_at(bound, part) else self._provider.place(part)

    def _beside(self, name: str, part: Array) -> PlacedArray:
        """Return memory of this rank that is used again where shape and type are the same."""
        array = self._own.get(name)
        if array is None or (array.shape, array.dtype) != (part.shape, part.dtype):
            array = self._own[name] = self._provider.empty(part.shape, part.dtype)
        return array

    def _is_shared(self, part: Array) -> bool:
        """Say whether the session can work in the shared memory itself."""
        return self._is_on_host and part.flags.c_contiguous


def _is_at(bound: PlacedArray, part: Array) -> bool:
    """Say whether a part lies where it did the last time."""
    place = bound.address, bound.shape, bound.dtype
    return place == (part.__array_interface__["data"][0], part.shape, part.dtype)
