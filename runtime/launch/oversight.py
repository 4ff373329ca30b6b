"""A watchdog: ends a job that is late or stalled, with a line that reports all ranks' positions."""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from tensoropt.runtime.ops import library
from tensoropt.runtime.support.job import Launched

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["ANSWER_S", "PATIENCE_S", "abort_and_exit", "collectives_of", "oversee", "whereabouts"]

ANSWER_S = 2.0
"""Seconds that a rank has to report its position."""

PATIENCE_S = 2 * ANSWER_S
"""Additional seconds that the other ranks wait for rank 0 to end the job."""

RANKS_END_S = PATIENCE_S + 2 * ANSWER_S
"""Seconds beyond a time limit in which ranks may end by themselves."""

_LOOKS = 10  # polls of the positions per stall limit


@contextmanager
def oversee(job: Launched, comm: MPI.Comm, end: Callable[[str], None]) -> Iterator[None]:
    """Enforce the job's time limits during the context; all ranks of ``comm`` enter it together.

    Rank 0 calls ``end`` with the reason, from another thread; if it does not, another rank does.
    Raises `UserError`.
    """
    if job.timeout_s is None and job.stall_s is None:
        yield
        return
    library.watch()
    done = threading.Event()
    watcher = _Watcher(job, comm.rank, comm.size, done, end)
    threading.Thread(target=watcher.run, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def abort_and_exit() -> NoReturn:
    """End this process with status 1 from any thread, after releasing devices if possible."""
    aborting = threading.Thread(target=library.abort, daemon=True)
    aborting.start()
    aborting.join(ANSWER_S)
    os._exit(1)


class _Watcher:
    def __init__(
        self,
        job: Launched,
        rank: int,
        ranks: int,
        done: threading.Event,
        end: Callable[[str], None],
    ) -> None:
        self._timeout, self._stall = job.timeout_s, job.stall_s
        self._rank, self._ranks, self._done, self._end = rank, ranks, done, end
        self._patience = PATIENCE_S if rank else 0.0
        start = job.started_at if job.started_at is not None else time.monotonic()
        self._ends_at = start + (math.inf if job.timeout_s is None else job.timeout_s)
        self._ends_at += self._patience
        self._seen: dict[int, int] = {}
        self._moved_at = start

    def run(self) -> None:
        while not self._done.wait(self._pause()):
            if (reason := self._find_passed_limit()) is not None:
                where = "rank 0 does not answer"
                if self._rank == 0:
                    where = whereabouts(library.ask(ANSWER_S), self._ranks)
                if not self._done.is_set():  # the job may have ended while the ranks answered
                    self._end(f"{reason}: {where}")
                return

    def _find_passed_limit(self) -> str | None:
        """Return a message about the limit that has passed, if any."""
        now = time.monotonic()
        if now >= self._ends_at:
            return f"no result within --timeout {self._timeout:g} s"
        if self._stall is None:
            return None
        # Only rank 0 receives the positions of other ranks.
        places = {self._rank: library.position()} if self._rank else library.ask(ANSWER_S)
        found = {rank: place.moves for rank, place in places.items()}
        has_begun = any(found.values())
        if found != self._seen or not has_begun:
            self._seen, self._moved_at = found, now
        if now - self._moved_at < self._stall + self._patience:
            return None
        return f"no rank has made progress within --stall {self._stall:g} s"

    def _pause(self) -> float:
        look = math.inf if self._stall is None else self._stall / _LOOKS
        return max(0.0, min(look, self._ends_at - time.monotonic(), threading.TIMEOUT_MAX))


def collectives_of(place: str) -> int:
    """Return the number of collectives that a rank has reached, from the text of `library.where`.

    0 before the first.
    """
    found = re.search(r"\((?:collective )?(\d+)[^()]*\)$", place)
    return int(found[1]) if found else 0


def whereabouts(places: Mapping[int, library.Position], ranks: int) -> str:
    """Return the positions of all ranks: silent ranks first, then by their collectives.

    "rank 2 of 4 does not answer; ranks 0, 1, 3 are in AllReduce node 'a' (collective 7)".
    """
    groups: dict[str, list[int]] = {}
    for rank in range(ranks):
        where = places[rank].where if rank in places else ""
        groups.setdefault(where, []).append(rank)
    ordered = sorted(groups.items(), key=lambda group: (group[0] != "", collectives_of(group[0])))
    sentences = [_sentence(place, members) for place, members in ordered]
    head, _, rest = sentences[0].partition("\0")
    return "; ".join([f"{head} of {ranks}{rest}", *(s.replace("\0", "") for s in sentences[1:])])


def _sentence(place: str, ranks: list[int]) -> str:
    many = len(ranks) > 1
    names = ", ".join(map(str, ranks))
    if not place:
        return f"rank{'s' if many else ''} {names}\0 {'do' if many else 'does'} not answer"
    if many:
        return f"ranks {names}\0 are {place.replace(' its ', ' their ')}"
    return f"rank {names}\0 is {place}"
