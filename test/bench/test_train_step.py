"""The comparison with PyTorch's DistributedDataParallel, and the table of memory, at tiny sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from graphs.trained import TRAINED
from sweep_train import Case, memory_error
from torch_models.parallel import time_steps
from train_memory import measure
from train_step import ratios, time_model
from training_data import batch_size, draw


def test_pytorch_trains_on_two_processes(tmp_path: Path) -> None:
    path = TRAINED["cnn"].build("cnn").save(tmp_path, seed=0)
    np.savez(tmp_path / "cnn.npz", **draw(path, batch_size(path)))
    seconds = time_steps(TRAINED["cnn"], path, tmp_path / "cnn.npz", 2, 3, "adamw")
    assert len(seconds) == 3
    assert min(seconds) > 0


def test_all_ways_take_turns(tmp_path: Path) -> None:
    medians = time_model("cnn", TRAINED["cnn"], 2, steps=5, rounds=1, folder=tmp_path)
    assert list(medians) == ["fastest", "batch", "DDP"]
    assert all(len(turns) == 1 for turns in medians.values())
    assert ratios(medians)["DDP"] == 1


def test_ratios_are_of_medians() -> None:
    medians = {"fastest": [1.0, 9.0, 2.0], "DDP": [4.0, 4.0, 1.0]}
    assert ratios(medians) == {"fastest": 2.0, "DDP": 1.0}


def test_ranks_hold_what_was_predicted(tmp_path: Path) -> None:
    found = measure(Case("cnn", tmp_path, steps=2), 2)
    assert found.keys() == {"fastest", "leanest", "zero 1", "zero 3"}
    for held in found.values():
        assert memory_error(held) < 0.02
