"""MatMul and Gemm: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

MESHES = [(2,), (4,), (2, 2)]


def test_matmul_offers_rows_columns_and_the_sum() -> None:
    assert offered(Case("MatMul", [normal(4, 6), normal(6, 8)])) == {
        "R R -> R",
        "S(0) R -> S(0)",
        "R S(1) -> S(1)",
        "S(1) S(0) -> P(sum)",
        "P(sum) R -> P(sum)",
        "R P(sum) -> P(sum)",
    }


def test_matmul_on_two_axes_combines_every_two_choices() -> None:
    report = check(Case("MatMul", [normal(4, 8), normal(8, 8)]), (2, 2))
    assert len(report.tried) == 36
    assert "S(0),S(1) R,S(0) -> S(0),P(sum)" in report.offered
    assert "P(sum),R R,P(sum) -> P(sum),P(sum)" in report.offered


def test_matmul_cuts_one_dimension_by_both_axes() -> None:
    found = offered(Case("MatMul", [normal(4, 2), normal(2, 6)]), (2, 2))
    assert "S(0),S(0) R,R -> S(0),S(0)" in found
    assert "S(1),S(1) S(0),S(0) -> P(sum),P(sum)" not in found
    assert "R,R S(1),S(1) -> S(1),S(1)" in found  # parts of 2, the last one is padding


@pytest.mark.parametrize(
    ("left", "right", "splits"),
    [
        ((2, 4, 6), (6, 8), {"S(0) R -> S(0)", "S(1) R -> S(1)", "R S(1) -> S(2)"}),
        ((2, 4, 6), (2, 6, 8), {"S(0) S(0) -> S(0)", "S(1) R -> S(1)", "R S(2) -> S(2)"}),
        ((2, 4, 6), (1, 6, 8), {"S(0) R -> S(0)", "S(1) R -> S(1)", "R S(2) -> S(2)"}),
        ((4, 6), (2, 6, 8), {"R S(0) -> S(0)", "S(0) R -> S(1)", "R S(2) -> S(2)"}),
        ((6,), (6, 8), {"R S(1) -> S(0)"}),
        ((4, 6), (6,), {"S(0) R -> S(0)"}),
        ((6,), (2, 6, 8), {"R S(0) -> S(0)", "R S(2) -> S(1)"}),
        ((2, 4, 6), (6,), {"S(0) R -> S(0)", "S(1) R -> S(1)"}),
        ((6,), (6,), set()),
    ],
)
def test_matmul_broadcasts(left: Any, right: Any, splits: set[str]) -> None:
    found = offered(Case("MatMul", [normal(*left), normal(*right)]))
    inner = f"S({len(left) - 1}) S({max(len(right) - 2, 0)}) -> P(sum)"
    linear = {"P(sum) R -> P(sum)", "R P(sum) -> P(sum)", "R R -> R"}
    assert found == splits | linear | {inner}


@examples(15)
@given(
    mesh=st.sampled_from(MESHES),
    batch=st.lists(st.sampled_from([1, 2, 3, 4]), max_size=3),
    stretched=st.lists(st.booleans(), min_size=6, max_size=6),
    lengths=st.tuples(*[st.integers(0, 3)] * 2),
    sizes=st.tuples(*[st.sampled_from([1, 2, 4, 6])] * 3),
)
def test_matmul_of_any_shapes(
    mesh: tuple[int, ...],
    batch: list[int],
    stretched: list[bool],
    lengths: tuple[int, int],
    sizes: tuple[int, int, int],
) -> None:
    m, n, k = sizes
    left = [1 if s else b for s, b in zip(stretched[:3], batch, strict=False)][-lengths[0] :]
    right = [1 if s else b for s, b in zip(stretched[3:], batch, strict=False)][-lengths[1] :]
    check(Case("MatMul", [normal(*left, m, k), normal(*right, k, n)]), mesh)


def test_matmul_of_whole_numbers_wraps_around() -> None:
    a, b = (np.arange(24).reshape(shape).astype(np.int32) for shape in ((4, 6), (6, 4)))
    assert "S(1) S(0) -> P(sum)" in offered(Case("MatMul", [a, b]))


def test_matmul_of_a_type_without_a_sum_splits_only_rows_and_columns() -> None:
    a, b = (np.ones(shape, np.uint32) for shape in ((4, 6), (6, 4)))
    assert offered(Case("MatMul", [a, b])) == {"R R -> R", "S(0) R -> S(0)", "R S(1) -> S(1)"}


def test_a_symbolic_dimension_is_never_split() -> None:
    hidden = {"symbolic": frozenset({(0, 0)}), "symbolic_results": frozenset({(0, 0)})}
    found = offered(Case("MatMul", [normal(4, 6), normal(6, 8)], **hidden))  # type: ignore[arg-type]
    assert "S(0) R -> S(0)" not in found
    assert "R S(1) -> S(1)" in found


def test_a_batch_that_may_be_stretched_is_never_split() -> None:
    hidden = frozenset({(0, 0)})
    case = Case("MatMul", [normal(1, 4, 6), normal(4, 6, 8)], symbolic=hidden)
    assert not any("S(0)" in text.split(" -> ")[1] for text in offered(case))


@examples(30)
@given(
    mesh=st.sampled_from(MESHES),
    batches=st.sampled_from([((), ()), ((2,), ()), ((2,), (2,)), ((4, 2), (1, 2))]),
    flips=st.tuples(st.booleans(), st.booleans()),
    alpha=st.sampled_from([1.0, 0.5]),
)
def test_any_flipped_product(
    mesh: tuple[int, ...], batches: Any, flips: tuple[bool, bool], alpha: float
) -> None:
    left, right = ((4, 8), (8, 6))
    left, right = (left[::-1] if flips[0] else left), (right[::-1] if flips[1] else right)
    operands = [normal(*batches[0], *left), normal(*batches[1], *right)]
    attributes = {"transA": int(flips[0]), "transB": int(flips[1]), "alpha": alpha}
    check(Case("FusedMatMul", operands, attributes, 1, "com.microsoft"), mesh)


@pytest.mark.parametrize("name", ["FusedMatMul", "TransposeMatMul"])
def test_flipped_products_split_as_others_do(name: str) -> None:
    operands = [normal(6, 4), normal(8, 6)]
    case = Case(name, operands, {"transA": 1, "transB": 1}, 1, "com.microsoft")
    assert offered(case) == {
        "R R -> R",
        "S(1) R -> S(0)",
        "R S(0) -> S(1)",
        "S(0) S(1) -> P(sum)",
        "P(sum) R -> P(sum)",
        "R P(sum) -> P(sum)",
    }


def test_a_batch_behind_the_rows_stays_whole() -> None:
    case = Case("FusedMatMul", [normal(4, 2, 6), normal(2, 6, 8)], {"transBatchA": 1}, 1,
                "com.microsoft")  # fmt: skip
    assert offered(case) == {"R R -> R"}


def test_gemm_without_bias() -> None:
    found = offered(Case("Gemm", [normal(4, 6), normal(6, 8)]))
    assert {"S(0) R -> S(0)", "R S(1) -> S(1)", "S(1) S(0) -> P(sum)"} <= found
    assert {"P(sum) R -> P(sum)", "R P(sum) -> P(sum)"} <= found


def test_gemm_bias_is_partial_where_the_product_is() -> None:
    found = offered(Case("Gemm", [normal(4, 6), normal(6, 8), normal(8)]))
    assert found == {
        "R R R -> R",
        "S(0) R R -> S(0)",
        "R S(1) S(0) -> S(1)",
        "S(1) S(0) P(sum) -> P(sum)",
        "P(sum) R P(sum) -> P(sum)",
        "R P(sum) P(sum) -> P(sum)",
    }


def test_gemm_with_an_omitted_bias() -> None:
    assert "S(0) R R -> S(0)" in offered(Case("Gemm", [normal(4, 6), normal(6, 8), None]))


@examples(15)
@given(
    mesh=st.sampled_from(MESHES),
    sizes=st.tuples(*[st.sampled_from([1, 2, 4, 6])] * 3),
    transposed=st.tuples(st.booleans(), st.booleans()),
    bias=st.sampled_from(["none", "scalar", "n", "1n", "m1", "mn"]),
    scales=st.tuples(*[st.sampled_from([0.0, 1.0, 0.5])] * 2),
)
def test_gemm_of_any_shapes(
    mesh: tuple[int, ...],
    sizes: tuple[int, int, int],
    transposed: tuple[bool, bool],
    bias: str,
    scales: tuple[float, float],
) -> None:
    m, n, k = sizes
    a = normal(k, m) if transposed[0] else normal(m, k)
    b = normal(n, k) if transposed[1] else normal(k, n)
    shapes = {"scalar": (), "n": (n,), "1n": (1, n), "m1": (m, 1), "mn": (m, n)}
    c = [normal(*shapes[bias])] if bias in shapes else []
    attributes = {"transA": int(transposed[0]), "transB": int(transposed[1])}
    check(
        Case("Gemm", [a, b, *c], {**attributes, "alpha": scales[0], "beta": scales[1]}),
        mesh,
    )


def test_work_is_two_per_multiply_add() -> None:
    assert check(Case("MatMul", [normal(3, 4, 6), normal(6, 8)]), (2,)).flops == 2 * 3 * 4 * 6 * 8
    assert check(Case("Gemm", [normal(4, 6), normal(6, 8)]), (2,)).flops == 2 * 4 * 6 * 8


@pytest.mark.parametrize("bias", [(8,), (4, 1), (4, 8)])
def test_a_sum_before_an_activation_is_whole(bias: tuple[int, ...]) -> None:
    operands = [normal(4, 6), normal(6, 8), normal(*bias)]
    case = Case("FusedGemm", operands, {"activation": "Relu"}, 1, "com.microsoft")
    found = {text.rpartition(" -> ")[2] for text in offered(case)}
    assert found == {"R", "S(0)", "S(1)"}
