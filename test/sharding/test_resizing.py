"""Operators that change height and width: every strategy is right, the expected are offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]
REPEAT: dict[str, Any] = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}
SCALES = frozenset({2})
SIZES = frozenset({3})


def dims_split(case: Case, mesh: tuple[int, ...] = (2,)) -> set[int]:
    """Check ``case`` and return the dimensions that one mesh axis splits."""
    found = check(case, mesh, rtol=1e-3, atol=1e-4).rule
    return {
        dim
        for dim, factor in enumerate(found.results[0])
        if factor is not None and found.factors[factor].can_split
    }


def by_scales(*scales: float, version: int = 20, **attributes: Any) -> Case:
    held = np.array(scales, np.float32)
    return Case("Resize", [normal(2, 4, 4, 8), None, held], attributes, version, literals=SCALES)


def by_sizes(*sizes: int, literals: frozenset[int] = SIZES, **attributes: Any) -> Case:
    held = np.array(sizes, np.int64)
    return Case("Resize", [normal(2, 4, 4, 8), None, None, held], attributes, literals=literals)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("mesh", MESHES)
def test_depth_to_space(mode: str, mesh: tuple[int, ...]) -> None:
    case = Case("DepthToSpace", [normal(2, 16, 4, 6)], {"blocksize": 2, "mode": mode})
    assert dims_split(case, mesh) == ({0, 2, 3} if mode == "DCR" else {0, 1, 2, 3})


@pytest.mark.parametrize("mesh", MESHES)
def test_space_to_depth(mesh: tuple[int, ...]) -> None:
    case = Case("SpaceToDepth", [normal(2, 3, 8, 4)], {"blocksize": 2})
    assert dims_split(case, mesh) == {0, 2, 3}
    assert "S(2) -> S(2)" in offered(case)


@pytest.mark.parametrize("mesh", MESHES)
def test_channels_before_the_block_are_split(mesh: tuple[int, ...]) -> None:
    held = {"blocksize": 2, "mode": "CRD"}
    case = Case("SpaceToDepth", [normal(2, 4, 8, 4)], held, 28)
    assert dims_split(case, mesh) == {0, 1, 2, 3}


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_splits_what_keeps_its_size(mode: str) -> None:
    case = by_scales(1, 1, 1.5, 2, mode=mode)
    assert dims_split(case) == {0, 1}
    assert offered(case) == {
        "R R R -> R",
        "S(0) R R -> S(0)",
        "S(1) R R -> S(1)",
        "P(sum) R R -> P(sum)",
    }


@pytest.mark.parametrize("mesh", MESHES)
def test_repeated_elements_stay_together(mesh: tuple[int, ...]) -> None:
    assert dims_split(by_scales(1, 1, 2, 3, **REPEAT), mesh) == {0, 1, 2, 3}
    assert dims_split(by_scales(1, 1, 2, 1.5, **REPEAT), mesh) == {0, 1, 2}
    assert dims_split(by_scales(1, 1, 0.5, 1, **REPEAT), mesh) == {0, 1, 3}


@pytest.mark.parametrize("literals", [SIZES, frozenset()])
@pytest.mark.parametrize("mesh", MESHES)
def test_sizes_become_local(literals: frozenset[int], mesh: tuple[int, ...]) -> None:
    assert dims_split(by_sizes(2, 4, 8, 10, literals=literals, **REPEAT), mesh) == {0, 1, 2}
    assert dims_split(by_sizes(2, 4, 6, 10, literals=literals), mesh) == {0, 1}


def test_axes_leave_the_others_alone() -> None:
    assert dims_split(by_scales(1.5, 2, axes=[2, -1], mode="linear")) == {0, 1}
    assert dims_split(by_sizes(6, 8, axes=[2, 3], mode="linear")) == {0, 1, 3}


def test_sizes_of_a_symbolic_batch() -> None:
    case = Case(
        "Resize",
        [normal(3, 4, 4, 4), None, None, np.array([3, 4, 8, 8])],
        REPEAT,
        literals=SIZES,
        symbolic=frozenset({(0, 0)}),
        symbolic_results=frozenset({(0, 0)}),
    )
    assert dims_split(case) == {1, 2, 3}


@pytest.mark.parametrize(
    "case",
    [
        Case("Resize", [normal(2, 4, 4, 8), None, np.array([1, 1, 2, 2], np.float32)]),
        by_sizes(2, 4, 8, 8, keep_aspect_ratio_policy="not_larger"),
        by_scales(1, 1, 2, 2, coordinate_transformation_mode="tf_half_pixel_for_nn"),
    ],
)
def test_what_is_declined(case: Case) -> None:
    assert dims_split(case) == set()


def test_interpolated_integers_are_not_linear() -> None:
    image = np.arange(32, dtype=np.uint8).reshape(1, 2, 4, 4)
    scales = np.array([1, 1, 2, 2], np.float32)
    for mode in ("nearest", "linear"):
        case = Case("Resize", [image, None, scales], {"mode": mode}, literals=SCALES)
        assert ("P(sum) R R -> P(sum)" in offered(case)) == (mode == "nearest")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("version", [7, 9, 10])
def test_old_operators(version: int, mode: str) -> None:
    image, scales = normal(2, 4, 4, 8), np.array([1, 1, 2, 2], np.float32)
    if version == 7:
        attributes: dict[str, Any] = {"mode": mode, "scales": [1.0, 1.0, 2.0, 2.0]}
        case = Case("Upsample", [image], attributes, 7)
    else:
        name = "Upsample" if version == 9 else "Resize"
        case = Case(name, [image, scales], {"mode": mode}, version, literals=frozenset({1}))
    assert dims_split(case) == ({0, 1, 2, 3} if mode == "nearest" else {0, 1})
