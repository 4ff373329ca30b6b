"""One mesh after the other, within the time there is: what each of them can give.

The time left is shared evenly among the meshes to come, so that what one of them does not need is
for the others. When it is over, a mesh still gets its fastest and its leanest point, up to a last
end somewhat later.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.search.engine.control import Control, OutOfTimeError, Status, alarm
from tensoropt.compiler.search.frontier.bounds import Claim, proven
from tensoropt.compiler.search.frontier.lessons import Lessons, overhead_s, shortfalls
from tensoropt.compiler.search.methods.registry import run_method
from tensoropt.compiler.search.methods.result import Case, DoesNotFitError, Found, Limits
from tensoropt.compiler.search.problem.evaluate import ProgramCost
from tensoropt.compiler.search.problem.pins import PinsError
from tensoropt.compiler.search.problem.problem import (
    NO_LINES,
    Floats,
    Lines,
    NothingAllowedError,
    TablePoint,
)
from tensoropt.compiler.search.problem.table_size import TablesTooLargeError, check_tables
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.support.collection import without_collection
from tensoropt.compiler.support.errors import UserError

__all__ = [
    "Assignment",
    "Costed",
    "LeftOut",
    "MeshSearch",
    "Say",
    "SearchOptions",
    "Stop",
    "distinct_meshes",
    "promise",
]

Assignment = npt.NDArray[np.int32]
"""Per choosing node, the number of its strategy."""

Costed = tuple[MeshTables, Assignment, ProgramCost]
"""What was found on a mesh, and what it costs as the graphs it leads to."""

Say = Callable[[str], None]

Stop = Literal["time", "memory", "tables"]
"""What ended a search: the time, the memory, or tables of which all is known that the search asks
for, while programs may still be further from the frontier."""

LATE = 0.1
"""How much later than its limit a search may end, for the fastest and the leanest points."""
LATE_S = 0.7
"""The same in seconds, in addition."""
LARGE = 10_000
"""Of programs with more nodes, fewer points are costed."""
BY_FAR = 0.7
"""Of a point's memory by the tables; by its program it is not less.

Measured by ``bench/accuracy/plan_memory.py``.
"""
PLACEMENTS = 5
"""Of a typical tensor on one axis: whole, partial, or split along one of three dimensions."""
COARSE = 0.02
"""The bound of the frontiers that tables learn from, before they are searched."""
ROUNDS = 5
"""The most such frontiers of a mesh."""
FINEST = 0.005
"""The bound below which the tables of a mesh are not searched again for the sake of programs."""
SLACK = 0.8
"""Of what programs leave of a bound: other points may be further from theirs."""
FINER_ROUNDS = 4
"""How often a mesh is searched again where programs are not yet within the bound asked for."""
LEARNING = 3.0
"""How much longer than one such frontier it takes to learn from it, and to search once more."""
REHEARSAL = 0.3
"""The part of a mesh's time after which no more of them are begun."""
FIRST = 0.05
"""The bound that every mesh is to have before one is searched further, where time is short."""
AGAIN = 0.5
"""Of the time that the first search of a mesh took, what a second one has to have."""
WORTH = 0.3
"""The same of a search of the same tables: it begins with what the first one has proven."""
MANY = 3
"""The most meshes that are searched one after the other all the same."""
MOST_ROUNDS = 400
"""How often a small problem is searched at most, until its points have the memory of programs."""
GRACE_S = 1.0
"""What a mesh gets for them after Ctrl-C, when another one has given points already."""


