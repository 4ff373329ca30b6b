"""Random choices are allowed, differ by seed, and are all reachable."""

from __future__ import annotations

import math
from collections import Counter

import brute
import numpy as np
import pytest

from tensoropt.compiler.comparison.random_search import random_assignment
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem
from tensoropt.compiler.support.errors import UserError


def test_choices_are_allowed_and_repeat_by_seed() -> None:
    for seed in range(150):
        problem = brute.random_problem(np.random.default_rng(seed))
        if not brute.pareto(*brute.enumerate_costs(problem)):
            with pytest.raises(UserError, match="no assignment is allowed"):
                random_assignment(problem, seed)
            continue
        choice = random_assignment(problem, seed)
        assert math.isfinite(problem.cost(choice).time)
        assert (choice == random_assignment(problem, seed)).all()


def test_draws_are_uniform_without_restrictions() -> None:
    problem = Problem([NodeTable(np.ones(3)), NodeTable(np.ones(2))], [])
    counts = Counter(tuple(random_assignment(problem, seed)) for seed in range(600))
    assert len(counts) == 6
    assert all(60 < count < 140 for count in counts.values())


def test_dead_ends_are_taken_back() -> None:
    """Three nodes pairwise different in two of three values: arc consistent, hard for a greedy."""
    unequal = np.where(np.eye(3, dtype=bool), np.inf, 1.0)
    nodes = [NodeTable([1, 1, np.inf]), NodeTable([1, 1, 1]), NodeTable([1, 1, 1])]
    edges = [EdgeTable(a, b, unequal) for a, b in ((0, 1), (1, 2), (0, 2))]
    found = {tuple(random_assignment(Problem(nodes, edges), seed)) for seed in range(60)}
    assert found == {(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0)}


def test_impossible_colouring_is_refused() -> None:
    unequal = np.where(np.eye(2, dtype=bool), np.inf, 1.0)
    nodes = [NodeTable([1, 1]) for _ in range(3)]
    edges = [EdgeTable(a, b, unequal) for a, b in ((0, 1), (1, 2), (0, 2))]
    with pytest.raises(UserError, match="no assignment is allowed, expected one of finite time"):
        random_assignment(Problem(nodes, edges), 0)


def test_no_nodes() -> None:
    assert len(random_assignment(Problem([]), 0)) == 0
