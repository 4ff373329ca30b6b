"""Fit of rates to samples: a time is a sum of a few non-negative terms.

The variance of a time grows with the time, so squares are weighted by one over the fitted time (the
quasi-Poisson model with identity link; McCullagh and Nelder, Generalized Linear Models, 1989,
section 9.2). This weighting preserves the sum of all measured times, which matters because the
predicted time of a step is a sum. Non-negative least squares of up to four terms is solved by
trying every subset of terms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from tensoropt.compiler.calibrate.samples import CollectiveSample, OpSample, fastest, merge_equal
from tensoropt.compiler.cost.compute import VIEWS
from tensoropt.compiler.cost.measurements import KINDS, Context, MeasuredCurve, Operator
from tensoropt.runtime.support.arithmetic import ONE_PASS

__all__ = [
    "FittedCollective",
    "FittedOperator",
    "errors",
    "fit_collectives",
    "fit_curve",
    "fit_operators",
    "non_negative",
    "relative_errors",
    "times_of",
]

_Key = tuple[str, str]
"""An operator and its type."""

Floats = npt.NDArray[np.float64]

_ROUNDS = 20  # of reweighting; the weights settle in a few
_SETTLED = 1e-6  # relative change of a factor below which the fit has converged
_LEAST_GAIN = 1e-9  # relative gain in squares; a smaller gain is rounding
_LEAST_FIXED_S = 1e-9  # least time of a message
_CACHES = tuple(1 << power for power in range(19, 25))  # 512 KiB to 16 MiB
_LEAST_FAR = 3  # least samples beyond a cache
_LEAST_PART = 1e-3  # of the mean time: the weight of smaller fitted times is capped


def non_negative(terms: Floats, times: Floats, weights: Floats) -> Floats:
    """Return the factors >= 0 of the columns of ``terms`` with the least weighted squares.

    Exact: the best of all subsets of columns with a non-negative solution, by 2^columns solves.
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


def fit(
    terms: Floats, times: Floats, counts: npt.NDArray[np.int_], hints: tuple[Floats, Floats]
) -> Floats:
    """Return the factors >= 0 of the columns of ``terms`` that preserve the sum of times.

    ``counts`` is the number of samples of each row. ``hints`` are terms and times of other samples,
    which decide factors that the samples leave open. The relative error of a hint, long or short,
    counts like the relative error of one sample of mean time.
    """
    floor = max(_LEAST_PART * float(times.mean()), 1e-12)
    fitted = np.maximum(times, floor)
    all_terms, all_times = np.concatenate([terms, hints[0]]), np.concatenate([times, hints[1]])
    of_hints = float(times.mean()) / hints[1] ** 2
    factors = np.zeros(terms.shape[1])
    for _ in range(_ROUNDS):
        weights = np.concatenate([counts / fitted, of_hints])
        before, factors = factors, non_negative(all_terms, all_times, weights)
        if np.allclose(before, factors, rtol=_SETTLED, atol=0.0):
            break
        fitted = np.maximum(terms @ factors, floor)
    return factors


@dataclass(frozen=True)
class FittedOperator:
    """The fit of an operator in one type, and its errors.

    ``samples`` is the number of samples that ran, ``parts`` of samples that were fused into another
    node. ``median`` and ``worst`` are the median and the 90th percentile of the relative errors.
    ``misfit_s`` is the weighted sum of squares that the fit minimises.
    """

    name: str
    dtype: str
    operator: Operator
    samples: int
    parts: int
    time_s: float
    median: float
    worst: float
    misfit_s: float = 0.0


def fit_operators(
    samples: Iterable[OpSample], hints: Iterable[OpSample] = ()
) -> list[FittedOperator]:
    """Return the fit of each operator and type in ``samples``, by decreasing total time.

    Bytes beyond the size of a cache take longer. This size is the same for all operators, and is
    found by trying a few. If all ``samples`` of an operator have about the same size, its ``hints``
    of other sizes decide the factors that are left open.
    """
    others = _by_key(hint for hint in hints if hint.time_s)
    groups = {
        key: _Group(own, others.get(key, ())) for key, own in _by_key(merge_equal(samples)).items()
    }
    plain = {key: _operator(key, group, None) for key, group in groups.items()}
    tried = [plain, *(_with_cache(groups, plain, size) for size in _CACHES)]
    best = min(tried, key=lambda fitted: sum(one.misfit_s for one in fitted.values()))
    return sorted(best.values(), key=lambda own: (-own.time_s, own.name, own.dtype))


