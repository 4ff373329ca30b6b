"""Normalisations: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from typing import Any

import pytest
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]
IMAGE = normal(2, 4, 6, 8)


def channels(count: int, size: int = 4) -> list[Any]:
    return [normal(size, seed=seed) ** 2 for seed in range(count)]


@pytest.mark.parametrize("version", [7, 9, 14, 15, 20])
def test_batch_normalization_splits_every_dimension(version: int) -> None:
    case = Case("BatchNormalization", [IMAGE, *channels(4)], {"epsilon": 1e-3}, version=version)
    assert offered(case) == {
        "R R R R R -> R",
        "S(0) R R R R -> S(0)",
        "S(1) S(0) S(0) S(0) S(0) -> S(1)",
        "S(2) R R R R -> S(2)",
        "S(3) R R R R -> S(3)",
    }


@pytest.mark.parametrize(("version", "results"), [(9, 5), (15, 3)])
def test_batch_normalization_in_training_splits_channels_only(version: int, results: int) -> None:
    attributes = {"training_mode": 1} if version > 9 else {}
    case = Case(
        "BatchNormalization",
        [IMAGE, *channels(4)],
        attributes,
        version=version,
        results=(True,) * results,
    )
    whole = "R R R R R -> " + " ".join(["R"] * results)
    split = "S(1) S(0) S(0) S(0) S(0) -> S(1) " + " ".join(["S(0)"] * (results - 1))
    assert offered(case) == {whole, split}


@pytest.mark.parametrize("mesh", MESHES)
def test_instance_normalization_splits_every_dimension(mesh: tuple[int, ...]) -> None:
    case = Case("InstanceNormalization", [IMAGE, *channels(2)], {"epsilon": 1e-2})
    check(case, mesh)
    assert offered(case) == {
        "R R R -> R",
        "S(0) R R -> S(0)",
        "S(1) S(0) S(0) -> S(1)",
        "S(2) R R -> S(2)",
        "S(3) R R -> S(3)",
    }


@pytest.mark.parametrize("version", [18, 21])
def test_group_normalization_splits_whole_groups(version: int) -> None:
    image = normal(2, 12, 4)
    parameters = channels(2, 4 if version < 21 else 12)
    case = Case("GroupNormalization", [image, *parameters], {"num_groups": 4}, version=version)
    assert offered(case, (4,)) == {"R R R -> R", "S(1) S(0) S(0) -> S(1)"}
    odd = channels(2, 3 if version < 21 else 12)
    case = Case("GroupNormalization", [image, *odd], {"num_groups": 3}, version=version)
    assert offered(case) == {"R R R -> R", "S(0) R R -> S(0)"}


def test_neighbouring_channels_stay_together() -> None:
    case = Case("LRN", [IMAGE], {"size": 3})
    assert offered(case) == {"R -> R", "S(0) -> S(0)", "S(2) -> S(2)", "S(3) -> S(3)"}


@pytest.mark.parametrize("p", [1, 2])
def test_a_norm_keeps_its_dimension_whole(p: int) -> None:
    case = Case("LpNormalization", [normal(2, 4, 6)], {"axis": 1, "p": p})
    assert offered(case) == {"R -> R", "S(0) -> S(0)", "S(2) -> S(2)"}
    last = Case("LpNormalization", [normal(2, 4, 6)])
    assert offered(last) == {"R -> R", "S(0) -> S(0)", "S(1) -> S(1)"}


def test_mean_variance_normalization_splits_what_it_does_not_normalise() -> None:
    assert offered(Case("MeanVarianceNormalization", [IMAGE])) == {"R -> R", "S(1) -> S(1)"}
    spatial = Case("MeanVarianceNormalization", [IMAGE], {"axes": [2, 3]})
    assert offered(spatial) == {"R -> R", "S(0) -> S(0)", "S(1) -> S(1)"}


def test_work() -> None:
    inference = check(Case("BatchNormalization", [IMAGE, *channels(4)]), (2,))
    assert inference.flops == 2 * IMAGE.size
    grouped = Case("GroupNormalization", [IMAGE, *channels(2)], {"num_groups": 2}, version=21)
    assert check(grouped, (2,)).flops == 8 * IMAGE.size
