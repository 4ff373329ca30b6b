"""What ranks can do for whoever started them: programs, by name.

A program is made once on each rank, all ranks together, and answers one request after the other.
All ranks get the same requests in the same order. The module of a program has ``open_program``,
which takes a `Rank` and returns the program; it raises `UserError` on all ranks or on none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.plan.layout import Layout
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
"""The module of each program. Programs know pools, a pool knows only their names."""


@dataclass(frozen=True)
class Rank:
    """What a program has of its rank: who it is is ``comm.rank``."""

    job: PoolJob
    plan: Plan
    comm: MPI.Comm
    provider: Provider


@dataclass(frozen=True)
class Request:
    """What is asked of a program.

    ``arrays`` are whole, the same on all ranks, in memory that all share: to be read, and only
    until the request is answered. ``room`` has the whole arrays that the caller wants, of all whose
    shape it knows, in such memory too: each rank writes its part.

    ``tell`` tells the caller something ahead of the answer, as often as there is something: rank
    0's message goes there, and all ranks call it alike, as the time limit counts from there anew.
    """

    message: Message
    arrays: Mapping[str, Array]
    room: Mapping[str, Array]
    tell: Callable[[Message], None]


@dataclass(frozen=True)
class Part:
    """This rank's part of an array for the caller, who did not know its shape."""

    array: Array
    layout: Layout


@dataclass(frozen=True)
class Reply:
    """What a program answers: the caller gets rank 0's ``message``, and the whole of all parts."""

    message: Message = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)


class Program(Protocol):
    """What answers requests on one rank."""

    def answer(self, request: Request) -> Reply:
        """Do what is asked, all ranks together.

        A `UserError` of all ranks at the same place is the caller's, who may go on; of one alone
        it ends the ranks, as others may wait for this one.
        """
        ...


def opener_of(name: str) -> Callable[[Rank], Program]:
    """Return what makes the program of a name, importing what that takes."""
    opener: Callable[[Rank], Program] = import_module(PROGRAMS[name]).open_program
    return opener