@dataclass(frozen=True)
class _Group:
    """The samples of an operator in one type, and its hints of other sizes."""

    samples: Sequence[OpSample]
    hints: Sequence[OpSample]


def _by_key(samples: Iterable[OpSample]) -> Mapping[_Key, list[OpSample]]:
    found: dict[_Key, list[OpSample]] = defaultdict(list)
    for sample in samples:
        found[sample.work.operator, sample.work.dtype].append(sample)
    return found


def _with_cache(
    groups: Mapping[_Key, _Group],
    plain: Mapping[_Key, FittedOperator],
    cache_bytes: int,
) -> Mapping[_Key, FittedOperator]:
    """Return the operators with a second rate for bytes beyond ``cache_bytes``.

    This needs several samples of more bytes, at least one with twice the size; operators without
    them have the ``plain`` fit.
    """

    def is_far(name: str, group: _Group) -> bool:
        if name == ONE_PASS:  # a step adds its bytes to those of a pass, however large that is
            return False
        far = [s.work.bytes for s in group.samples if s.time_s and s.work.bytes > cache_bytes]
        return len(far) >= _LEAST_FAR and max(far) >= 2 * cache_bytes

    return {
        key: _operator(key, group, cache_bytes) if is_far(key[0], group) else plain[key]
        for key, group in groups.items()
    }


def _operator(key: _Key, group: _Group, cache_bytes: int | None) -> FittedOperator:
    samples = group.samples
    fused = _fused(samples)
    ran = [sample for sample in samples if sample.context not in fused]
    counts = sum(s.count for s in ran), sum(s.count for s in samples if s.context in fused)
    if not ran:
        return FittedOperator(*key, Operator(0.0, 0, 0, fused), *counts, 0.0, 0, 0)
    each = np.array([sample.count for sample in ran])
    terms, times = _equations(key[0], ran, cache_bytes)
    hints = [hint for hint in group.hints if hint.context not in fused]
    factors = fit(terms, times, each, _equations(key[0], hints, cache_bytes))
    fitted = terms @ factors
    middle, worst = errors(np.repeat(fitted, each), np.repeat(times, each))
    misfit_s = float((each * (fitted - times) ** 2 / np.maximum(fitted, 1e-9)).sum())
    launch_s, s_per_flop, s_per_byte, *far = (float(factor) for factor in factors)
    beyond = (float(cache_bytes), far[0]) if cache_bytes is not None else (0.0, 0.0)
    operator = Operator(launch_s, s_per_flop, s_per_byte, fused, *beyond)
    total_s = float((times * each).sum())
    return FittedOperator(*key, operator, *counts, total_s, middle, worst, misfit_s)


def _equations(
    name: str, samples: Sequence[OpSample], cache_bytes: int | None
) -> tuple[Floats, Floats]:
    """Return the matrix of the terms of each sample, and the vector of times."""
    terms = [_terms(name, sample, cache_bytes) for sample in samples]
    width = 3 if cache_bytes is None else 4
    return np.array(terms, np.float64).reshape(-1, width), np.array([s.time_s for s in samples])


def _terms(name: str, sample: OpSample, cache_bytes: int | None) -> tuple[float, ...]:
    launch = 0.0 if name == ONE_PASS else 1.0  # else each step of the pass would be charged it
    near = (launch, 0.0, 0.0) if name in VIEWS else (launch, sample.work.flops, sample.work.bytes)
    if cache_bytes is None:
        return near
    return (*near, 0.0 if name in VIEWS else max(sample.work.bytes - cache_bytes, 0.0))


def _fused(samples: Sequence[OpSample]) -> frozenset[Context]:
    """Return the contexts in which most samples are fused into another node (time 0)."""
    counts: Mapping[Context, list[int]] = defaultdict(lambda: [0, 0])
    for sample in samples:
        counts[sample.context][sample.time_s > 0] += sample.count
    return frozenset(context for context, (none, some) in counts.items() if none > some)