@dataclass(frozen=True)
class SearchOptions:
    """How to search: by the method ``name`` of ``methods/registry.py``.

    ``epsilon`` bounds how far, relatively and in both objectives, a point of the exact frontier may
    lie from a returned one; 0 is exact. ``points`` is the most that are kept per mesh for exact
    costing, spread over the frontier; the fastest and the leanest always are. With
    ``memory_bytes``, so are the points around that limit. ``time_limit_s`` is for all meshes,
    tables and costing included; it is exceeded by at most a tenth and a second, but where the
    search ``must_answer``: then it goes on until one mesh has its fastest and its leanest point.
    With ``on_interrupt`` "return", Ctrl-C ends the search with what was found. With
    ``enough_bytes``, it ends after the first mesh with a point of at most that memory.
    ``search_memory_bytes`` is what the search itself may take on one mesh, ``None`` for a quarter
    of the machine's memory.
    """

    name: str = "ft"
    seed: int = 0
    epsilon: float = 0.0
    time_limit_s: float | None = None
    must_answer: bool = False
    points: int = 100
    memory_bytes: int | None = None
    on_interrupt: Literal["raise", "return"] = "raise"
    enough_bytes: int | None = None
    search_memory_bytes: int | None = None


@dataclass(frozen=True)
class LeftOut:
    """A mesh without points in the result, and why."""

    mesh: tuple[int, ...]
    reason: str


def distinct_meshes(
    meshes: Iterable[Mesh], device: Device, *, names_axes: bool = False
) -> list[Mesh]:
    """Leave out meshes that only reorder axes of equal links: their costs are the same.

    Not where what is pinned ``names_axes``.
    """
    if names_axes:
        return list(meshes)
    kept: dict[object, Mesh] = {}
    for mesh in meshes:
        links = device.axis_links(mesh)
        key = tuple(sorted(zip(mesh.shape, map(repr, links), strict=True)))
        kept.setdefault(key, mesh)
    return list(kept.values())


def promise(mesh: Mesh) -> tuple[int, int]:
    """Return by what to sort meshes: small tables first, of equal ones the squarest mesh.

    So those of three axes come last; deeper ones have smaller tables again.
    """
    return mesh.layouts(PLACEMENTS), max(mesh.shape)


@dataclass
class _Searched:
    """A mesh, what was learnt of it, and what the method returned, the last one last.

    ``took_s`` is how long that was at first, with its tables.
    """

    number: int
    lessons: Lessons
    left_bytes: float  # what its tables leave of the memory there is
    lines: list[Lines]
    returned: list[Found]
    took_s: float

    @property
    def tables(self) -> MeshTables:
        return self.lessons.tables


