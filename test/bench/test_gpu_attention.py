"""Attention in training on GPUs: rows left out, and the included descriptions."""

from __future__ import annotations

import numpy as np
import pytest
from accuracy.gpu_attention import FAMILIES, MEASURED, described, misses, read_rows

from tensoropt.compiler.cost.device import description_text, load_device

ROWS = read_rows()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", MEASURED)
def test_rows_left_out_are_within_a_tenth(name: str, family: str) -> None:
    errors = misses(ROWS[MEASURED[name], family], load_device(name))
    assert len(errors) >= 15
    assert np.median(errors) < 0.1


@pytest.mark.parametrize("name", ["a100", "h100", "h200", "l40s", "b200", "b300", "gb200"])
def test_descriptions_have_the_fit(name: str) -> None:
    assert described(name, ROWS) == description_text(name)
