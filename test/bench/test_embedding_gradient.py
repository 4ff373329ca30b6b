"""Benchmark of an embedding's gradient: sums are right on several threads."""

from __future__ import annotations

import numpy as np
from kernels.embedding_gradient import graph, measure, session_of


def test_elements_are_all_added_on_several_threads() -> None:
    rng = np.random.default_rng(0)
    feeds = {"ids": rng.integers(0, 3, (512, 1)), "updates": rng.random((512, 32), np.float32)}
    model = graph("ScatterElements", 100, 512, 32)
    _, error = measure(session_of(model, 4), feeds)
    assert error < 1e-3
