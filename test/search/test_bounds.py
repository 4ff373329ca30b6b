"""What searches prove together, against all the plans there are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.search.frontier.bounds import Claim, proven
from tensoropt.compiler.search.problem.problem import NO_LINES, TablePoint

Pairs = npt.NDArray[np.float64]

MORE_S = 0.5
NOBODY = np.zeros(0, dtype=np.int32)


def _error(plans: Pairs, every: Pairs) -> float:
    """Return how much more the best of plans takes than each, at worst."""
    ratios = (plans[None] / every[:, None]).max(axis=2).min(axis=1)
    return max(float(ratios.max()) - 1, 0.0)


def _points(pairs: Pairs) -> list[TablePoint]:
    return [TablePoint(memory, memory, 0.0, time_s, NOBODY) for time_s, memory in pairs.tolist()]


def _lines(rng: np.random.Generator, every: Pairs) -> Pairs:
    weights = rng.uniform(0, 1, (3, 2)) * rng.choice([0, 1], (3, 2), p=[0.2, 0.8])
    return np.column_stack([weights, (weights @ every.T).min(axis=1)])


@given(st.integers(0, 2**32 - 1))
@examples(300)
def test_what_is_proven_holds_of_every_plan(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = rng.uniform(1, 5, (12, 2))
    more = np.column_stack([np.full(12, MORE_S), np.zeros(12)])
    programs = tables + more + rng.choice([0.0, 0.4], (12, 2))  # never less than tables say
    known = rng.choice(12, rng.integers(1, 6), replace=False)
    claims = []
    for _ in range(rng.integers(0, 3)):
        own = tables[rng.choice(12, rng.integers(1, 6), replace=False)]
        reach = np.concatenate([own, programs[known] - more[known]])
        claims.append(Claim(_points(own), _error(reach, tables)))
    lines = _lines(rng, tables) if rng.random() < 0.7 else NO_LINES
    plans = [(time_s, memory) for time_s, memory in programs[known].tolist()]
    bound = proven(plans, claims, lines, MORE_S)
    assert bound is not None or not claims
    if bound is not None:
        assert _error(programs[known], programs) <= bound + 1e-9


def test_a_claim_and_lines_are_better_together() -> None:
    """The lines say nothing of the fast end, the claim little of the lean one."""
    plans = [(1.0, 8.0), (4.0, 2.0)]
    claim = Claim(_points(np.array([[1.0, 8.0], [4.0, 1.0]])), 0.05)
    lines = np.array([[0.0, 1.0, 1.9], [1.0, 1.0, 6.0]])
    assert proven(plans, [claim], NO_LINES, 0.0) == 2 * 1.05 - 1
    assert proven(plans, [], lines, 0.0) is None
    together = proven(plans, [claim], lines, 0.0)
    assert together is not None
    assert 0.05 <= together < 2 / 1.9 + 0.05


def test_what_is_known_whole_has_no_error() -> None:
    plans = [(1.0 + MORE_S, 8.0), (4.0 + MORE_S, 2.0)]
    claim = Claim(_points(np.array([[1.0, 8.0], [4.0, 2.0]])), 0.0)
    assert proven(plans, [claim], NO_LINES, MORE_S) == 0
    assert proven(plans, [], NO_LINES, MORE_S) is None
