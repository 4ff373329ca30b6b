"""Images read at positions: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]


@pytest.mark.parametrize(("version", "domain"), [(20, ""), (16, ""), (1, "com.microsoft")])
def test_a_grid_splits_with_its_positions(version: int, domain: str) -> None:
    operands = [normal(2, 4, 5, 6), normal(2, 4, 8, 2) / 2]
    case = Case("GridSample", operands, version=version, domain=domain)
    assert offered(case) == {
        "R R -> R",
        "S(0) S(0) -> S(0)",
        "S(1) R -> S(1)",
        "R S(1) -> S(2)",
        "R S(2) -> S(3)",
        "P(sum) R -> P(sum)",
    }


@examples(25)
@given(
    mesh=st.sampled_from(MESHES),
    mode=st.sampled_from(["linear", "nearest", "cubic"]),
    padding=st.sampled_from(["zeros", "border", "reflection"]),
    corners=st.booleans(),
    sizes=st.tuples(*[st.sampled_from([1, 2, 4])] * 4),
)
def test_any_grid(
    mesh: tuple[int, ...], mode: str, padding: str, corners: bool, sizes: tuple[int, ...]
) -> None:
    batch, channels, high, wide = sizes
    operands = [normal(batch, channels, 5, 6), normal(batch, high, wide, 2) / 2]
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(corners)}
    check(Case("GridSample", operands, attributes), mesh)


@pytest.mark.parametrize("literal", [True, False])
@pytest.mark.parametrize("sizes", [(4, 3, 5, 6), (4, 3, 5, 6, 2)])
def test_grids_of_a_batch(literal: bool, sizes: tuple[int, ...]) -> None:
    rank = len(sizes) - 2
    operands = [normal(4, rank, rank + 1), np.array(sizes)]
    held = frozenset({1}) if literal else frozenset()
    for mesh in MESHES:
        case = Case("AffineGrid", operands, {"align_corners": 1}, literals=held)
        assert check(case, mesh).offered >= ({"S(0) R -> S(0)"} if mesh == (2,) else set())


def test_a_grid_whose_sizes_only_the_running_model_knows() -> None:
    operands = [normal(4, 2, 3), np.array((4, 3, 5, 6))]
    hidden = frozenset({(0, 1), (0, 2)})
    case = Case("AffineGrid", operands, symbolic_results=hidden)
    assert offered(case) == {"R R -> R", "S(0) R -> S(0)"}


@examples(20)
@given(
    mesh=st.sampled_from(MESHES),
    mode=st.sampled_from(["avg", "max"]),
    count=st.sampled_from([2, 4, 5]),
    channels=st.sampled_from([1, 4]),
)
def test_any_regions(mesh: tuple[int, ...], mode: str, count: int, channels: int) -> None:
    rng = np.random.default_rng(count)
    corners = np.sort(rng.uniform(0, 8, (count, 2, 2)), axis=1).reshape(count, 4)
    operands = [normal(3, channels, 8, 8), corners.astype(np.float32), rng.integers(0, 3, count)]
    attributes = {"mode": mode, "output_height": 2, "output_width": 3, "sampling_ratio": 2}
    check(Case("RoiAlign", operands, attributes, 16), mesh)


def test_regions_and_channels_split() -> None:
    corners = np.array([[0, 0, 4, 4], [1, 1, 7, 6]], np.float32)
    case = Case("RoiAlign", [normal(3, 4, 8, 8), corners, np.array([0, 2])], {}, 16)
    assert offered(case) == {
        "R R R -> R",
        "R S(0) S(0) -> S(0)",
        "S(1) R R -> S(1)",
        "P(sum) R R -> P(sum)",
    }
    whole = np.concatenate([np.array([[0], [2]], np.float32), corners], axis=1)
    pooled = Case("MaxRoiPool", [normal(3, 4, 8, 8), whole], {"pooled_shape": [2, 2]}, 20)
    assert offered(pooled) == {"R R -> R", "R S(0) -> S(0)", "S(1) R -> S(1)"}
