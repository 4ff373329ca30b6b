"""Training plans: state that manual ZeRO plans store per device; samples and loss curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compilation.train_frontiers import state_cuts
from graphs.trained import TRAINED
from train_plans import RECIPES, trained, zero_point
from train_runs import difference
from training_data import draw

from tensoropt.compiler.cost.device import load_device

DEVICES = 2


@pytest.mark.parametrize(("stage", "parameters"), [(1, 1.0), (3, 2.0)])
def test_zero_splits_moments_and_then_parameters(
    stage: int, parameters: float, tmp_path: Path
) -> None:
    path = TRAINED["gpt2"].build("gpt2").save(tmp_path, seed=0)
    step = trained(path, RECIPES["gpt2"], "none")
    point = zero_point(step, DEVICES, stage, load_device("cpu"))
    cuts = state_cuts(point)
    assert cuts["parameters"] == pytest.approx(parameters, rel=0.01)
    assert cuts["moments"] == pytest.approx(DEVICES, rel=0.01)


def test_samples_are_the_same_and_labels_follow_tokens(tmp_path: Path) -> None:
    path = TRAINED["gpt2"].build("gpt2").save(tmp_path, seed=0)
    first, again = draw(path, 6), draw(path, 6)
    assert all((first[name] == again[name]).all() for name in first)
    assert (first["labels"][:, :-1] == first["ids"][:, 1:]).all()
    assert len(first["labels"]) == 6
    assert first["labels"].min() >= 0
    assert first["labels"].max() < 64


def test_the_largest_difference_is_relative() -> None:
    assert difference([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)
    assert np.isnan(difference([1.0, float("nan")], [1.0, 1.0]))
