"""How far predictions are off on plans that were left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from measured_plans import measured, plan

from tensoropt.compiler.calibrate.cross_validation import (
    expected_error,
    held_out_errors,
    other_model_errors,
)
from tensoropt.compiler.calibrate.description_fit import Identity, describe
from tensoropt.compiler.calibrate.samples import PlanSample
from tensoropt.compiler.cost.device import Device, device_of, load_device
from tensoropt.compiler.cost.expected_error import FigureError, MeasuredModel, PlanError
from tensoropt.compiler.cost.measurements import Operator

IDENTITY = Identity("here", load_device("cpu"), "Measured in a test.")


def device(plans: Sequence[PlanSample]) -> Device:
    return describe(IDENTITY, measured(plans), checked=False).device


def test_plans_that_follow_a_line_are_predicted_from_the_others() -> None:
    plans = [plan("a", [1e5, 3e6]), plan("a", [2e5]), plan("a", [7e6, 1e6])]
    assert held_out_errors(plans, device) == pytest.approx([0.0] * 3, abs=1e-2)


def test_a_plan_does_not_predict_itself() -> None:
    """All else takes half the time, which no fit to it would say."""
    slow = plan("a", [5e6], off=2.0)
    errors = held_out_errors([plan("a", [1e5, 3e6]), plan("a", [2e5, 6e6]), slow], device)
    assert errors[2] == pytest.approx(0.5, abs=1e-2)
    whole = device([plan("a", [1e5, 3e6]), plan("a", [2e5, 6e6]), slow])
    assert abs(slow.step.time_s(whole) / slow.measured_s - 1) < 0.4  # what a residual would claim


def test_a_model_is_predicted_from_the_others() -> None:
    slow = [plan("b", [1e6], off=2.0), plan("b", [3e6], off=2.0)]
    plans = [plan("a", [1e5, 3e6]), plan("a", [2e5, 6e6]), *slow]
    errors = other_model_errors(plans, device)
    assert errors == pytest.approx([1.0, 1.0, 0.5, 0.5], abs=1e-2)


def test_few_plans_state_nothing() -> None:
    few = expected_error([plan("a", [1e6 * n]) for n in range(1, 5)], device)
    assert few.time is not None
    assert (few.time.mean, few.time.p90, few.time.samples) == (None, None, 4)
    assert few.other_models is None  # nothing to predict the only model from
    assert few.memory is None  # nobody measured it
    enough = expected_error([plan("a", [1e6 * n]) for n in range(1, 6)], device)
    assert enough.time is not None
    assert enough.time.mean == pytest.approx(0.0, abs=1e-2)


def test_one_plan_of_a_model_has_nothing_to_be_predicted_from() -> None:
    assert expected_error([plan("a", [1e6])], device).time is None


def test_memory_is_held_against_what_was_measured() -> None:
    sizes = [(90, 100), (110, 100), (100, 100), (100, 100), (200, 100)]
    plans = [
        replace(plan("a", [1e6]), predicted_bytes=own, measured_bytes=measured)
        for own, measured in sizes
    ]
    found = expected_error(plans, device).memory
    assert found is not None
    assert (found.mean, found.samples) == (pytest.approx(0.24), 5)
    assert found.p90 == pytest.approx(float(np.percentile([0.1, 0.1, 0.0, 0.0, 1.0], 90)))


def test_the_error_of_memory_is_that_of_measured_processes() -> None:
    """A description that predicts processes states no error of tensors."""
    both = replace(plan("a", [1e6]), predicted_bytes=200, measured_bytes=100)
    known = replace(both, predicted_process_bytes=110, process_bytes=100)
    found = expected_error([known] * 5 + [both], device, processes=True).memory
    assert found == FigureError(pytest.approx(0.1), pytest.approx(0.1), 5)
    assert expected_error([both] * 5, device, processes=True).memory is None
    assert expected_error([both] * 5, device).memory == FigureError(1.0, 1.0, 5)


def test_a_description_has_the_process_error_of_its_own_plans() -> None:
    """The error of the base, of 110 plans, is not quoted."""
    base = load_device("cpu").process
    assert base is not None
    one = replace(plan("a", [1e6]), predicted_process_bytes=90, process_bytes=100)
    for plans, samples in (([one] * 5, 5), ([plan("a", [1e6])] * 5, None)):
        whole = measured(plans)
        own = replace(whole, basics=replace(whole.basics, process=replace(base, error=None)))
        made = device_of(describe(IDENTITY, own, checked=True).toml(), "here")
        assert made.process is not None
        error = made.process.error
        assert (error and error.samples) == samples
        assert (made.process.gaps, made.process.margin) == (base.gaps, base.margin)
        assert made.process.training_bytes == base.training_bytes
        assert made.process.exchange_bytes == base.exchange_bytes


def test_the_description_says_so(tmp_path: Path) -> None:
    plans = [plan("a", [1e6 * n]) for n in range(1, 6)]
    made = describe(IDENTITY, measured(plans), checked=True)
    path = tmp_path / "here.toml"
    path.write_text(made.toml(), encoding="utf-8")
    loaded = load_device(str(path))
    assert loaded.expected_error is not None
    assert loaded.expected_error.time is not None
    assert loaded.expected_error.time.samples == 5
    assert loaded.measured_models == (MeasuredModel("a", "a" * 8),)
    assert loaded.operators["MatMul", "float32"] == Operator(
        pytest.approx(1e-6, rel=1e-2), pytest.approx(1e-10, rel=1e-2)
    )


def test_a_model_is_known_by_its_contents(tmp_path: Path) -> None:
    model, other = tmp_path / "model.onnx", tmp_path / "other" / "model.onnx"
    other.parent.mkdir()
    model.write_text("one")
    other.write_text("another")
    sha = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    text = describe(
        IDENTITY,
        measured([plan("a", [1e6 * n]) for n in range(1, 6)]),
        checked=True,
    )
    device = replace(text.device, measured_models=(MeasuredModel("model.onnx", sha),))
    for path, training, known in (
        (model, False, True),
        (model, True, False),
        (other, False, False),
    ):
        error = device.plan_error(path, training=training)
        assert error is not None
        assert error.model_measured == known
        assert (error.time is None) is not known  # one model says nothing of others
    assert load_device("cpu").plan_error(model, training=False) is None
    without_plans = describe(IDENTITY, measured([]), checked=True).device
    assert without_plans.plan_error(model, training=False) == PlanError(None, None, False)