class MeshSearch:
    """Searches the meshes that it is given, in turn; of many, all coarsely first.

    ``found`` holds what the method returned per mesh, ``costed`` the points of all of them.
    """

    def __init__(self, options: SearchOptions, count: int, say: Say) -> None:
        self.options, self.count, self.say = options, count, say
        self.started = time.monotonic()
        self.number = 0  # of the mesh that is searched, from 1
        self._searched: list[_Searched] = []
        self.costed: list[Costed] = []
        self.left_out: list[LeftOut] = []
        self._returned: list[Found] = []  # of the mesh that is searched
        self._lines: list[Lines] = []  # the same
        self.interrupted = False
        self._stopping = False  # Ctrl-C has come, and the method is about to return
        self._refusals: list[tuple[Mesh, Exception]] = []
        self._late = False  # a mesh was left out for want of time
        self._hurried = False  # tables might have learnt more with more time
        self._ran_s = 0.0  # how long the last run of the method took
        self._searched_with = 0  # so many lessons
        self._left_bytes = 0.0  # what the tables of the mesh leave of the memory there is
        limit = options.time_limit_s
        self._end = None if limit is None else self.started + limit
        self._last = None if limit is None else self.started + limit * (1 + LATE) + LATE_S

    def add(self, tables: MeshTables) -> None:
        """Search one mesh, or note why not; Ctrl-C raises unless it is the first and may return."""
        self.number += 1
        try:
            if self.interrupted:
                raise _InterruptedError
            self._search(tables)
        except OutOfTimeError as error:
            self._late = True
            self._leave_out(tables.mesh, error, "no time was left; expected more --search-time")
        except KeyboardInterrupt as error:
            if self._stopping or not self.found or self.options.on_interrupt == "raise":
                raise
            self.interrupted = True
            self._leave_out(tables.mesh, error, "interrupted")
        except DoesNotFitError as error:
            self._refusals.append((tables.mesh, error))
        except (UserError, MemoryError) as error:
            self._leave_out(tables.mesh, error, str(error) or "out of memory")

    def refine(self) -> None:
        """Search further what was searched coarsely, the worst mesh first, while there is time."""
        if not self._is_coarse_first:
            return
        asked = self.options.epsilon
        bounds = zip(self._searched, self.bounds, strict=True)
        open_ = [(bound, mesh) for mesh, bound in bounds if bound is not None and bound > asked]
        open_.sort(key=lambda pair: -pair[0])
        for count, (_, mesh) in enumerate(open_):
            left_s, need_s = _seconds_to(self._end), AGAIN * mesh.took_s
            if self.interrupted or self.done:
                break
            if left_s is not None and left_s > need_s:
                share_s = max(left_s / (len(open_) - count), need_s)
                self._again(mesh, time.monotonic() + share_s)

    def _again(self, mesh: _Searched, end: float) -> None:
        self.number, self._left_bytes, self._returned = mesh.number, mesh.left_bytes, []
        self._lines = mesh.lines
        try:
            with alarm(self._last), without_collection():
                assert mesh.lessons.problem  # its tables are made again
            self._search_fully(mesh.lessons, end, self._teller(mesh.tables.mesh))
        except KeyboardInterrupt:
            if self._stopping or self.options.on_interrupt == "raise":
                raise
            self.interrupted = True
        except (UserError, MemoryError):  # what was found first stays
            pass
        finally:
            mesh.returned += self._returned
            mesh.tables.forget_edges()

    @property
    def _is_coarse_first(self) -> bool:
        limited = self.options.time_limit_s is not None and self.options.epsilon < FIRST
        return limited and self.count > MANY and self.options.name == "ft"

    @property
    def found(self) -> list[Found]:
        return [mesh.returned[-1] for mesh in self._searched]

    @property
    def stopped(self) -> Stop | None:
        """What ended the search before the bound asked for was proven; ``None`` where it is."""
        if any(found.short_of_memory for found in self.found):
            return "memory"
        tables = [self._least(mesh) for mesh in self._searched]
        limited = self.options.time_limit_s is not None
        if limited and (self._late or self._is_open(tables)):
            return "time"
        if not self._is_open(self.bounds):
            return None
        return "time" if limited and self._hurried else "tables"

    def _is_open(self, bounds: Iterable[float | None]) -> bool:
        """Say whether one of ``bounds`` is above what was asked for."""
        return any(bound is not None and bound > self.options.epsilon for bound in bounds)

    @property
    def bounds(self) -> list[float | None]:
        """The bound of each mesh that was searched: of a model's memory as programs have it."""
        return [self._bound(mesh) for mesh in self._searched]

    def _bound(self, mesh: _Searched) -> float | None:
        """Return the best of what each frontier of a mesh says of the programs that were costed."""
        if not self._learns(mesh.tables):
            return self._least(mesh)
        nodes, more_s = len(mesh.tables.graph.nodes), overhead_s(mesh.tables)
        claims = [
            Claim(_kept(found, self.options, nodes), found.epsilon)
            for found in mesh.returned
            if found.epsilon is not None
        ]
        return proven(self._programs, claims, np.concatenate([NO_LINES, *mesh.lines]), more_s)

    @staticmethod
    def _least(mesh: _Searched) -> float | None:
        """Return the best bound of tables, ``None`` where the last search has none."""
        if mesh.returned[-1].epsilon is None:
            return None
        return min(found.epsilon for found in mesh.returned if found.epsilon is not None)

    def _paid(self, tables: MeshTables, result: Found) -> float | None:
        if result.epsilon is None:
            return None
        points = _kept(result, self.options, len(tables.graph.nodes))
        factor = float(self._shortfalls(points, tables).max(initial=1.0))
        return (1 + result.epsilon) * factor - 1

    @property
    def done(self) -> bool:
        """Whether what was asked for is found, before all meshes are searched."""
        enough = self.options.enough_bytes
        return enough is not None and any(c.memory_bytes <= enough for _, _, c in self.costed)

    def nothing(self) -> Exception:
        """Return the error that says why no mesh gave a point."""
        mesh, error = min(self._refusals, key=lambda refusal: _weight(refusal[1]))
        if isinstance(error, OutOfTimeError):
            return UserError(
                f"--search-time: expected more seconds, got: {self.options.time_limit_s:g}, "
                "in which not even the fastest and the leanest plan were found"
            )
        if self.count == 1 or isinstance(error, DoesNotFitError | NothingAllowedError):
            return error
        if len({str(error) for _, error in self._refusals}) == 1 and isinstance(error, PinsError):
            return error
        others = len(self._refusals) - 1
        more = f" and {others} other{'s' if others > 1 else ''}" if others else ""
        return UserError(f"{str(error) or 'out of memory'} (mesh {mesh}{more})")

    def _leave_out(self, mesh: Mesh, error: BaseException, reason: str) -> None:
        if isinstance(error, Exception):
            self._refusals.append((mesh, error))
        self.left_out.append(LeftOut(mesh.shape, reason))

    def _search(self, tables: MeshTables) -> None:
        started, tell = time.monotonic(), self._teller(tables.mesh)
        self._check_time(started)
        end = self._share()
        tell("tables")
        with alarm(self._given_up):
            too_large = (m for m, e in self._refusals if isinstance(e, TablesTooLargeError))
            with without_collection():
                self._left_bytes = check_tables(tables, too_large, self.options.search_memory_bytes)
                lessons = Lessons(tables)
                assert lessons.problem
        self._returned, self._lines = [], []
        if self._is_coarse_first:
            self._search_coarsely(lessons, end, tell)
        else:
            self._search_fully(lessons, end, tell)
        took_s = time.monotonic() - started
        self._searched.append(
            _Searched(self.number, lessons, self._left_bytes, self._lines, self._returned, took_s)
        )

    def _check_time(self, now: float) -> None:
        """Refuse a mesh that begins after the end, and would not be ready before the last end: the
        tables of the one before are no larger."""
        if not self._searched or self._end is None or self._last is None or now < self._end:
            return
        if now + self._searched[-1].took_s > self._last:
            raise OutOfTimeError("time is over")

    def _search_coarsely(self, lessons: Lessons, end: float | None, tell: Say) -> None:
        if self._learns(lessons.tables):
            self._rehearse(lessons, end, tell, FIRST, 1.0)
        if not self._returned:
            limits = self._limits(end, tell)
            self._run(lessons, replace(limits, epsilon=max(limits.epsilon, FIRST)))

    def _search_fully(self, lessons: Lessons, end: float | None, tell: Say) -> None:
        if self._learns(lessons.tables):
            self._rehearse(lessons, end, tell, COARSE, REHEARSAL)
        started = time.monotonic()
        if not self._returned:
            self._run(lessons, self._limits(end, tell))
        elif not self._affords(end):
            self._hurried = True
        elif not self._is_searched(lessons) and not self._tried(lessons, self._limits(end, tell)):
            self._tried(lessons, self._limits(end, tell))
        epsilon = self.options.epsilon
        for _ in range(self._repeats(lessons.tables)):
            left_s, past_s = _seconds_to(end), time.monotonic() - started
            if not self._affords(end) or (left_s is not None and past_s > left_s):
                self._hurried = True
                break
            finer = self._finer(lessons, epsilon)
            short = self._short(self._returned[-1], lessons, self.options.epsilon)
            if not lessons.learn(short) and finer == epsilon:
                break
            epsilon = finer
            if not self._tried(lessons, replace(self._limits(end, tell), epsilon=epsilon)):
                break
        else:
            self._hurried = True  # what time is left is for the meshes to come

    def _affords(self, end: float | None) -> bool:
        """Say whether there is time for another run of the mesh to tell anything.

        One that is divided into parts may take all of the last one's again, however late it is.
        """
        left_s, whole = _seconds_to(end), self._returned[-1].time_epsilon is not None
        need_s = (WORTH if whole else 1.0) * self._ran_s
        return not self.interrupted and (left_s is None or left_s > need_s)

    def _finer(self, lessons: Lessons, epsilon: float) -> float:
        """Return how finely to search again for the bound that was asked for.

        Tables within ``epsilon`` give a larger one where programs need more than their points.
        """
        last, asked = self._returned[-1], self.options.epsilon
        paid = self._paid(lessons.tables, last)
        if lessons.tables.is_small or last.epsilon is None or paid is None or paid <= asked:
            return epsilon
        left = (1 + asked) * (1 + last.epsilon) / (1 + paid) - 1
        return max(SLACK * left if left > epsilon / 2 else epsilon / 2, min(epsilon, FINEST))

    def _is_searched(self, lessons: Lessons) -> bool:
        """Say whether the last search was of all that was learnt, within the bound asked for."""
        last = self._returned[-1].epsilon
        enough = last is not None and last <= self.options.epsilon
        return enough and self._searched_with == len(lessons)

    def _learns(self, tables: MeshTables) -> bool:
        return self.options.name == "ft" and tables.learns

    def _repeats(self, tables: MeshTables) -> int:
        """Return how often a mesh is searched again with what was learnt, or more finely.

        Where all points are asked for, and no clock runs, once more would take as long again. With
        one, only the last mesh has no other that needs the time.
        """
        if not self._learns(tables):
            return 0
        if tables.is_small:
            return MOST_ROUNDS
        if self.options.epsilon:
            return FINER_ROUNDS
        if self.options.time_limit_s is None:
            return 0
        return FINER_ROUNDS if self.number == self.count else 1

    def _rehearse(
        self, lessons: Lessons, end: float | None, tell: Say, coarse: float, share: float
    ) -> None:
        """Let the tables learn from frontiers within ``coarse``, which are found in a moment."""
        if len(lessons.tables.graph.nodes) > LARGE:
            return
        started = time.monotonic()
        left_s = _seconds_to(end)
        limit_s = math.inf if left_s is None else share * left_s
        for _ in range(ROUNDS):
            began = time.monotonic()
            limits = self._limits(end, tell)  # else what was done for the first would be lost
            limits = replace(limits, epsilon=max(limits.epsilon, coarse))
            if not self._tried(lessons, limits):
                break
            short = self._short(self._returned[-1], lessons, coarse)
            now = time.monotonic()
            late = now + LEARNING * (now - began) > started + limit_s  # of no use any more
            self._hurried |= late and bool(short)
            if self.interrupted or late or not lessons.learn(short):
                break

    def _tried(self, lessons: Lessons, limits: Limits) -> bool:
        """Search what is not needed for an answer; say whether that was possible.

        What was learnt is forgotten where not: with it the tables may be too wide.
        """
        try:
            self._run(lessons, limits)
        except (UserError, MemoryError):
            lessons.forget()
            return False
        return True

    def _run(self, lessons: Lessons, limits: Limits) -> None:
        """Search the tables with what they have learnt, and cost what is found."""
        started = time.monotonic()
        self._searched_with = len(lessons)
        result = run_method(self.options.name, Case(lessons.problem, lessons.tables), limits)
        self._ran_s = time.monotonic() - started
        self.interrupted |= result.interrupted
        self._returned.append(result)
        self._lines.append(result.lines)
        self._cost(lessons, result)

    def _short(self, result: Found, lessons: Lessons, epsilon: float) -> list[TablePoint]:
        """Return the points that no program is as good as, within ``epsilon``."""
        points = _kept(result, self.options, len(lessons.tables.graph.nodes))
        factors = self._shortfalls(points, lessons.tables)
        pairs = zip(points, factors.tolist(), strict=True)
        return [point for point, factor in pairs if factor > 1 + epsilon]

    def _shortfalls(self, points: Sequence[TablePoint], tables: MeshTables) -> Floats:
        return shortfalls(points, self._programs, overhead_s(tables))

    @property
    def _programs(self) -> list[tuple[float, float]]:
        return [(cost.time_s, float(cost.memory_bytes)) for _, _, cost in self.costed]

    @property
    def _given_up(self) -> float | None:
        """When even the fastest and the leanest point of a mesh are given up."""
        return None if self.options.must_answer and not self.found else self._last

    def _share(self) -> float | None:
        """Return when the next mesh should be done, tables too: an even part of what is left."""
        if self._end is None:
            return None
        now = time.monotonic()
        return now + max(0.0, self._end - now) / (self.count - self.number + 1)

    def _limits(self, end: float | None, tell: Say) -> Limits:
        def watch(status: Status) -> None:
            self._stopping = status.stopping
            tell(str(status))

        options, grace = self.options, GRACE_S if self.found else math.inf
        control = Control(_seconds_to(self._given_up), options.on_interrupt, grace, watch)
        time_limit_s = _seconds_to(end)
        known = [(max(c.time_s - overhead_s(t), 0.0), c.memory_bytes) for t, _, c in self.costed]
        asked = (options.seed, options.epsilon, time_limit_s, options.memory_bytes)
        lines = np.concatenate([NO_LINES, *self._lines])
        return Limits(*asked, control, known, lines, self._left_bytes)

    def _teller(self, mesh: Mesh) -> Say:
        where = f"mesh {mesh}" + (f" ({self.number} of {self.count})" if self.count > 1 else "")
        return lambda what: self.say(f"{where}: {what}, {time.monotonic() - self.started:.1f} s")

    def _cost(self, lessons: Lessons, result: Found) -> None:
        """Cost the points as emitted, the ends of the frontier first, while there is time.

        Points between them that another mesh beats are left out.
        """
        tables = lessons.tables
        points = _kept(result, self.options, len(tables.graph.nodes))
        for number, at in enumerate(_ends_first(len(points))):
            if number >= 2 and self._last is not None and time.monotonic() > self._last:
                break
            if number >= 2 and self._is_beaten(points[at], tables):
                continue
            assignment = tables.decode(points[at].assignment)
            cost, is_new = lessons.cost(assignment)
            if is_new:
                self.costed.append((tables, assignment, cost))

    def _is_beaten(self, point: TablePoint, tables: MeshTables) -> bool:
        """Whether a point that is costed is better, however far the tables are off in memory."""
        limit = point.memory if self._learns(tables) else BY_FAR * point.memory
        costs = (cost for _, _, cost in self.costed)
        return any(cost.time_s <= point.time and cost.memory_bytes <= limit for cost in costs)


