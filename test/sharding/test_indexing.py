"""Operators that pick elements by index: every strategy is right, and the expected are offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import rule_for

MESHES = [(2,), (4,), (2, 2)]


def indices(
    *shape: int, below: int, seed: int = 0, negative: bool = True, dtype: Any = np.int64
) -> Any:
    low = -below if negative else 0
    return np.random.default_rng([seed, *shape]).integers(low, below, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("version", [9, 13, 20])
def test_gather_splits_data_indices_and_vocabulary(dtype: Any, version: int) -> None:
    held = indices(6, 4, below=8, dtype=dtype)
    case = Case("Gather", [normal(2, 8, 4), held], {"axis": 1}, version)
    assert offered(case) == {
        "R R -> R",
        "S(0) R -> S(0)",
        "R S(0) -> S(1)",
        "R S(1) -> S(2)",
        "S(2) R -> S(3)",
        "S(1) R -> P(sum)",
        "P(sum) R -> P(sum)",
    }


def test_gather_on_two_axes() -> None:
    report = check(Case("Gather", [normal(8, 4), indices(4, below=8)]), (2, 2))
    assert {
        "S(0),S(0) R,R -> P(sum),P(sum)",
        "S(0),S(1) R,R -> P(sum),S(1)",
        "S(0),R R,S(0) -> P(sum),S(0)",
        "S(0),P(sum) R,R -> P(sum),P(sum)",
    } <= report.offered
    assert report.flops == 0


@pytest.mark.parametrize("index", [0, 5, -1, -6])
@pytest.mark.parametrize("shape", [(6,), (6, 4), (6, 2, 4)])
def test_gather_by_a_scalar(shape: tuple[int, ...], index: int) -> None:
    found = offered(Case("Gather", [normal(*shape), np.array(index)]))
    assert "S(0) R -> P(sum)" in found


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.int64, np.uint8])
def test_gather_of_types_that_add_up(dtype: Any) -> None:
    table = (normal(8, 4) * 10).astype(dtype) if dtype != np.uint8 else np.arange(32).reshape(8, 4)
    case = Case("Gather", [table.astype(dtype), indices(4, below=8)])
    assert "S(0) R -> P(sum)" in check(case, (2,), rtol=1e-2, atol=1e-2).offered


def test_gather_of_flags_keeps_the_vocabulary_whole() -> None:
    found = offered(Case("Gather", [normal(8, 4) > 0, indices(4, below=8)]))
    assert found == {"R R -> R", "S(1) R -> S(1)", "R S(0) -> S(0)"}


def test_gather_before_where_keeps_the_vocabulary_whole() -> None:
    found = offered(Case("Gather", [normal(8, 4), indices(4, below=8, negative=False)], version=7))
    assert "S(0) R -> P(sum)" not in found
    assert "S(1) R -> S(1)" in found


def test_gather_by_symbolic_indices() -> None:
    case = Case(
        "Gather",
        [normal(8, 4), indices(3, 5, below=8)],
        symbolic=frozenset({(1, 0), (1, 1)}),
        symbolic_results=frozenset({(0, 0), (0, 1)}),
    )
    assert offered(case) == {
        "R R -> R",
        "S(0) R -> P(sum)",
        "S(1) R -> S(2)",
        "P(sum) R -> P(sum)",
    }


def test_gather_elements_splits_where_data_and_indices_agree() -> None:
    case = Case("GatherElements", [normal(4, 8, 6), indices(4, 2, 4, below=8)], {"axis": 1})
    assert offered(case) == {
        "R R -> R",
        "S(0) S(0) -> S(0)",
        "R S(1) -> S(1)",
        "S(1) R -> P(sum)",
        "P(sum) R -> P(sum)",
    }


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_elements_of_a_split_vocabulary(mesh: tuple[int, ...], dtype: Any) -> None:
    picks = indices(4, 1, below=8, dtype=dtype)
    check(Case("GatherElements", [normal(4, 8), picks], {"axis": 1}), mesh)
    operands = [normal(4, 8), picks, normal(4, 1, seed=1)]
    check(Case("ScatterElements", operands, {"axis": 1, "reduction": "add"}), mesh)


def test_gather_nd() -> None:
    picks = indices(4, 2, 1, below=3)
    case = Case("GatherND", [normal(4, 3, 6), picks], {"batch_dims": 1})
    assert offered(case) == {
        "R R -> R",
        "S(0) S(0) -> S(0)",
        "R S(1) -> S(1)",
        "S(2) R -> S(2)",
        "P(sum) R -> P(sum)",
    }
    whole = Case("GatherND", [normal(4, 3), indices(6, 2, below=3)])
    assert offered(whole) == {"R R -> R", "R S(0) -> S(0)", "P(sum) R -> P(sum)"}


def test_gather_nd_of_unknown_depth_is_declined() -> None:
    data, picks = TensorInfo((4, 4), "float32", 4), TensorInfo((4, None), "int64", 8)
    rule = rule_for(OpInfo("GatherND", 20, (data, picks), (data,)))
    assert not any(factor.can_split for factor in rule.factors)


@pytest.mark.parametrize(("axis", "moved"), [(-1, (0, 1)), (0, (1, 2)), (1, (0, 2))])
def test_one_hot_splits_its_indices(axis: int, moved: tuple[int, int]) -> None:
    values = np.array([0.5, 2], np.float32)
    case = Case("OneHot", [indices(4, 6, below=3), np.array(3), values], {"axis": axis})
    assert offered(case) == {
        "R R R -> R",
        f"S(0) R R -> S({moved[0]})",
        f"S(1) R R -> S({moved[1]})",
    }


def test_top_k_keeps_its_axis_whole() -> None:
    case = Case("TopK", [normal(4, 6, 8), np.array([3])], {"axis": 1}, results=(True, True))
    assert offered(case) == {"R R -> R R", "S(0) R -> S(0) S(0)", "S(2) R -> S(2) S(2)"}


@examples(40)
@given(
    data=st.lists(st.sampled_from([2, 3, 4, 8]), min_size=1, max_size=3),
    picks=st.lists(st.sampled_from([1, 2, 4]), min_size=0, max_size=2),
    axis=st.integers(-3, 2),
    seed=st.integers(0, 9),
    mesh=st.sampled_from(MESHES),
)
def test_gather_of_any_shapes(
    data: list[int], picks: list[int], axis: int, seed: int, mesh: tuple[int, ...]
) -> None:
    axis = max(-len(data), min(axis, len(data) - 1))
    held = np.asarray(indices(*picks, below=data[axis], seed=seed))
    check(Case("Gather", [normal(*data), held], {"axis": axis}), mesh)


@examples(20)
@given(
    data=st.lists(st.sampled_from([2, 4]), min_size=2, max_size=4),
    batch=st.integers(0, 2),
    depth=st.integers(1, 2),
    outer=st.lists(st.sampled_from([1, 2, 4]), min_size=0, max_size=2),
    mesh=st.sampled_from(MESHES),
)
def test_gather_nd_of_any_shapes(
    data: list[int], batch: int, depth: int, outer: list[int], mesh: tuple[int, ...]
) -> None:
    batch = min(batch, len(data) - 1)
    depth = min(depth, len(data) - batch)
    picks = indices(*data[:batch], *outer, depth, below=2)
    if picks.ndim <= batch:  # the standard wants more dimensions than batches
        return
    check(Case("GatherND", [normal(*data), picks], {"batch_dims": batch}), mesh)


def test_compressing_one_axis_leaves_the_others() -> None:
    keep = np.array([True, False, True])
    case = Case("Compress", [normal(4, 3, 2), keep], {"axis": 1})
    assert offered(case) == {
        "R R -> R",
        "S(0) R -> S(0)",
        "S(2) R -> S(2)",
        "P(sum) R -> P(sum)",
    }
    assert offered(Case("Compress", [normal(4, 3), keep])) == {"R R -> R"}


def embeddings(
    *, points: bool = True, width: int = 4, negative: bool = False, rows: int = 8, blocks: int = 2
) -> Case:
    """Return ``blocks`` blocks of 16 elements picked from a table of ``rows`` rows."""
    rng = np.random.default_rng(0)
    bytes_ = blocks * 16 * width // 8
    indices = rng.integers(-rows if negative else 0, rows, (4, 2))
    operands = [rng.integers(0, 256, (rows, bytes_), np.uint8), indices, normal(rows, blocks) ** 2]
    packed = -(-blocks * width // 8)
    operands += [rng.integers(0, 256, (rows, packed), np.uint8)] if points else []
    attributes = {"bits": width, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}
    return Case("GatherBlockQuantized", operands, attributes, 1, "com.microsoft")


def test_quantized_rows_are_picked_by_the_rank_that_has_them() -> None:
    assert offered(embeddings()) == {
        "R R R R -> R",
        "R S(0) R R -> S(0)",
        "R S(1) R R -> S(1)",
        "S(0) R S(0) S(0) -> P(sum)",
    }


def test_quantized_rows_split_between_blocks_and_bytes() -> None:
    split = "S(1) R S(1) S(1) -> S(2)"
    assert split in offered(embeddings(blocks=4))
    assert split in offered(embeddings(blocks=2, width=8))
    assert split not in offered(embeddings(blocks=2))
    assert "S(1) R S(1) -> S(2)" in offered(embeddings(blocks=2, points=False))


@pytest.mark.parametrize("mesh", [(2,), (3,), (4,), (2, 2)])
@pytest.mark.parametrize("points", [True, False])
@pytest.mark.parametrize("width", [4, 8])
def test_any_quantized_rows(mesh: tuple[int, ...], points: bool, width: int) -> None:
    for negative, rows, blocks in ((False, 8, 3), (True, 11, 4)):
        check(embeddings(points=points, width=width, negative=negative, rows=rows, blocks=blocks),
              mesh)  # fmt: skip


def test_a_quantized_vocabulary_may_have_padding() -> None:
    found = check(embeddings(rows=251), (4,)).offered
    assert "S(0) R S(0) S(0) -> P(sum)" in found
