"""The verdict on an output, and the inputs that are drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tensoropt.runtime.check.compare import compare
from tensoropt.runtime.check.results import CheckResult, OutputResult
from tensoropt.runtime.cli.report import to_text
from tensoropt.runtime.launch.workers import worker_of
from tensoropt.runtime.layout.mesh_layout import parse_layout
from tensoropt.runtime.plan.plan import Tensor
from tensoropt.runtime.session.inputs import draws, make_inputs
from tensoropt.runtime.support.expected import ExpectedErrorEntry
from tensoropt.runtime.support.job import Job

JOB = Job(())
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("found", "expected", "passed"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0], [1.0, 2.01], False),
        ([1.0, 2000.0], [1.0, 2001.0], True),
        ([5e-5], [0.0], True),
        ([NAN, 1.0], [NAN, 1.0], True),
        ([NAN, 1.0], [1.0, 1.0], False),
        ([1.0], [NAN], False),
        ([INF, -INF], [INF, -INF], True),
        ([INF], [-INF], False),
        ([INF], [1e30], False),
        ([], [], True),
    ],
)
def test_floats(found: list[float], expected: list[float], passed: bool) -> None:
    for dtype in (np.float32, np.float64, ml_dtypes.bfloat16):
        a, b = np.array(found, dtype), np.array(expected, dtype)
        if dtype is ml_dtypes.bfloat16 and 2.01 in expected:
            b = np.array([1.0, 2.5], dtype)
        assert compare("y", a, b, JOB).passed is passed


def test_strings() -> None:
    one, other = np.array(["a", "b"], object), np.array(["a", "é"], object)
    assert compare("y", one, one.copy(), JOB) == OutputResult("y", "string", (2,), passed=True)
    wrong = compare("y", one, other, JOB)
    assert (wrong.passed, wrong.note) == (False, "1 of 2 differ")
    short = compare("y", one, other[:1], JOB)
    assert (short.passed, short.note) == (False, "expected string 1")


def test_drawn_strings_are_letters() -> None:
    tensor = Tensor("x", "string", (4, 50), parse_layout(["R"], [1]))
    first, again = (make_inputs(JOB, [tensor]).array("x") for _ in range(2))
    assert first.dtype == object
    assert first.tolist() == again.tolist()
    assert {*first.reshape(-1)} <= {*"abcdefghijklmnopqrstuvwxyz"}


@pytest.mark.parametrize(
    ("dtype", "passing", "failing"),
    [("float32", 1.0009, 1.01), ("float16", 1.015, 1.04), ("bfloat16", 1.08, 1.2)],
)
def test_tolerances_follow_the_type(dtype: str, passing: float, failing: float) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    one = np.array([1.0], kind)
    assert compare("y", np.array([passing], kind), one, JOB).passed
    assert not compare("y", np.array([failing], kind), one, JOB).passed
    strict = Job((), rtol=0.0, atol=0.0)
    assert not compare("y", np.array([passing], kind), one, strict).passed


def test_products_on_cuda_are_those_of_ten_bits() -> None:
    one, near = np.array([1.0], np.float32), np.array([1.015], np.float32)
    assert compare("y", near, one, Job((), provider="cuda")).passed
    assert not compare("y", near, one, JOB).passed
    assert not compare("y", near * 2, one, Job((), provider="cuda")).passed
    assert not compare("y", near, one.astype(np.float64), Job((), provider="cuda")).passed


FAINT = np.random.default_rng(0).standard_normal(1000).astype(np.float32) * np.float32(1e-14)


@pytest.mark.parametrize(
    ("found", "passed"),
    [(FAINT * np.float32(1.00001), True), (FAINT * 0, False), (FAINT * np.float32(1.1), False)],
)
def test_a_faint_output_is_judged_by_its_own_scale(found: np.ndarray, passed: bool) -> None:
    result = compare("y", found, FAINT, JOB)
    assert (result.passed, result.shows) == (passed, True)


def test_what_lies_around_a_large_mean_is_judged_by_its_spread() -> None:
    around = (100 + np.linspace(-1, 1, 50)).astype(np.float32)
    assert compare("y", around + np.float32(1e-4), around, JOB).passed
    flat = np.full(50, 100, np.float32)
    assert not compare("y", flat, around, JOB).passed
    result = compare("y", around, flat, JOB)
    assert (result.passed, result.shows, result.note) == (False, False, "is constant")


@pytest.mark.parametrize(
    ("expected", "why"),
    [
        ([3.0, 3.0], "is constant: shows nothing"),
        ([1e6, 1e6 + 1], "is lost in rounding: shows nothing"),
        ([0.0], "is zero: shows nothing"),
        ([NAN, NAN], "is NaN or infinite throughout: shows nothing"),
        ([], "is empty: shows nothing"),
    ],
)
def test_an_output_that_shows_nothing(expected: list[float], why: str) -> None:
    array = np.array(expected, np.float32)
    result = compare("y", array, array, JOB)
    assert (result.passed, result.shows, result.note) == (True, False, why)


def test_whole_numbers_that_show_nothing() -> None:
    assert not compare("y", np.array([2, 2]), np.array([2, 2]), JOB).shows
    assert compare("y", np.array([0]), np.array([0]), JOB).shows
    assert compare("y", np.array([1, 0]), np.array([1, 0]), JOB).shows


def test_an_output_that_is_nothing_but_rounding_shows_nothing() -> None:
    """Of a sum that is 0 but for rounding: another run on one device is as far off."""
    first, second, found = np.random.default_rng(1).standard_normal((3, 100)).astype("f4") * 1e-8
    result = compare("y", found, first, JOB, again=lambda: second)
    assert (result.passed, result.shows) == (True, False)
    assert not compare("y", found, first, JOB, again=lambda: first + np.float32(1e-15)).passed
    assert not compare("y", found, first, JOB).passed


STEP = 8.0 / 255


@pytest.mark.parametrize(
    ("found", "expected", "job", "passed"),
    [
        ([1 + 3 * STEP, 8.0], [1.0, 8.0], JOB, True),
        ([1 + 5 * STEP, 8.0], [1.0, 8.0], JOB, False),
        ([1 + 3 * STEP, 8.0], [1.0, 8.0], Job((), atol=1e-4), False),
        ([NAN, 8.0], [1.0, 8.0], JOB, False),
    ],
)
def test_a_quantised_model_may_round_to_the_next_step(
    found: list[float], expected: list[float], job: Job, passed: bool
) -> None:
    a, b = np.array(found, np.float32), np.array(expected, np.float32)
    result = compare("y", a, b, job, True)
    assert result.passed is passed
    assert result.note == "within 4 steps of 8 bits" or not passed
    assert not compare("y", a, b, job).passed


@pytest.mark.parametrize(("dtype", "off", "passed"), [("uint8", 4, True), ("uint8", 5, False),
                                                      ("int64", 1, False)])  # fmt: skip
def test_integers_of_a_quantised_model(dtype: str, off: int, passed: bool) -> None:
    array = np.array([3, 200 // 2], dtype)
    assert compare("y", array + np.array(off, dtype), array, JOB, True).passed is passed


def test_what_is_reported() -> None:
    result = compare("y", np.array([1.0, 2.5, NAN]), np.array([1.0, 2.0, 3.0]), JOB)
    assert (result.absolute, result.relative) == (0.5, 0.25)
    assert result.note == "1 NaN or infinite on one side"


def test_a_large_output_is_compared_to_its_end() -> None:
    expected = np.zeros((3 << 20) + 5, np.float32)
    found = expected.copy()
    found[-1] = 1.0
    result = compare("y", found, expected, JOB)
    assert (result.passed, result.absolute) == (False, 1.0)


def test_integers_are_exact() -> None:
    large = np.array([10**6, 3])
    assert compare("y", large, large, JOB).passed
    result = compare("y", large + np.array([1, 0]), large, JOB)
    assert (result.passed, result.absolute, result.note) == (False, 1.0, "1 of 2 differ")
    bools = np.array([True, False])
    assert compare("y", bools, bools, JOB).passed
    assert not compare("y", bools, ~bools, JOB).passed


def test_shape_and_type_must_agree() -> None:
    result = compare("y", np.zeros((2, 3)), np.zeros((3, 2)), JOB)
    assert (result.passed, result.note) == (False, "expected float64 3x2")
    assert not compare("y", np.zeros(2, np.float32), np.zeros(2), JOB).passed


def drawn(dtype: str, **options) -> np.ndarray:
    tensor = Tensor("x", dtype, (1000,), parse_layout(["R"], [1]))
    return make_inputs(Job((), **options), [tensor]).array("x")


def test_drawn_inputs() -> None:
    floats = drawn("float32")
    assert (floats.dtype, abs(floats.mean()) < 0.2, 0.8 < floats.std() < 1.2) == (
        np.float32,
        True,
        True,
    )
    assert drawn("bfloat16").dtype == ml_dtypes.bfloat16
    assert drawn("float64").dtype == np.float64
    assert set(drawn("bool").tolist()) == {True, False}
    integers = drawn("int64")
    assert (integers.min(), integers.max(), integers.dtype) == (0, 15, np.int64)
    assert set(drawn("uint8", int_range=(2, 4)).tolist()) == {2, 3}
    uniform = drawn("float32", draw="uniform")
    assert (uniform.min() >= 0, uniform.max() <= 1, uniform.std() > 0.2) == (True,) * 3
    assert 9 < drawn("float64", draw="large").std() < 11
    assert 0.009 < drawn("float16", draw="small").std() < 0.011


def test_other_ways_to_draw() -> None:
    layout = parse_layout(["R"], [1])
    floats, whole = Tensor("x", "float32", (9,), layout), Tensor("i", "int64", (9,), layout)
    ways = [(i.job.draw, i.job.int_range) for i in draws(make_inputs(JOB, [floats, whole]))]
    assert [draw for draw, _ in ways[:4]] == ["normal", "uniform", "small", "large"]
    assert [span for _, span in ways[3:]] == [(0, 16), (0, 2), (0, 1)]
    asked = Job((), int_range=(0, 9))
    assert len(list(draws(make_inputs(asked, [whole])))) == 1


def test_results_survive_their_file(tmp_path) -> None:
    worker = worker_of("run")
    output = OutputResult("y", "float32", (2, 3), 0.5, 0.25, False, "note")
    results = [CheckResult("p", 2, (1, 2), (output,), (0.1,), (0.2,), None, False)]
    assert worker.from_values(json.loads(json.dumps(worker.to_values(results)))) == results
    job = Job(("a", "b"), model="m", dims={"batch": 2}, int_range=(1, 3))
    job.write(tmp_path / "j.json")
    values = json.loads((tmp_path / "j.json").read_text())
    assert values.pop("kind") == "run"
    assert worker.job_from(values) == job


@pytest.mark.parametrize(
    ("time", "memory", "ends"),
    [
        ({"mean": 0.062, "p90": 0.1, "samples": 9}, None, ["2.000 ms ±6%", "2 KiB ±?"]),
        ({"mean": None, "p90": None, "samples": 3}, None, ["2.000 ms ±?", "2 KiB ±?"]),
    ],
)
def test_a_prediction_says_how_far_off_it_may_be(time, memory, ends: Sequence[str]) -> None:
    error = ExpectedErrorEntry(time=time, memory=memory, model_measured=True)
    timed = CheckResult("p", 2, (2,), step_times_s=(1e-3,), predicted_time_s=2e-3)
    sized = replace(timed, predicted_bytes=2048, peak_bytes=1024)
    found = to_text([replace(sized, expected_error=error)]).splitlines()[1:]
    assert [line.partition("predicted ")[2] for line in found] == ends
    unknown = to_text([sized]).splitlines()[1:]
    assert all(line.endswith(" ±?") for line in unknown)


def test_the_line_of_a_stream() -> None:
    timed = CheckResult("p", 2, (2,), step_times_s=(4e-3,), interval_s=2e-3)
    lines = to_text([timed]).splitlines()
    assert lines[-1] == "stream: a result every 2.000 ms, 500 runs/s"
    lines = to_text([replace(timed, predicted_interval_s=1e-3)]).splitlines()
    assert lines[-1] == "stream: a result every 2.000 ms, predicted 1.000 ms ±?, 500 runs/s"


def test_a_name_cannot_break_the_table() -> None:
    output = OutputResult("a\nb\x1b[2J", "float32", (2,), 0.0, 0.0, passed=True)
    result = CheckResult("p", 2, (2,), (output,), passed=True)
    lines = to_text([result]).splitlines()
    assert lines[1].startswith("a\\nb\\x1b[2J  float32")
    assert lines[2:] == ["PASSED"]
    assert "in 'a\\nb\\x1b[2J'" in to_text([result, result])
