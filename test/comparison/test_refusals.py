"""What single methods refuse, and the orders of PaSE."""

from __future__ import annotations

import sys

import method_cases as cases
import numpy as np
import pytest

from tensoropt.compiler.comparison import ilp, mcmc
from tensoropt.compiler.comparison.case import Case, Limits
from tensoropt.compiler.comparison.pase import breadth_first, generated_sequence
from tensoropt.compiler.comparison.registry import run_method
from tensoropt.compiler.search.problem.problem import EdgeTable, NodeTable, Problem
from tensoropt.compiler.support.errors import UserError


def test_pase_takes_the_smallest_dependent_set_first() -> None:
    star = [{1, 2, 3}, {0}, {0}, {0}]
    assert generated_sequence(star) == [1, 2, 0, 3]
    assert breadth_first([{3}, set(), {3}, {0, 2}]) == [0, 3, 2, 1]


@pytest.mark.parametrize("name", ["pase", "pase-bfs"])
def test_pase_refuses_wide_tables(name: str) -> None:
    want = rf"--search {name}: the tables need about .* GiB \(the widest has 9 dimensions .* 2 GiB"
    with pytest.raises(UserError, match=want):
        run_method(name, Case(cases.dense_problem(10, 12)), Limits())


def test_breadth_first_is_wider() -> None:
    """A star from its middle: all leaves are open at once; PaSE's order settles one by one."""
    nodes = [NodeTable(np.arange(12.0)) for _ in range(12)]
    problem = Problem(nodes, [EdgeTable(0, leaf, np.ones((12, 12))) for leaf in range(1, 12)])
    assert run_method("pase", Case(problem), Limits()).points[0].time == 11
    with pytest.raises(UserError, match="the widest has 11 dimensions and 7"):
        run_method("pase-bfs", Case(problem), Limits())


@pytest.mark.parametrize(("nodes", "got"), [(8, "16777216"), (20, r"about 10\^18")])
def test_exhaustive_counts(nodes: int, got: str) -> None:
    problem = Problem([NodeTable(np.ones(8)) for _ in range(nodes)])
    want = f"--search exhaustive: too many choices, expected at most 10000000, got: {got}"
    with pytest.raises(UserError, match=want):
        run_method("exhaustive", Case(problem), Limits())


def test_ilp_without_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    want = (
        r"--search ilp: needs HiGHS, expected the package highspy \(pip install 'tensoropt\[ilp\]"
    )
    with pytest.raises(UserError, match=want):
        run_method("ilp", Case(Problem([NodeTable([1.0])])), Limits())


def test_ilp_counts_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ilp, "MOST_VARIABLES", 11)
    want = "--search ilp: too many variables, expected at most 11, got: 18"
    with pytest.raises(UserError, match=want):
        run_method("ilp", Case(cases.dense_problem(3, 2)), Limits())


def test_ilp_out_of_time() -> None:
    case = cases.model_case("gpt2_tiny", (2, 2))
    want = "--search ilp: no solution in time, expected a longer --search-time, got: 0 seconds"
    with pytest.raises(UserError, match=want):
        run_method("ilp", case, Limits(time_limit_s=0.0))


def test_ilp_within_memory_as_emitted() -> None:
    from tensoropt.compiler.program.evaluate import Evaluator

    case = cases.model_case("gpt2_tiny", (4,))
    assert case.tables is not None
    evaluator, variables = Evaluator(case.tables), len(case.tables.variables)

    def memory(limit: float | None) -> int:
        point = run_method("ilp", case, Limits(memory_bytes=limit)).points[0]
        return evaluator.evaluate(point.assignment[:variables].tolist()).memory_bytes

    free = memory(None)
    assert memory(0.8 * free) <= 0.8 * free
    with pytest.raises(UserError, match="no choice fits, expected more memory, got: 1000 bytes"):
        memory(1000.0)


def test_mcmc_sees_more_with_more_proposals() -> None:
    case, _ = cases.random_case(12)
    problem = case.problem
    start = np.array([len(n.time_s) - 1 for n in problem.nodes], dtype=np.int32)
    if np.isfinite(problem.cost(start).time):
        times = [problem.cost(mcmc.walk(problem, start, n, 0)).time for n in (0, 10, 3000)]
        assert times == sorted(times, reverse=True)
