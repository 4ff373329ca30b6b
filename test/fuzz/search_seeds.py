"""The search against enumeration of every choice, on many random small problems.

    make search-seeds                       20,000 problems
    make search-seeds ARGS="--count 500 --seed 9000"

Each is searched as a small problem is and as a large one is; exactly, within a bound, and under a
clock that ends at once or later; alone, and with points and lines that are known before. Every
choice has to be within the bound that is proven, and of an exact search every best one has to be
there. What is not is printed with its seed. Ends with status 1 if there is any.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent.parent / "search"))

import brute

from tensoropt.compiler.search.engine import ft
from tensoropt.compiler.search.problem.problem import NO_LINES, Floats, Lines, Problem
from tensoropt.compiler.support.errors import UserError

_CLOSE = 1e-9
_Pairs = list[tuple[float, float]]


@dataclass(frozen=True)
class Way:
    """How to search: see ``ft._run``. ``limit_s`` are seconds of time."""

    epsilon: float
    limit_s: float | None
    direct_sums: float
    box_sums: float
    line_sums: float


@dataclass(frozen=True)
class _Case:
    """A problem with all that it has: seconds and bytes of every choice, and the best of them."""

    problem: Problem
    times: Floats
    memories: Floats
    best: _Pairs


def ways(rng: np.random.Generator) -> Iterator[Way]:
    """Yield ways to search a problem; what ends at once is first, as its lines help the next."""
    large = float(rng.choice([0.0, 2e3])), float(rng.choice([0.0, 1e8]))
    epsilon = float(rng.choice([0.0, 0.01, 0.1, 0.5]))
    yield Way(epsilon, 0.0, 0.0, *large)
    yield Way(epsilon, float(rng.choice([1e-4, 60.0])), 0.0, *large)
    yield Way(epsilon, None, float(rng.choice([0.0, 1e6])), 2e7, 1e8)


def faults(seed: int) -> list[str]:
    """Return what the search gets wrong of the problem of ``seed``, in words."""
    rng = np.random.default_rng(seed)
    problem = brute.random_problem(rng)
    times, memories = brute.enumerate_costs(problem)
    case = _Case(problem, times, memories, brute.pareto(times, memories))
    if not case.best:
        return _refusal_faults(problem)
    known = _known(case.best, rng)
    found, lines = list[str](), NO_LINES
    for way in ways(rng):
        own, lines = _faults(case, way, known, lines)
        found += [f"{way}, {len(known)} points known: {fault}" for fault in own]
    return found


def _refusal_faults(problem: Problem) -> list[str]:
    try:
        ft.solve_frontier(problem)
    except UserError as error:
        return [] if "no assignment is allowed" in str(error) else [f"refused: {error}"]
    return ["points where every choice is forbidden"]


def _known(best: _Pairs, rng: np.random.Generator) -> _Pairs:
    """Return points of another problem: none, some of the best, or some that are a little off."""
    kind, step = rng.integers(3), int(rng.integers(1, 4))
    if kind == 0:
        return []
    low, high = (0.7, 1.3) if kind == 2 else (1.0, 1.0)
    return [(t * rng.uniform(low, high), m * rng.uniform(low, high)) for t, m in best[::step]]


def _faults(case: _Case, way: Way, known: _Pairs, lines: Lines) -> tuple[list[str], Lines]:
    """Return what one search gets wrong, and the lines that hold by it."""
    result = ft._run(
        case.problem, way.epsilon, way.limit_s, 2, direct_sums=way.direct_sums,
        box_sums=way.box_sums, line_sums=way.line_sums, known=known, lines=lines,
    )  # fmt: skip
    epsilon, proven = result["epsilon"], result["lines"]
    points = [(point.time, point.memory) for point in ft._points(case.problem, result["choices"])]
    found = [*_line_faults(case, proven), *_point_faults(case, points)]
    if way.limit_s in (None, 60.0) and not epsilon <= way.epsilon:
        found.append(f"bound {epsilon}, expected at most {way.epsilon}")
    if np.isinf(epsilon):  # nothing is relatively close to what takes nothing
        ends = case.best[0][0], case.best[-1][1]
        found += [] if 0 in ends else ["no bound, expected one"]
    else:
        found += _bound_faults(case.best, [*known, *points], epsilon)
    return found, np.concatenate([lines, proven])


def _line_faults(case: _Case, lines: Lines) -> Iterator[str]:
    allowed = np.isfinite(case.times)
    times, memories = case.times[allowed], case.memories[allowed]
    for a, b, least in lines.tolist():
        if (a * times + b * memories).min() < least * (1 - _CLOSE):
            yield f"{a} time + {b} memory is below {least}"


def _point_faults(case: _Case, points: _Pairs) -> Iterator[str]:
    """Yield points that no choice has."""
    for time, memory in points:
        near = np.isclose(case.times, time, rtol=_CLOSE) & np.isclose(case.memories, memory)
        if not near.any():
            yield f"no choice has {time}, {memory}"


def _bound_faults(best: _Pairs, points: _Pairs, epsilon: float) -> Iterator[str]:
    """Yield the best choices that no point is as close to as the bound says."""
    factor = (1 + epsilon) * (1 + _CLOSE)
    for t, m in best:
        if not any(p <= t * factor + 1e-12 and q <= m * factor + 1e-9 for p, q in points):
            yield f"{t}, {m} is not within {epsilon} of a point"


def main(argv: Sequence[str] | None = None) -> int:
    """Search, print what is wrong, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20000, help="how many problems")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    args = parser.parse_args(argv)
    wrong = 0
    for seed in range(args.seed, args.seed + args.count):
        found = faults(seed)
        wrong += bool(found)
        for fault in found:
            print(f"seed {seed}: {fault}", flush=True)
    print(f"{args.count} problems, {wrong} searched wrongly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
