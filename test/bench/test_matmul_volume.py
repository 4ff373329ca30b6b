"""Words sent by plans of one matrix product, and their lower bound."""

from __future__ import annotations

import pytest
from search.matmul_volume import lower_bound, measure


def test_bound_of_each_case() -> None:
    # One: gather the small matrix. Two: a grid of two dimensions. Three: one of three.
    assert lower_bound((1024, 16, 16), 4) == (1, pytest.approx(16 * 16 * 3 / 4))
    assert lower_bound((64, 8, 64), 4) == (2, pytest.approx(2 * 64 * 8 / 4))
    assert lower_bound((64, 64, 64), 8) == (3, pytest.approx(3 * 64 * 64 / 8))


@pytest.mark.parametrize(("shape", "ranks"), [((4096, 256, 64), 16), ((512, 64, 256), 32)])
def test_cases_meet(shape: tuple[int, int, int], ranks: int) -> None:
    (_, below), (_, above) = lower_bound(shape, ranks), lower_bound(shape, ranks + 1)
    assert above == pytest.approx(below, rel=0.1)


@pytest.mark.parametrize(
    ("shape", "ranks", "mesh", "ratio"),
    [
        ((1024, 16, 16), 4, "4", 1.0),
        ((16, 1024, 16), 4, "4", 1.0),
        ((64, 8, 64), 4, "2x2", 1.0),
        ((64, 64, 64), 4, "2x2", 1.135),
        ((64, 64, 64), 8, "2x2x2", 1.0),
    ],
)
def test_words_of_plans(shape: tuple[int, int, int], ranks: int, mesh: str, ratio: float) -> None:
    found, words = measure(shape, ranks)
    assert str(found) == mesh
    assert words / lower_bound(shape, ranks)[1] == pytest.approx(ratio, rel=1e-3)
