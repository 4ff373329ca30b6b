"""Programs that ranks run for the process that started them, by name.

A program is opened once, by all ranks collectively, and answers requests in sequence. All ranks get
the same requests in the same order. The module of a program has ``open_program``, which takes a
`Rank` and returns the program; it raises `UserError` on all ranks or on none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.layout.mesh_layout import MeshLayout
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.pool.job import PoolJob
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.messages import Message

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["PROGRAMS", "Part", "Program", "Rank", "Reply", "Request", "opener_of"]

PROGRAMS = {
    "inference": "tensoropt.runtime.pool.inference",
    "text": "tensoropt.runtime.text.program",
}
"""The module of each program. Programs import the pool, so the pool has only their names."""


@dataclass(frozen=True)
class Rank:
    """The context of a program on its rank, which is number ``comm.rank``."""

    job: PoolJob
    plan: Plan
    comm: MPI.Comm
    provider: Provider


@dataclass(frozen=True)
class Request:
    """A request to a program.

    ``arrays`` are whole arrays in shared memory, the same on all ranks; they are read-only, and
    valid until the request is answered. ``room`` has the requested output arrays with known shapes,
    whole and in shared memory: each rank writes its part.

    ``tell`` sends the caller a message before the answer, any number of times. All ranks must call
    it, because it restarts the time limit; the caller gets rank 0's message.
    """

    message: Message
    arrays: Mapping[str, Array]
    room: Mapping[str, Array]
    tell: Callable[[Message], None]


@dataclass(frozen=True)
class Part:
    """This rank's part of an array for the caller, which did not know the array's shape.

    ``place`` is the number of the rank in the mesh of the layout.
    """

    array: Array
    layout: MeshLayout
    place: int


@dataclass(frozen=True)
class Reply:
    """A program's answer: the caller gets rank 0's ``message``, and whole arrays from the parts."""

    message: Message = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)


class Program(Protocol):
    """A handler of requests on one rank."""

    def answer(self, request: Request) -> Reply:
        """Answer a request, collectively with all ranks.

        A `UserError` that all ranks raise at the same collective goes to the caller, and the ranks
        continue. An error of some ranks ends all ranks, because others may wait for them.
        """
        ...


def opener_of(name: str) -> Callable[[Rank], Program]:
    """Import a program's module and return its ``open_program``."""
    opener: Callable[[Rank], Program] = import_module(PROGRAMS[name]).open_program
    return opener
