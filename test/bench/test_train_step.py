"""The comparison with PyTorch's DistributedDataParallel, and the table of memory, at tiny sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs.trained import TRAINED
from sweep_train import Case, memory_error
from train_memory import measure
from train_step import ratios, time_model


@pytest.mark.slow
def test_all_ways_take_turns(tmp_path: Path) -> None:
    medians = time_model("gpt2", TRAINED["gpt2"], 2, steps=5, rounds=1, folder=tmp_path)
    assert list(medians) == ["fastest", "batch", "DDP"]
    assert all(len(turns) == 1 and turns[0] > 0 for turns in medians.values())
    assert ratios(medians)["DDP"] == 1


def test_ratios_are_of_medians() -> None:
    medians = {"fastest": [1.0, 9.0, 2.0], "DDP": [4.0, 4.0, 1.0]}
    assert ratios(medians) == {"fastest": 2.0, "DDP": 1.0}


def test_ranks_hold_what_was_predicted(tmp_path: Path) -> None:
    found = measure(Case("gpt2", tmp_path, steps=2), 2, ["zero 1"])
    assert memory_error(found["zero 1"]) < 0.02
