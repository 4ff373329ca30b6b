"""A job that changes its plan while it runs loses nothing: losses and samples stay as they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from elasticity.curves import reads_differ, run_curve
from elasticity.source import Read
from elasticity.subjects import CURVES, prepare

from tensoropt.elastic.control import StepRow

_SWITCHES = {3: "2", 9: "4", 15: "2", 21: "1"}


@pytest.mark.slow
def test_switches_leave_the_curve_and_the_samples_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path / "jobs"))
    recipe = replace(CURVES["gpt2"], model=replace(CURVES["gpt2"].model, layers=1))
    subject = prepare("gpt2", recipe, tmp_path / "model", devices=4)
    curve = run_curve(subject, 32, _SWITCHES, tmp_path)
    assert [switch.to_devices for switch in curve.switches] == [2, 4, 2, 1]
    assert curve.wrong is None
    assert curve.difference < 1e-4


def _rows(*generations: int) -> list[StepRow]:
    return [StepRow(at + 1, 1.0, 0.1, 1, number) for at, number in enumerate(generations)]


def test_samples_that_are_read_in_vain_do_no_harm() -> None:
    read = {1: [[Read(0, [5, 6]), Read(0, [7, 8])]], 2: [[Read(0, [7])], [Read(0, [8])]]}
    assert reads_differ([[5, 6], [7, 8]], _rows(1, 2), read) is None


@pytest.mark.parametrize(
    ("ranks", "error"),
    [
        ([[8], [7]], None),
        ([[7], [7]], "step 2: ranks read [[7], [7]], expected all of [7, 8]"),
        ([[7], [9]], "step 2: rank 1 read [9], expected a run of [7, 8]"),
        ([[8, 7]], "step 2: rank 0 read [8, 7], expected a run of [7, 8]"),
    ],
)
def test_samples_left_out_or_out_of_order_are_seen(
    ranks: list[list[int]], error: str | None
) -> None:
    read = {1: [[Read(0, [5, 6])]], 2: [[Read(0, ids)] for ids in ranks]}
    assert reads_differ([[5, 6], [7, 8]], _rows(1, 2), read) == error
