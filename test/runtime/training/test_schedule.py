"""Numbers that change from step to step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.runtime.training.schedule import LossScale, learning_rate, seed_of


def rates(schedule: str, warmup: int, total: int) -> list[float]:
    return [learning_rate(step, 1.0, warmup, schedule, total) for step in range(1, total + 2)]


def test_rates() -> None:
    assert rates("constant", 0, 3) == [1, 1, 1, 1]
    assert rates("constant", 2, 3) == [0.5, 1, 1, 1]
    assert rates("linear", 1, 5) == [1, 1, 0.75, 0.5, 0.25, 0]
    assert rates("cosine", 0, 4) == pytest.approx([1, 0.853553, 0.5, 0.146447, 0], abs=1e-6)


@given(st.sampled_from(["cosine", "linear"]), st.integers(0, 9), st.integers(1, 50))
def test_a_rate_rises_to_its_peak_and_falls_to_zero(schedule, warmup, total) -> None:
    found = rates(schedule, warmup, warmup + total)
    assert found[:warmup] == sorted(found[:warmup])
    assert found[warmup] == 1
    assert found[warmup:] == sorted(found[warmup:], reverse=True)
    assert found[-1] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_a_rate_falls_to_its_floor_and_not_below(schedule: str) -> None:
    found = [learning_rate(step, 1.0, 2, schedule, 10, 0.1) for step in range(1, 14)]
    assert found[:3] == [0.5, 1, 1]
    assert found[2:11] == sorted(found[2:11], reverse=True)
    assert found[10:] == pytest.approx([0.1] * 3)
    expected = 0.55 if schedule == "linear" else 0.1 + 0.9 * 0.5
    assert found[6] == pytest.approx(expected)


def test_a_loss_scale_grows_after_many_good_steps() -> None:
    scale = LossScale()
    assert scale.overflowed()
    assert scale.value == 32768
    for _ in range(1999):
        scale.count_good_step()
    assert scale.value == 32768
    scale.count_good_step()
    assert (scale.value, scale.good) == (65536, 0)


def test_a_loss_scale_cannot_fall_for_ever() -> None:
    scale = LossScale()
    assert sum(scale.overflowed() for _ in range(100)) == 30  # from 2^16 to 2^-14
    fixed = LossScale(8.0)
    assert not fixed.overflowed()
    assert fixed.value == 8


def test_seeds_differ_and_repeat() -> None:
    found = [seed_of(k, step, micro) for k in (0, 1) for step in (1, 2) for micro in (0, 1)]
    assert len(set(found)) == 8
    assert all(0 <= seed < 1 << 31 for seed in found)
    assert found[0] == seed_of(0, 1, 0)
