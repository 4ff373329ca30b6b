"""Messages of a rank to the ranks at its place in other stages, outside of the graphs.

Sends return at once, so that only the order of the tasks could stop a stage, which plan.json is
checked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tensoropt.runtime.device.provider import HostArray, PlacedArray
from tensoropt.runtime.ops import library
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Messages"]

T = TypeVar("T")

_STAMP_BYTES = 8

_SPIN_S, _SLEEP_S = 500e-6, 50e-6
"""Time for which a core waits for a message alone, and between looks after that."""


@dataclass
class _Link:
    """A simulated link from each other stage, by the variables that also slow collectives."""

    latency_s: float
    s_per_byte: float
    free_s: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of_environment(cls) -> _Link | None:
        bytes_per_s = float(os.environ.get("TENSOROPT_LINK_BYTES_PER_S") or 0)
        latency_s = float(os.environ.get("TENSOROPT_LINK_LATENCY_S") or 0)
        if not bytes_per_s and not latency_s:
            return None
        return cls(latency_s, 1 / bytes_per_s if bytes_per_s else 0.0)

    def wait(self, stage: int, sent_s: float, size: int) -> None:
        """Sleep until a message of ``size`` bytes would have arrived; they follow each other."""
        free_s = max(sent_s, self.free_s.get(stage, 0.0)) + size * self.s_per_byte
        self.free_s[stage] = free_s
        time.sleep(max(free_s + self.latency_s - time.monotonic(), 0.0))


def _finish(request: MPI.Request) -> None:
    """Wait for a message; after a while leave the core to ranks that compute."""
    end_s = time.perf_counter() + _SPIN_S
    while not request.Test():
        if time.perf_counter() < end_s:
            os.sched_yield()
        else:
            time.sleep(_SLEEP_S)


class Messages:
    """The messages of a rank, which has number ``place`` among the ``size`` ranks of each stage.

    ``waited_s`` is the time in which it waited for other stages. ``comm`` is for these messages
    alone.
    """

    def __init__(self, comm: MPI.Comm, place: int, size: int) -> None:
        self.comm, self._place, self._size = comm, place, size
        self._sent: list[tuple[MPI.Request, Array, Callable[[], None]]] = []
        self._link = _Link.of_environment()
        self.waited_s = 0.0

    def check_tags(self, needed: int, place: str) -> None:
        """Raise `UserError` if MPI has too few tags: a tag is of one value of one micro-batch."""
        from mpi4py import MPI

        most = self.comm.Get_attr(MPI.TAG_UB)
        if most is not None and needed > most:
            raise UserError(
                f"{place}: passes {needed} values in a step, expected at most {most}, the tags of "
                "this MPI; fewer micro-batches or stages pass fewer values"
            )

    def send(
        self, stage: int, array: PlacedArray, tag: int, sent: Callable[[], None] = lambda: None
    ) -> None:
        """Send ``array``, and call ``sent`` once its memory may change."""
        data = np.ascontiguousarray(array.get()).reshape(-1).view(np.uint8)
        if self._link is not None:
            data = np.append(data, np.array([time.monotonic()]).view(np.uint8))
        self._sent.append((self.comm.Isend(data, self._rank(stage), tag), data, sent))

    def receive(self, stage: int, array: PlacedArray, tag: int) -> None:
        """Wait for a message, and put it into ``array``, on a device through the host's memory."""
        on_host = isinstance(array, HostArray)
        place = array.get() if on_host else np.empty(array.shape, array.dtype)
        data = place.reshape(-1).view(np.uint8)
        self.waited(lambda: self._receive(stage, data, tag))
        array.put(place)

    def send_sized(
        self, stage: int, array: PlacedArray, tag: int, sent: Callable[[], None]
    ) -> None:
        """Send the shape of ``array`` and the array, which `receive_sized` takes.

        Messages of one tag arrive in order.
        """
        self.send(stage, HostArray(np.array(array.shape, np.int64)), tag)
        self.send(stage, array, tag, sent)

    def receive_sized(
        self, stage: int, rank: int, make: Callable[[tuple[int, ...]], PlacedArray], tag: int
    ) -> PlacedArray:
        """Wait for an array of ``rank`` dimensions; ``make`` makes it, of the shape that it has."""
        shape = HostArray(np.empty(rank, np.int64))
        self.receive(stage, shape, tag)
        array = make(tuple(shape.get().tolist()))
        self.receive(stage, array, tag)
        return array

    def _receive(self, stage: int, data: Array, tag: int) -> None:
        if self._link is None:
            _finish(self.comm.Irecv(data, self._rank(stage), tag))
            return
        stamped = np.empty(data.size + _STAMP_BYTES, np.uint8)
        _finish(self.comm.Irecv(stamped, self._rank(stage), tag))
        data[:] = stamped[: data.size]
        self._link.wait(stage, float(stamped[data.size :].copy().view(float)[0]), data.size)

    def _rank(self, stage: int) -> int:
        """Return the rank of a stage with this rank's place in the mesh."""
        return stage * self._size + self._place

    def collect(self) -> None:
        """Give back the memory of messages that have been sent."""
        waiting = []
        for request, data, sent in self._sent:
            if request.Test():
                sent()
            else:
                waiting.append((request, data, sent))
        self._sent = waiting

    def end_sends(self, most: int = 0) -> None:
        """Wait until all messages have been sent, except the last ``most``."""
        for request, _, _ in self._sent[: max(len(self._sent) - most, 0)]:
            self.waited(partial(_finish, request))
        self.collect()

    def waited(self, call: Callable[[], T]) -> T:
        """Return ``call()``, and count its time as waiting for other stages."""
        start = time.perf_counter()
        library.move("waiting for other stages")
        try:
            return call()
        finally:
            library.move()
            self.waited_s += time.perf_counter() - start
