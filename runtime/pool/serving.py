"""The main loop of a pool's rank: wait for a request, and answer it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from tensoropt.runtime.device.providers import provider_of
from tensoropt.runtime.launch.link import LauncherLink, channel_to_launcher
from tensoropt.runtime.launch.oversight import collectives_of
from tensoropt.runtime.ops import library
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.job import REPLACED, PoolJob
from tensoropt.runtime.pool.limit import RequestLimit
from tensoropt.runtime.pool.places import MappedBlocks, pack_texts, unpack_texts
from tensoropt.runtime.pool.programs import Part, Program, Rank, Request, opener_of
from tensoropt.runtime.session.rounding import use_rounding
from tensoropt.runtime.session.session import use_custom_ops
from tensoropt.runtime.support.dtypes import name_of
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.support.messages import Message, receive, send

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Server", "serve"]


def serve(job: PoolJob, comm: MPI.Comm, link: LauncherLink) -> None:
    """Open the program of a job on all ranks, and answer requests until the channel closes."""
    use_custom_ops(job.custom_ops)
    use_rounding(job.rounding)
    with channel_to_launcher() as channel, suppress(EOFError):
        try:
            limit = RequestLimit(job.stall_s, comm, link.end)
            # The parent process enforces ``start_timeout_s``.
            with limit.counting() if job.start_timeout_s is None else nullcontext():
                program = _open(job, comm)
        except UserError as error:
            send(channel, _error(str(error), 0))
            return
        send(channel, {})
        can_go_on = job.provider == "cpu"
        Server(program, channel, comm.rank, limit, job.in_flight, can_go_on=can_go_on).run()


def _open(job: PoolJob, comm: MPI.Comm) -> Program:
    plan = Plan.read(job.plan)
    plan.check_unchanged(job.sha256, REPLACED)
    rank = Rank(job, plan, comm, provider_of(job, comm))
    return opener_of(job.program)(rank)


class Server:
    """Answers the requests of ``channel``; continues after errors if it ``can_go_on``."""

    def __init__(
        self,
        program: Program,
        channel: Connection,
        rank: int,
        limit: RequestLimit,
        in_flight: int,
        *,
        can_go_on: bool,
    ) -> None:
        self._program, self._channel, self._rank = program, channel, rank
        self._limit, self._in_flight, self._can_go_on = limit, in_flight, can_go_on
        self._blocks = MappedBlocks()
        self._parts: dict[int, Mapping[str, Part]] = {}  # by the number of their request

    def run(self) -> None:
        """Answer requests. Raises EOFError when the channel closes, `UserError` on a failure."""
        while True:
            self.answer_next()

    def answer_next(self) -> None:
        """Wait for the next request, and answer it. Raises as `run` does."""
        asked = receive(self._channel, None)  # no size limit: it may have many strings
        self._blocks.update(asked["blocks"], asked["gone"])
        send(self._channel, self._put(asked) if "put" in asked else self._answer(asked))

    def _answer(self, asked: Message) -> Message:
        before = collectives_of(library.where())
        try:
            with self._limit.counting():
                reply = self._program.answer(self._request(asked))
        except UserError as error:
            if not self._can_go_on:  # an error of a device persists
                raise
            return _error(str(error), collectives_of(library.where()) - before)
        parts = {n: part for n, part in reply.parts.items() if not part.array.dtype.hasobject}
        texts = {n: part for n, part in reply.parts.items() if n not in parts}
        if parts:
            self._parts[asked["number"]] = parts
            # Newer requests show that the parts of older requests will not be asked for.
            while len(self._parts) > self._in_flight:
                del self._parts[min(self._parts)]
        return {
            "number": asked["number"],
            "message": reply.message,
            "parts": {
                name: (name_of(part.array.dtype), part.layout.global_shape(part.array.shape))
                for name, part in parts.items()
            },
            "texts": {n: _text(part) for n, part in texts.items() if _is_source(part)},
            "collectives": collectives_of(library.where()) - before,
        }

    def _request(self, asked: Message) -> Request:
        arrays = self._blocks.arrays(asked["arrays"], writable=False)
        texts = {name: unpack_texts(packed) for name, packed in asked["texts"].items()}
        room = self._blocks.arrays(asked["room"], writable=True)
        return Request(asked["message"], {**arrays, **texts}, room, self._tell)

    def _tell(self, message: Message) -> None:
        self._limit.extend()
        if self._rank == 0:
            send(self._channel, {"told": message})

    def _put(self, asked: Message) -> Message:
        """Write this rank's parts of an earlier answer into the whole arrays."""
        places = self._blocks.arrays(asked["put"], writable=True)
        for name, part in self._parts.pop(asked["of"], {}).items():
            if _is_source(part):
                part.layout.put(places[name], part.array, part.place)
        return {}


def _text(part: Part) -> list[Any]:
    shape = part.layout.global_shape(part.array.shape)
    boxes = [
        ([(own.start, own.stop) for own in box.whole], pack_texts(part.array[box.part]))
        for box in part.layout.boxes(shape, part.place)
    ]
    return [shape, boxes]


def _is_source(part: Part) -> bool:
    return part.place in part.layout.sources()


def _error(text: str, collectives: int) -> Message:
    return {"error": text, "collectives": collectives}
