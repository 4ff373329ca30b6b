"""Table of the search compared with NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest
from search.engine import INSTANCES, measure, numpy_min_time

from tensoropt.compiler.cli.instance import load_instance


@pytest.mark.parametrize(
    ("stem", "least"), [("rnnlm_p8", 4024963186688.0), ("inception3_p8", 782140602432.0)]
)
def test_the_yardstick_finds_the_optimum(stem: str, least: float) -> None:
    assert numpy_min_time(load_instance(INSTANCES / f"{stem}.npz")) == pytest.approx(least)


def test_a_row() -> None:
    path = Path(INSTANCES / "rnnlm_p8.npz")
    name, *cells = measure(load_instance(path), path.stem, 10.0)
    assert name == "rnnlm_p8"
    assert len(cells) == 8
    assert cells[-1].endswith("14 points")
