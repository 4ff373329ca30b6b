"""Fits recover what made the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.calibrate.fit import (
    errors,
    fit,
    fit_curve,
    fit_operators,
    non_negative,
    times_of,
)
from tensoropt.compiler.calibrate.samples import OpSample
from tensoropt.compiler.cost.compute import Work
from tensoropt.compiler.cost.measurements import MeasuredCurve
from tensoropt.runtime.support.arithmetic import ONE_PASS

RATES = st.floats(1e-12, 1e-9)
SIZES = np.array([4.0 * 4**power for power in range(5, 14)])


def sample(
    time_s: float, flops: float = 0.0, moved: float = 0.0, operator: str = "MatMul", *made: str
) -> OpSample:
    return OpSample(Work(operator, "float32", flops, moved), made, time_s)


@given(st.lists(st.lists(st.floats(-1, 1), min_size=4, max_size=4), min_size=6, max_size=12))
def test_the_best_factors_are_where_no_step_leads_down(rows: list[list[float]]) -> None:
    matrix = np.array(rows)
    terms, times = np.abs(matrix[:, :3]) + 0.01, matrix[:, 3]
    weights = 1.0 + np.arange(len(rows))
    found = non_negative(terms, times, weights)
    slope = terms.T @ (weights * (terms @ found - times))
    assert (found >= 0).all()
    assert (slope >= -1e-6).all()  # growing any factor makes it worse
    assert np.abs(slope[found > 1e-9]).max(initial=0.0) < 1e-6  # so does shrinking one


@given(st.floats(1e-7, 1e-4), RATES, RATES)
def test_an_operator_is_recovered(launch_s: float, per_flop: float, per_byte: float) -> None:
    sizes = [(4.0**a, 3.0 * 4.0**b) for a in range(5, 12) for b in range(5, 12)]
    held = [sample(launch_s + per_flop * f + per_byte * b, f, b) for f, b in sizes]
    [fitted] = fit_operators(held)
    assert fitted.samples == len(sizes)
    assert fitted.worst < 1e-6
    assert fitted.operator.time_s(1e9, 1e9) == pytest.approx(
        launch_s + (per_flop + per_byte) * 1e9, rel=1e-6
    )


def test_bytes_beyond_a_cache_take_longer() -> None:
    """The size of the cache is found; of another operator too few samples say anything of it."""
    sizes = [1e5 * 2.0**power for power in range(10)]

    def time_s(moved: float) -> float:
        return 1e-6 + moved / 5e10 + max(moved - (4 << 20), 0) / 1e10

    held = [sample(time_s(moved), 0, moved, "Add") for moved in sizes]
    few = [sample(time_s(moved), 0, moved, "Mul") for moved in (1e5, 2e5, 6e6)]
    found = {fitted.name: fitted.operator for fitted in fit_operators([*held, *few])}
    assert (found["Add"].cache_bytes, found["Mul"].s_per_far_byte) == (4 << 20, 0.0)
    for moved in (3e5, 3e6, 3e7, 3e8):
        assert found["Add"].time_s(0, moved) == pytest.approx(time_s(moved), rel=1e-3)


@given(st.lists(st.tuples(st.floats(1e-6, 1e-3), st.integers(1, 40)), min_size=1, max_size=30))
def test_the_sum_of_the_times_is_kept(pairs: list[tuple[float, int]]) -> None:
    distinct = {size: time_s for time_s, size in pairs}
    held = [sample(time_s, moved=1e4 * size) for size, time_s in distinct.items()]
    [fitted] = fit_operators(held)
    predicted = sum(fitted.operator.time_s(0, own.work.bytes) for own in held)
    assert predicted == pytest.approx(sum(distinct.values()), rel=0.01)


def test_nodes_that_do_the_same_agree() -> None:
    [fitted] = fit_operators([sample(1e-6), sample(1e-6), sample(1e-3)])  # one was disturbed
    assert fitted.operator.launch_s == pytest.approx(1e-6)


def test_a_node_that_became_part_of_another_takes_no_time_there() -> None:
    apart = [sample(1e-5, 0, 1e5, "Relu", "Add"), sample(2e-5, 0, 2e5, "Relu", "Add")]
    parts = [sample(0.0, 0, 1e5, "Relu", "Conv"), sample(0.0, 0, 2e5, "Relu", "Conv")]
    [fitted] = fit_operators([*apart, *parts])
    assert fitted.operator.fused == {("Conv",)}
    assert (fitted.samples, fitted.parts) == (2, 2)
    assert fitted.operator.time_s(0, 3e5) == pytest.approx(3e-5)


def test_an_operator_that_is_always_part_of_another_is_free() -> None:
    [fitted] = fit_operators([sample(0.0, 10, 10, "Relu", "Conv")])
    assert fitted.samples == 0
    assert fitted.operator.time_s(1e9, 1e9) == 0.0


def test_views_move_no_bytes() -> None:
    held = [sample(1e-6, 0, 10.0**size, "Reshape") for size in range(3, 8)]
    [fitted] = fit_operators(held)
    assert (fitted.operator.s_per_flop, fitted.operator.s_per_byte) == (0.0, 0.0)


def test_a_pass_takes_time_for_its_bytes_alone() -> None:
    """A step of an update adds its bytes to a pass: what each pass takes would count per step."""
    sizes = [1e5 * 2.0**power for power in range(10)]
    slow = [sample(5e-6 + m / 2e10 + max(m - (4 << 20), 0) / 1e10, 0, m, ONE_PASS) for m in sizes]
    [found] = fit_operators(slow)
    assert (found.operator.launch_s, found.operator.s_per_far_byte) == (0.0, 0.0)
    total_s = sum(found.operator.time_s(0, moved) for moved in sizes)
    assert total_s == pytest.approx(sum(own.time_s for own in slow), rel=1e-3)


def lines_of(*slopes: float) -> MeasuredCurve:
    """Return lines that start at 2 us and turn upwards at 100 kB, 200 kB, ..."""
    found = [(2e-6, slopes[0])]
    for number, slope in enumerate(slopes[1:], 1):
        fixed, before = found[-1]
        found.append((fixed - (slope - before) * 1e5 * number, slope))
    return MeasuredCurve(tuple(found))


@pytest.mark.parametrize("slopes", [[1e-10], [1e-10, 4e-10]])
def test_lines_are_recovered(slopes: Sequence[float]) -> None:
    times = times_of(lines_of(*slopes), SIZES)
    found = fit_curve(SIZES, times)
    assert errors(times_of(found, SIZES), times)[1] < 0.1


def test_a_root_is_recovered() -> None:
    sizes = 2.0 ** np.arange(9, 30)
    curve = MeasuredCurve(((6e-6, 0.0), (1e-5, 3e-12)), 4e-9)
    found = fit_curve(sizes, times_of(curve, sizes))
    assert errors(times_of(found, sizes), times_of(curve, sizes))[1] < 1e-3


def test_a_straight_line_stays_one() -> None:
    found = fit_curve(SIZES, 2e-6 + 1e-10 * SIZES)
    [(fixed, slope)] = found.lines
    assert (fixed, slope, found.s_per_root_byte) == (pytest.approx(2e-6), pytest.approx(1e-10), 0)


def test_errors_leave_out_what_took_no_time() -> None:
    fitted, times = np.array([1.1, 2.0, 5.0]), np.array([1.0, 2.0, 0.0])
    assert errors(fitted, times) == (pytest.approx(0.05), pytest.approx(0.09))
    assert errors(fitted, np.zeros(3)) == (0.0, 0.0)


def test_hints_decide_what_samples_of_one_size_leave_open() -> None:
    """Of 2 KB nothing follows for 1 MB; where samples have that, hints change little."""

    def where(time_s: float, moved: float) -> OpSample:
        return sample(time_s, moved / 13, moved, "Where")

    hints = [where(moved / 1e10, moved) for moved in (1e5, 1e6, 1e7)]
    small = [where(9e-6, 1e3), where(12e-6, 2e3)]
    alone, helped = (fit_operators(small, given)[0].operator for given in ((), hints))
    assert alone.time_s(1e5, 1.3e6) > 2e-3
    assert helped.time_s(1e5, 1.3e6) == pytest.approx(130e-6, rel=0.3)
    known = [where(moved / 3e10, moved) for moved in (1e5, 2e5, 1e6, 2e6)]
    [own] = fit_operators([*known, *(replace(one, count=20) for one in known)], hints)
    assert own.operator.time_s(7e4, 9e5) == pytest.approx(3e-5, rel=0.1)


@pytest.mark.parametrize("long", [0.01, 1.0, 100.0])
def test_a_hint_counts_as_one_sample_however_long_it_takes(long: float) -> None:
    """The sample takes 1, and the hint twice what that says: the root of x^2 + 2x - 4."""
    hint = np.array([[long]]), np.array([2.0 * long])
    [factor] = fit(np.array([[1.0]]), np.array([1.0]), np.array([1]), hint)
    assert factor == pytest.approx(5**0.5 - 1, rel=1e-3)
