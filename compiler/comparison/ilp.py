"""Integer programming as in Alpa (arXiv 2201.12023, section 4.2), solved by HiGHS.

Each option of a node has a binary variable, and one variable of a node is 1. The product of two of
them is another variable, one per pair of options of an edge, tied to both by linear constraints. So
a table has a column per entry; each node, and each option at either end of an edge, has a row.
Solving is exponential in the worst case.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.compiler.comparison.case import (
    Assignment,
    Case,
    Limits,
    collect,
)
from tensoropt.compiler.comparison.program import Program, build_program, count_variables
from tensoropt.compiler.search.problem.problem import (
    DoesNotFitError,
    TableFrontier,
    nothing_allowed,
)
from tensoropt.compiler.support.errors import UserError

if TYPE_CHECKING:
    from highspy import Highs, HighsLp

__all__ = ["MOST_VARIABLES", "search"]

MOST_VARIABLES = 2_000_000
_TRIES = 8


def search(case: Case, limits: Limits) -> TableFrontier:
    """Return an assignment of least time; ``time_epsilon`` is the gap that HiGHS reached.

    With ``memory_bytes`` its memory is within that: by the tables, and of a model also as the
    graphs that it leads to have it, for which the tables' limit is tightened where needed.

    Raises :class:`UserError` without ``highspy``, above :data:`MOST_VARIABLES`, when nothing fits,
    and when the time limit passes before there is a solution.
    """
    if limits.memory_bytes is None or case.tables is None:
        return _solve(case, limits)
    wanted, started, left = limits.memory_bytes, time.monotonic(), limits.time_limit_s
    for _ in range(_TRIES):
        if limits.time_limit_s is not None:
            left = max(limits.time_limit_s - (time.monotonic() - started), 0.0)
        result = _solve(case, replace(limits, time_limit_s=left))
        need = _emitted_bytes(case, result.points[0].assignment)
        if need <= wanted:
            return result
        charged = result.points[0].memory  # which may be well below the limit
        limits = replace(limits, memory_bytes=charged * wanted / need)
    raise DoesNotFitError(
        f"--search ilp: nothing within {wanted:g} bytes was found, expected more memory, "
        f"got: {need:g} bytes at best"
    )


def _emitted_bytes(case: Case, assignment: Assignment) -> float:
    from tensoropt.compiler.program.evaluate import Evaluator

    assert case.tables is not None
    chosen = case.tables.decode(assignment).tolist()
    return Evaluator(case.tables).evaluate(chosen).memory_bytes + case.tables.rest_bytes


def _solve(case: Case, limits: Limits) -> TableFrontier:
    highspy = _highspy()
    count = count_variables(case.problem)
    if count > MOST_VARIABLES:
        raise UserError(
            f"--search ilp: too many variables, expected at most {MOST_VARIABLES}, got: {count}"
        )
    started = time.monotonic()
    program = build_program(case.problem, limits.memory_bytes)
    solver = _solved(highspy, program, _seconds_left(limits, started))
    if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        # HiGHS 1.15 has found programs infeasible that are not, in presolve.
        solver = _solved(highspy, program, _seconds_left(limits, started), presolve="off")
    _check_solved(highspy, solver, limits)
    assignment = program.decode(solver.getSolution().col_value)
    info = solver.getInfo()
    gap = _gap(info.objective_function_value, info.mip_dual_bound)
    return collect(case.problem, [assignment], time_epsilon=gap)


def _highspy() -> ModuleType:
    try:
        import highspy
    except ImportError:
        raise UserError(
            "--search ilp: needs HiGHS, expected the package highspy "
            "(pip install 'tensoropt[ilp]'), got: none"
        ) from None
    return highspy


def _seconds_left(limits: Limits, started: float) -> float | None:
    if limits.time_limit_s is None:
        return None
    return max(limits.time_limit_s - (time.monotonic() - started), 0.0)


def _solved(
    highspy: ModuleType, program: Program, time_limit_s: float | None, presolve: str = "choose"
) -> Highs:
    """Return HiGHS after it has run for at most so long."""
    solver: Highs = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 2)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 1e-7)
    if time_limit_s is not None:
        solver.setOptionValue("time_limit", float(time_limit_s))
    solver.setOptionValue("presolve", presolve)
    solver.passModel(_linear_program(highspy, program))
    solver.run()
    return solver


def _linear_program(highspy: ModuleType, program: Program) -> HighsLp:
    columns = len(program.cost)
    lp: HighsLp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns, len(program.row_lower)
    lp.col_cost_ = program.cost
    lp.col_lower_, lp.col_upper_ = np.zeros(columns), np.full(columns, np.inf)
    lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = lp.num_col_, lp.num_row_
    lp.a_matrix_.start_ = program.start
    lp.a_matrix_.index_ = program.index
    lp.a_matrix_.value_ = program.value
    kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
    lp.integrality_ = [kinds[column < program.binaries] for column in range(columns)]
    return lp


def _check_solved(highspy: ModuleType, solver: Highs, limits: Limits) -> None:
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        if limits.memory_bytes is None:
            raise nothing_allowed()
        raise DoesNotFitError(
            "--search ilp: no choice fits, expected more memory, "
            f"got: {limits.memory_bytes:g} bytes"
        )
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        raise UserError(
            "--search ilp: no solution in time, expected a longer --search-time, "
            f"got: {limits.time_limit_s:g} seconds"
        )


def _gap(reached: float, bound: float) -> float:
    """Return how far, relatively, ``reached`` may be above the least; rounding is no gap."""
    gap = reached / bound - 1 if bound > 0 else (math.inf if reached > 1e-9 else 0.0)
    return max(gap, 0.0) if gap > 1e-9 else 0.0
