"""Operators that write or add elements by index: all strategies are right, and as expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sharding.harness import Case, check, local_functions, normal, offered

MESHES = [(2,), (4,), (2, 2)]


@pytest.mark.parametrize("reduction", ["none", "mul"])
def test_slices_that_replace_split_what_updates_carry_whole(reduction: str) -> None:
    at = np.array([[0], [2], [-1]])
    operands = [normal(4, 6, 8), at, normal(3, 6, 8, seed=1)]
    found = offered(Case("ScatterND", operands, {"reduction": reduction}))
    partial = set() if reduction == "mul" else {"P(sum) R P(sum) -> P(sum)"}
    assert found == partial | {"R R R -> R", "S(1) R S(1) -> S(1)", "S(2) R S(2) -> S(2)"}


def rows(*outer: int, below: int = 8, width: tuple[int, ...] = (4,), dtype: Any = None) -> Case:
    """Return rows that are added to a table by an index each, which repeat and may be negative."""
    at = np.random.default_rng(0).integers(-below, below, (*outer, 1))
    updates = normal(*outer, *width, seed=1, dtype=dtype or np.float32)
    return Case("ScatterND", [normal(below, *width, dtype=updates.dtype), at, updates],
                {"reduction": "add"})  # fmt: skip


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("case", [rows(4, 8), rows(8, width=(4, 2)), rows(4, width=())])
def test_added_rows_split_everything(case: Case, mesh: tuple[int, ...]) -> None:
    report = check(case, mesh)
    if mesh == (2,):
        rank, outer = case.operands[0].ndim, case.operands[1].ndim - 1  # type: ignore[union-attr]
        assert report.offered == {
            "R R R -> R",
            "P(sum) R P(sum) -> P(sum)",
            "S(0) R R -> S(0)",
            *(f"P(sum) S({d}) S({d}) -> P(sum)" for d in range(outer)),
            *(f"S({d}) R S({d + outer - 1}) -> S({d})" for d in range(1, rank)),
        }


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 8)])
def test_added_slices_of_two_indices(shape: tuple[int, ...], mesh: tuple[int, ...]) -> None:
    at = np.random.default_rng(0).integers(-4, 4, (8, 2))
    operands = [normal(*shape), at, normal(8, *shape[2:], seed=1)]
    check(Case("ScatterND", operands, {"reduction": "add"}), mesh)


def test_no_strategy_adds_rows_by_the_operator_that_may_lose_some() -> None:
    """With several threads, ONNX Runtime's ScatterND loses updates; ScatterElements does not."""
    texts = local_functions(rows(8), (2,))
    assert len(texts) > 3
    assert all("onnx.ScatterElements" in text for text in texts)
    assert not any("onnx.ScatterND" in text for text in texts)


def test_types_that_the_runtime_does_not_add_are_left_as_they_are() -> None:
    found = offered(rows(4, dtype=np.int8))
    assert found == {"R R R -> R", "S(1) R S(1) -> S(1)"} | {
        "P(sum) S(0) S(0) -> P(sum)", "P(sum) R P(sum) -> P(sum)"}  # fmt: skip


def test_all_of_many_updates_of_one_row_are_added() -> None:
    """ONNX Runtime's own ScatterND loses some where it has several threads."""
    report = check(rows(512, below=2), (2,))
    assert "P(sum) S(0) S(0) -> P(sum)" in report.offered


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_scatter_elements_splits_where_all_agree(reduction: str) -> None:
    at = np.argsort(normal(4, 8, 2), axis=1)[:, :2]
    operands = [normal(4, 8, 4), at, normal(4, 2, 2, seed=1)]
    attributes: dict[str, Any] = {"axis": 1, "reduction": reduction}
    found = offered(Case("ScatterElements", operands, attributes))
    partial = set() if reduction == "max" else {"P(sum) R P(sum) -> P(sum)"}
    if reduction == "add":
        partial |= {"S(1) R R -> S(1)", "P(sum) S(1) S(1) -> P(sum)"}
    assert found == partial | {"R R R -> R", "S(0) S(0) S(0) -> S(0)"}


@pytest.mark.parametrize("mesh", MESHES)
def test_elements_are_added_to_a_split_axis(mesh: tuple[int, ...]) -> None:
    at = np.random.default_rng(0).integers(-8, 8, (4, 4))
    operands = [normal(8, 4), at, normal(4, 4, seed=1)]
    check(Case("ScatterElements", operands, {"axis": 0, "reduction": "add"}), mesh)


def test_scatter_under_its_old_name() -> None:
    held = normal(4, 6)
    operands = [held, np.argsort(held, axis=0), normal(4, 6, seed=1)]
    found = offered(Case("Scatter", operands, version=9))
    assert found == {"R R R -> R", "S(1) S(1) S(1) -> S(1)", "P(sum) R P(sum) -> P(sum)"}


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2)])
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_rows_are_written_into_the_cache_of_every_rank(mesh: tuple[int, ...], mode: str) -> None:
    at = np.array([0, 3, 1, 2] if mode == "linear" else [0, 5, 1, 4])
    operands = [normal(4, 2, 6, 4), normal(4, 2, 3, 4, seed=1), at]
    report = check(Case("TensorScatter", operands, {"mode": mode}, 24), mesh)
    if mesh == (2,):
        assert report.offered == {
            "R R R -> R",
            "S(0) S(0) S(0) -> S(0)",
            "S(1) S(1) R -> S(1)",
            "S(3) S(3) R -> S(3)",
            "P(sum) P(sum) R -> P(sum)",
        }