class _InterruptedError(KeyboardInterrupt):
    """Ctrl-C has come before."""


def _weight(error: Exception) -> int:
    """Say which of several errors to show: the one that more memory or time would mend."""
    return (
        0 if isinstance(error, DoesNotFitError) else 1 if isinstance(error, OutOfTimeError) else 2
    )


def _seconds_to(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())


def _kept(result: Found, options: SearchOptions, nodes: int) -> list[TablePoint]:
    """Return the points to cost, fewer of a large program: to cost one takes time by its nodes."""
    points = result.points
    kept = _spread(
        len(points), max(2, min(options.points, LARGE * options.points // max(nodes, 1)))
    )
    if options.memory_bytes is not None:
        kept |= _around([point.memory for point in points], options.memory_bytes)
    return [points[i] for i in sorted(kept)]


def _spread(count: int, wanted: int) -> set[int]:
    """Return at most ``wanted`` of ``count`` positions, evenly, both ends among them."""
    if count <= wanted:
        return set(range(count))
    return {round(i * (count - 1) / (wanted - 1)) for i in range(wanted)}


def _around(memories: Sequence[float], limit: float, reach: int = 16) -> set[int]:
    """Return the positions next to where falling ``memories`` pass ``limit``."""
    first = next((i for i, memory in enumerate(memories) if memory <= limit), len(memories))
    return set(range(max(first - reach, 0), min(first + reach, len(memories))))


def _ends_first(count: int) -> Iterator[int]:
    """Yield every position below ``count``, both ends, then the middles of what is left between."""
    yield from range(count)[:: max(count - 1, 1)]
    spans = deque([(0, count - 1)])
    while spans:
        low, high = spans.popleft()
        if high - low > 1:
            middle = (low + high) // 2
            yield middle
            spans += [(low, middle), (middle, high)]
