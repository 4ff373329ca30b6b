"""Rates from samples: times that are sums of a few terms, none of them negative.

The spread of a time grows with it, so squares are weighted by one over the fitted time (the
quasi-Poisson model with identity link; McCullagh and Nelder, Generalized Linear Models, 1989,
section 9.2), which leaves the sum of all times as it was measured: what a step is predicted from
is a sum. Non-negative least squares of up to three terms is solved by trying every subset of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.calibrate.samples import CollectiveSample, OpSample, alike
from tensoropt.compiler.cost.compute import VIEWS
from tensoropt.compiler.cost.measured import KINDS, Context, Lines, Operator

__all__ = [
    "FittedCollective",
    "FittedOperator",
    "errors",
    "fit_collectives",
    "fit_lines",
    "fit_operators",
    "greatest",
    "non_negative",
]

Floats = npt.NDArray[np.float64]

_ROUNDS = 20  # of reweighting; the weights settle in a few
_LEAST_GAIN = 1e-9  # in squares: a term that gains less is rounding
_LEAST_FIXED_S = 1e-9  # no message takes no time
_LEAST_PART = 1e-3  # of the mean time: smaller fitted times weigh no more


def non_negative(terms: Floats, times: Floats, weights: Floats) -> Floats:
    """Return the factors >= 0 of the columns of ``terms`` whose sum is nearest to ``times``.

    Exact: the best of all subsets of columns whose own solution is not negative; 2^columns solves.
    """
    root = np.sqrt(weights)
    best, least = np.zeros(terms.shape[1]), float((weights * times**2).sum())
    for count in range(1, terms.shape[1] + 1):
        for chosen in map(list, combinations(range(terms.shape[1]), count)):
            scale = np.abs(terms[:, chosen]).max(axis=0)
            scale[scale == 0] = 1.0
            matrix = terms[:, chosen] / scale * root[:, None]
            solution = np.linalg.lstsq(matrix, times * root, rcond=None)[0]
            residue = float(((matrix @ solution - times * root) ** 2).sum())
            if (solution >= 0).all() and residue < (1.0 - _LEAST_GAIN) * least:
                best, least = np.zeros(terms.shape[1]), residue
                best[chosen] = solution / scale
    return best


def fit(terms: Floats, times: Floats, counts: npt.NDArray[np.int_]) -> Floats:
    """Return the factors >= 0 of the columns of ``terms``; their sum of times is the measured.

    ``counts`` says how many samples each row is.
    """
    floor = max(_LEAST_PART * float(times.mean()), 1e-12)
    fitted = np.maximum(times, floor)
    factors = np.zeros(terms.shape[1])
    for _ in range(_ROUNDS):
        factors = non_negative(terms, times, counts / fitted)
        fitted = np.maximum(terms @ factors, floor)
    return factors


@dataclass(frozen=True)
class FittedOperator:
    """An operator in one type: its fit, and how well it says what was measured.

    ``samples`` counts those that ran, ``parts`` those that were part of another. ``median`` and
    ``worst`` are relative errors: of half of the samples, of nine in ten at most.
    """

    name: str
    dtype: str
    operator: Operator
    samples: int
    parts: int
    time_s: float
    median: float
    worst: float


def fit_operators(samples: Iterable[OpSample]) -> list[FittedOperator]:
    """Return the operators of ``samples``, each type apart, those that took longest first."""
    groups: dict[tuple[str, str], list[OpSample]] = defaultdict(list)
    for sample in alike(samples):
        groups[sample.work.operator, sample.work.dtype].append(sample)
    fitted = [_operator(*key, group) for key, group in groups.items()]
    return sorted(fitted, key=lambda group: (-group.time_s, group.name, group.dtype))


def _operator(name: str, dtype: str, samples: Sequence[OpSample]) -> FittedOperator:
    fused = _fused(samples)
    ran = [sample for sample in samples if sample.context not in fused]
    counts = sum(s.count for s in ran), sum(s.count for s in samples if s.context in fused)
    if not ran:
        return FittedOperator(name, dtype, Operator(0.0, 0, 0, fused), *counts, 0.0, 0, 0)
    times = np.array([sample.time_s for sample in ran], dtype=np.float64)
    each = np.array([sample.count for sample in ran])
    terms = np.array([_terms(name, sample) for sample in ran], dtype=np.float64)
    launch_s, s_per_flop, s_per_byte = (float(x) for x in fit(terms, times, each))
    fitted = terms @ np.array([launch_s, s_per_flop, s_per_byte])
    middle, worst = errors(np.repeat(fitted, each), np.repeat(times, each))
    operator = Operator(launch_s, s_per_flop, s_per_byte, fused)
    total_s = float((times * each).sum())
    return FittedOperator(name, dtype, operator, *counts, total_s, middle, worst)


def _terms(name: str, sample: OpSample) -> tuple[float, float, float]:
    if name in VIEWS:
        return 1.0, 0.0, 0.0
    return 1.0, sample.work.flops, sample.work.bytes


def _fused(samples: Sequence[OpSample]) -> frozenset[Context]:
    """Return the contexts in which most samples took no time of their own."""
    counts: Mapping[Context, list[int]] = defaultdict(lambda: [0, 0])
    for sample in samples:
        counts[sample.context][sample.time_s > 0] += sample.count
    return frozenset(context for context, (none, some) in counts.items() if none > some)


def errors(fitted: Floats, times: Floats) -> tuple[float, float]:
    """Return the median and the 90th percentile of ``|fitted - time| / time``, 0 for none."""
    ran = times > 0
    if not ran.any():
        return 0.0, 0.0
    relative = np.abs(fitted[ran] / times[ran] - 1.0)
    return float(np.median(relative)), float(np.percentile(relative, 90))


@dataclass(frozen=True)
class FittedCollective:
    """A collective in groups of so many ranks: the lines through its samples, and their errors."""

    kind: str
    ranks: int
    lines: Lines
    samples: int
    median: float
    worst: float


def fit_collectives(samples: Iterable[CollectiveSample]) -> list[FittedCollective]:
    """Return the lines of each kind in groups of each size; of equal samples the fastest counts."""
    groups: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for sample in samples:
        times = groups[sample.kind, sample.ranks]
        times[sample.bytes] = min(sample.time_s, times.get(sample.bytes, np.inf))
    found = sorted(groups.items(), key=lambda group: (KINDS.index(group[0][0]), group[0][1]))
    return [_collective(*key, times) for key, times in found if len(times) > 1]


def _collective(kind: str, ranks: int, ran: Mapping[int, float]) -> FittedCollective:
    sizes = np.array(sorted(ran), dtype=np.float64)
    times = np.array([ran[size] for size in sorted(ran)])
    lines = fit_lines(sizes, times)
    return FittedCollective(kind, ranks, lines, len(ran), *errors(greatest(lines, sizes), times))


def fit_lines(sizes: Floats, times: Floats) -> tuple[tuple[float, float], ...]:
    """Return up to three lines (seconds, seconds per byte); the greatest of them is the time.

    Each goes through a run of consecutive ``sizes``, ascending; more lines are taken where they
    are nearer. What does not fit a cache takes longer per byte, so that times bend upwards, and
    only the first line starts at 0 or above.
    """
    best: tuple[tuple[float, float], ...] = (_line(sizes, times, start=True),)
    least = np.inf
    for ends in _cuts(len(sizes)):
        lines = tuple(
            _line(sizes[a:b], times[a:b], start=a == 0) for a, b in pairwise((0, *ends, len(sizes)))
        )
        error = float(((greatest(lines, sizes) / times - 1.0) ** 2).mean()) * len(lines)
        if error + _LEAST_GAIN < least:
            best, least = lines, error
    return best


def _cuts(count: int) -> Iterator[tuple[int, ...]]:
    """Yield where up to two cuts may be, at least two sizes apart."""
    places = range(2, count - 1)
    yield from ((), *((a,) for a in places))
    yield from ((a, b) for a in places for b in places if b >= a + 2)


def _line(sizes: Floats, times: Floats, *, start: bool) -> tuple[float, float]:
    """Return the line nearest to the times, relatively; at ``start`` one that is never negative."""
    terms = np.stack([np.ones_like(sizes), sizes], axis=1)
    if start:
        fixed, slope = non_negative(terms, times, times**-2.0)
        return max(float(fixed), _LEAST_FIXED_S), float(slope)
    fixed, slope = np.linalg.lstsq(terms / times[:, None], np.ones_like(times), rcond=None)[0]
    return (float(fixed), float(slope)) if slope > 0 else (0.0, 0.0)


def greatest(lines: Sequence[tuple[float, float]], sizes: Floats) -> Floats:
    """Return the time at each size: the greatest of the lines."""
    found: Floats = np.max([fixed + slope * sizes for fixed, slope in lines], axis=0)
    return found