def errors(fitted: Floats, times: Floats) -> tuple[float, float]:
    """Return the median and the 90th percentile of ``|fitted - time| / time``, 0 without times."""
    ran = times > 0
    if not ran.any():
        return 0.0, 0.0
    relative = relative_errors(fitted[ran], times[ran])
    return float(np.median(relative)), float(np.percentile(relative, 90))


def relative_errors(fitted: Floats, times: Floats) -> Floats:
    """Return ``|fitted / time - 1|`` of each time."""
    found: Floats = np.abs(fitted / times - 1.0)
    return found


@dataclass(frozen=True)
class FittedCollective:
    """A collective in groups of ``ranks``: the curve through its samples, and their errors."""

    kind: str
    ranks: int
    curve: MeasuredCurve
    samples: int
    median: float
    worst: float


def fit_collectives(samples: Iterable[CollectiveSample]) -> list[FittedCollective]:
    """Return the curve of each kind and group size; of equal samples the fastest counts."""
    groups: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for sample in fastest(samples, lambda own: own.key):
        groups[sample.kind, sample.ranks][sample.bytes] = sample.time_s
    found = []
    for kind, ranks in sorted(groups, key=lambda key: (KINDS.index(key[0]), key[1])):
        ran = groups[kind, ranks]
        if len(ran) > 1:  # a line needs two points
            sizes = np.array(sorted(ran), dtype=np.float64)
            times_s = np.array([ran[size] for size in sorted(ran)])
            curve = fit_curve(sizes, times_s)
            off = errors(times_of(curve, sizes), times_s)
            found.append(FittedCollective(kind, ranks, curve, len(ran), *off))
    return found


def fit_curve(sizes: Floats, times: Floats) -> MeasuredCurve:
    """Return the curve through times of ascending ``sizes``.

    It has up to three lines, the first from 0 or above, or two and a root. Each line fits a run of
    consecutive sizes. More terms are used only if they fit better.
    """
    best, least = MeasuredCurve((_line(sizes, times, start=True),)), np.inf
    for curve, terms in _curves(sizes, times):
        error = float(((times_of(curve, sizes) / times - 1.0) ** 2).mean()) * terms
        if error + _LEAST_GAIN < least:
            best, least = curve, error
    return best


def _curves(sizes: Floats, times: Floats) -> Iterator[tuple[MeasuredCurve, int]]:
    """Yield curves and the number of their lines and roots."""
    for ends in _cuts(len(sizes)):
        lines = tuple(
            _line(sizes[a:b], times[a:b], start=a == 0) for a, b in pairwise((0, *ends, len(sizes)))
        )
        yield MeasuredCurve(lines), len(lines)
        if len(ends) == 1:
            yield _with_root(sizes, times, ends[0]), 3


def _with_root(sizes: Floats, times: Floats, cut: int) -> MeasuredCurve:
    """Return a constant up to a cut, a line beyond it, and a root over all sizes."""
    small = np.arange(len(sizes)) < cut
    terms = np.stack([small, ~small, ~small * sizes, np.sqrt(sizes)], axis=1)
    first, fixed, slope, root = map(float, non_negative(terms, times, times**-2.0))
    return MeasuredCurve(((max(first, _LEAST_FIXED_S), 0.0), (fixed, slope)), root)


def _cuts(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the places of up to two cuts, at least two sizes apart."""
    places = range(2, count - 1)
    yield from ((), *((a,) for a in places))
    yield from ((a, b) for a in places for b in places if b >= a + 2)


def _line(sizes: Floats, times: Floats, *, start: bool) -> tuple[float, float]:
    """Return the line of least relative error; at ``start`` it is never negative."""
    terms = np.stack([np.ones_like(sizes), sizes], axis=1)
    if start:
        fixed, slope = non_negative(terms, times, times**-2.0)
        return max(float(fixed), _LEAST_FIXED_S), float(slope)
    fixed, slope = np.linalg.lstsq(terms / times[:, None], np.ones_like(times), rcond=None)[0]
    return (float(fixed), float(slope)) if slope > 0 else (0.0, 0.0)


def times_of(curve: MeasuredCurve, sizes: Floats) -> Floats:
    """Return the time of a curve at each size."""
    lines_s = np.max([fixed + slope * sizes for fixed, slope in curve.lines], axis=0)
    found: Floats = lines_s + curve.s_per_root_byte * np.sqrt(sizes)
    return found
