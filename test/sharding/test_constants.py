"""Operators that make tensors, and those that only look at shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize("literals", [frozenset({0}), frozenset()])
@pytest.mark.parametrize("mesh", MESHES)
def test_a_filled_tensor_splits_every_dimension(
    literals: frozenset[int], mesh: tuple[int, ...]
) -> None:
    value = {"value": np.array([3], np.int32)}
    report = check(Case("ConstantOfShape", [ints(4, 3, 8)], value, literals=literals), mesh)
    assert report.flops == 0
    if mesh == (2,):
        assert report.offered == {"R -> R", "R -> S(0)", "R -> S(2)"}


def test_a_filled_tensor_with_a_symbolic_dimension() -> None:
    case = Case("ConstantOfShape", [ints(5, 4)], symbolic_results=frozenset({(0, 0)}))
    assert offered(case) == {"R -> R", "R -> S(1)"}


def test_a_filled_scalar() -> None:
    assert offered(Case("ConstantOfShape", [np.zeros(0, np.int64)])) == {"R -> R"}


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(
    "attributes", [{}, {"start": 1}, {"start": -2}, {"end": 1}, {"start": 1, "end": -1}]
)
def test_the_shape_of_a_split_tensor_is_the_whole_one(
    attributes: dict[str, int], mesh: tuple[int, ...]
) -> None:
    report = check(Case("Shape", [normal(4, 8, 4)], attributes), mesh)
    assert len(report.tried) >= 3


def test_shapes_with_symbolic_dimensions() -> None:
    case = Case("Shape", [normal(5, 4)], symbolic=frozenset({(0, 0)}))
    assert offered(case) == {"R -> R", "S(1) -> R"}


@pytest.mark.parametrize("mesh", MESHES)
def test_the_size_of_a_split_tensor_is_the_whole_one(mesh: tuple[int, ...]) -> None:
    assert len(check(Case("Size", [normal(4, 8)]), mesh).tried) >= 3


def test_ranges_and_identities_are_whole() -> None:
    bounds = [np.array(value) for value in (0, 8, 1)]
    assert offered(Case("Range", bounds)) == {"R R R -> R"}
    assert offered(Case("EyeLike", [normal(4, 4)])) == {"R -> R"}


def test_constants_are_whole() -> None:
    report = check(Case("Constant", [], {"value": normal(4, 6)}), (2,))
    assert report.offered == {" -> R"}
    assert report.flops == 0
