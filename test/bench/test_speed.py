"""Ways that take turns, comparisons of speed at tiny sizes, and the table of memory."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path

import pytest
from graphs.llama import Llama
from graphs.trained import TRAINED
from memory.training import measure
from sleepers import fail, sleep
from speed import experts, inference, training
from speed.plans import Sizes
from sweep_train import Case, memory_error
from turns import Turn, busy_note, mean_ratio, ratio_of, take_turns


def test_ways_take_turns() -> None:
    ways = {"short": (partial(sleep, seconds=0.01), 2), "long": (partial(sleep, seconds=0.1), 1)}
    turns, teams = take_turns(ways, rounds=2, steps=2, warm_up=1)
    assert teams["short"].results == [(0, 5), (1, 5)]
    assert teams["long"].results == [(0, 5)]
    assert teams["long"].peak_bytes > 1 << 20
    assert ratio_of(turns["long"], turns["short"]) > 2
    assert all(turn.cores_s < 0.1 for held in turns.values() for turn in held)


def test_a_rank_that_fails_ends_all() -> None:
    ways = {"good": (partial(sleep, seconds=0.0), 1), "bad": (fail, 2)}
    with pytest.raises(RuntimeError, match="a rank has ended"):
        take_turns(ways, rounds=1, steps=1, warm_up=1)


def test_ratios_are_of_neighbours() -> None:
    def turns(*seconds: float) -> list[Turn]:
        return [Turn(step_s, 0.0) for step_s in seconds]

    assert ratio_of(turns(2.0, 20.0, 9.0), turns(1.0, 10.0, 1.0)) == 2.0
    assert mean_ratio([4.0, 1.0]) == pytest.approx(2.0)
    assert "quiet" in busy_note(0.5) and "quiet" not in busy_note(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "cnn"])
def test_training_beside_pytorch(name: str, tmp_path: Path) -> None:
    sizes = Sizes(rounds=1, steps=1)
    row = training.measure(name, TRAINED[name], sizes, tmp_path)
    assert set(row.turns) >= {"ours", "DDP", "FSDP2"}
    assert "| DDP | FSDP2 |" in training.table([row])
    assert row.peaks["DDP"] > row.peaks["ours"] > 0


@pytest.mark.slow
def test_runs_beside_onnx_runtime(tmp_path: Path) -> None:
    sizes = Sizes(rounds=1, steps=1)
    row = inference.measure("vit", TRAINED["vit"], sizes, tmp_path)
    assert "geometric mean | 8" in inference.table([row])


@pytest.mark.slow
@pytest.mark.parametrize("train", [False, True])
def test_mixtures_by_form(tmp_path: Path, train: bool) -> None:
    small = {"layers": 1, "width": 32, "heads": 4, "groups": 2, "inner": 48, "vocabulary": 64}
    model = Llama(**small, experts=4, choices=2, sequence=8, batch=4, dtype="float32")
    cases = [experts.Case("small", 2, 1e8, trains=train)]
    given = Namespace(rounds=1, steps=1, train=train)
    rows = experts.measure(model, cases, given, tmp_path)
    assert list(rows[0].turns) == list(experts.FORMS)
    points = rows[0].points
    assert [experts.form_of(points[form]) for form in experts.FORMS] == list(experts.FORMS)
    assert points["sent"].communication_s > 0
    assert train or points["whole"].communication_s == 0
    assert "| small | 2 | 100 MB/s | features" in experts.table(rows)


def test_ranks_hold_what_was_predicted(tmp_path: Path) -> None:
    found = measure(Case("gpt2", tmp_path, steps=2), 2, ["zero 1"])
    assert memory_error(found["zero 1"]) < 0.02
