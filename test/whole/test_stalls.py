"""Ranks of stages that stop to make progress."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from test_clipping import SAMPLES, model

import tensoropt as to

STUCK = """
import time
import numpy as np
class Samples:
    def __len__(self):
        return 64
    def __getitem__(self, index):
        if index >= 16:
            time.sleep(600)
        return {"x": np.ones(4, np.float32)}
"""


def test_a_step_in_stages_that_stalls_is_ended(tmp_path: Path) -> None:
    """The data of the third step never come, so that the second stage waits for the first."""
    (tmp_path / "stuck.py").write_text(STUCK)
    train = to.Training("output:l", "sgd", micro_batches=2, recompute="none")
    loaded = to.load(model(tmp_path / "model.onnx", SAMPLES // 2))
    plan = loaded.frontier(2, train=train, stages=2, epsilon=1.0).fastest.compile(tmp_path / "plan")
    start = time.monotonic()
    with pytest.raises(to.RankFailedError, match=r"no rank has made progress .*waiting for other"):
        to.train(plan, f"{tmp_path / 'stuck.py'}:Samples", 5, stall_s=3.0)
    assert time.monotonic() - start < 120
