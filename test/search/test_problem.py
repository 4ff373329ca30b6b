"""What a problem refuses, and in which words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensoropt.compiler.search.engine.ft import solve_frontier, solve_min_time
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem
from tensoropt.compiler.support.errors import UserError

TWO = [NodeTable([1, 2]), NodeTable([1, 2, 3])]
EDGE = np.ones((2, 3))


def _negative() -> Problem:
    return Problem(TWO, [EdgeTable(0, 1, EDGE, -EDGE)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Problem([NodeTable([])]), "node 0: time_s has a wrong shape, expected one dim"),
        (lambda: Problem([NodeTable([[1, 2]])]), r"option, got: \(1, 2\)"),
        (
            lambda: Problem([NodeTable([1, 2], [1])]),
            r"node 0: static_bytes has a wrong shape, expected \(2,\), got: \(1,\)",
        ),
        (
            lambda: Problem([NodeTable([1, np.nan])]),
            r"node 0: time_s\[1\] is no cost, expected seconds, not negative, got: nan",
        ),
        (
            lambda: Problem([NodeTable([1], None, [np.inf])]),
            r"node 0: transient_bytes\[0\] is no cost, expected finite bytes.*, got: inf",
        ),
        (_negative, r"edge 0 from node 0 to node 1: static_bytes\[0, 0\] is no cost.*got: -1"),
        (
            lambda: Problem(TWO, [EdgeTable(1, 0, EDGE)]),
            r"edge 0 from node 1 to node 0: time_s has a wrong shape, expected \(3, 2\)",
        ),
        (
            lambda: Problem(TWO, [EdgeTable(0, 2, EDGE)]),
            "edge 0: no such node, expected 0 to 1, got: 2",
        ),
        (lambda: Problem(TWO, [EdgeTable(1, 1, EDGE)]), "joins a node to itself.*got: 1 twice"),
        (lambda: Problem(TWO).cost([0]), r"assignment: wrong shape, expected \(2,\), got: \(1,\)"),
        (
            lambda: Problem(TWO).cost([0, 3]),
            "assignment of node 1: no such option, expected 0 to 2, got: 3",
        ),
        (
            lambda: solve_frontier(Problem(TWO), epsilon=-1),
            "epsilon is out of range, expected at least 0, got: -1",
        ),
        (
            lambda: solve_frontier(Problem(TWO), time_limit_s=float("nan")),
            "time limit is out of range, expected at least 0 seconds, got: nan",
        ),
        (
            lambda: solve_frontier(Problem(TWO), threads=0),
            "threads is out of range, expected at least 1, got: 0",
        ),
    ],
)
def test_messages(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_a_problem_too_wide_says_how_much_it_needs() -> None:
    size, nodes = 60, 12
    tables = [NodeTable(np.arange(size) + 1.0, np.arange(size)[::-1]) for _ in range(nodes)]
    pairs = [(a, b) for b in range(nodes) for a in range(b)]
    edges = [EdgeTable(a, b, np.ones((size, size))) for a, b in pairs]
    want = r"search: the tables of the search need about .* GiB \(the widest is 60 x 60 x .*at most"
    for solve in (solve_min_time, solve_frontier):
        with pytest.raises(UserError, match=want):
            solve(Problem(tables, edges))


def test_cost_adds_nodes_and_edges_and_takes_the_largest_transient() -> None:
    nodes = [NodeTable([1, 2], [10, 20], [7, 3]), NodeTable([4], [40], [5])]
    edges = [EdgeTable(1, 0, [[8, 16]], [[80, 160]], [[6, 6]])]
    point = Problem(nodes, edges).cost([1, 0])
    assert (point.time, point.static, point.transient, point.memory) == (22, 220, 6, 226)
    assert point.assignment.dtype == np.int32
