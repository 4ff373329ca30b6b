"""Gradients of products of matrices."""

from __future__ import annotations

from typing import Any

import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from training.harness import check_node, node_model, normal
from training.vjp import Vjp

from tensoropt.compiler.support.errors import UserError


@pytest.mark.parametrize(
    ("left", "right", "ops"),
    [
        ((3, 4), (4, 5), {"Gemm"}),
        ((4,), (4, 5), {"Einsum"}),
        ((3, 4), (4,), {"Einsum"}),
        ((4,), (4,), {"Mul"}),
        ((2, 3, 4), (4, 5), {"Einsum"}),
        ((2, 6, 3, 4), (4, 5), {"Einsum"}),
        ((2, 6, 3, 4), (2, 6, 4, 5), {"MatMul", "Transpose"}),
        ((2, 3, 4), (4,), {"Einsum"}),
        ((2, 1, 3, 4), (6, 4, 5), {"Einsum", "Squeeze", "Unsqueeze"}),
        ((6, 3, 4), (2, 1, 4, 5), {"Einsum", "Squeeze", "Unsqueeze"}),
        ((3, 4), (2, 6, 4, 5), {"Einsum"}),
    ],
)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...], ops: set[str]) -> None:
    vjp = check_node("MatMul", [normal(*left), normal(*right, seed=1)], torch=lambda a, b: a @ b)
    assert set(vjp.ops) - {"MatMul", "Constant", "Identity"} == ops - {"MatMul"}


def test_a_weight_s_gradient_is_one_product() -> None:
    model = node_model("MatMul", [normal(2, 3, 4), normal(4, 5)])
    assert Vjp(model, wanted=["x1"]).ops == ["MatMul", "Einsum"]


@pytest.mark.parametrize("bias", [None, (1,), (5,), (3, 1), (1, 5), (3, 5)])
def test_gemm_adds_any_bias(bias: tuple[int, ...] | None) -> None:
    added = None if bias is None else normal(*bias, seed=2)
    check_node(
        "Gemm",
        [normal(3, 4), normal(4, 5, seed=1), added],
        {"alpha": 0.5, "beta": 2.0},
        torch=lambda a, b, c: 0.5 * a @ b + (0 if c is None else 2 * c),
    )


@pytest.mark.parametrize("flip_a", [0, 1])
@pytest.mark.parametrize("flip_b", [0, 1])
def test_gemm_reads_transposed(flip_a: int, flip_b: int) -> None:
    def reference(a: Any, b: Any) -> Any:
        return (a.T if flip_a else a) @ (b.T if flip_b else b)

    left, right = normal(*((4, 3) if flip_a else (3, 4))), normal(*((5, 4) if flip_b else (4, 5)))
    vjp = check_node("Gemm", [left, right], {"transA": flip_a, "transB": flip_b}, torch=reference)
    assert "Transpose" not in vjp.ops


@pytest.mark.parametrize("flips", [{}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1}])
def test_fused_matmul(flips: dict[str, int]) -> None:
    def reference(a: Any, b: Any) -> Any:
        left = a.mT if flips.get("transA") else a
        return 0.5 * left @ (b.mT if flips.get("transB") else b)

    left = normal(2, *((4, 3) if flips.get("transA") else (3, 4)))
    right = normal(2, *((5, 4) if flips.get("transB") else (4, 5)), seed=1)
    check_node(
        "FusedMatMul", [left, right], {"alpha": 0.5, **flips}, domain="com.microsoft",
        torch=reference,
    )  # fmt: skip


def test_a_batch_behind_the_rows_is_refused() -> None:
    operands = [normal(3, 2, 4), normal(2, 4, 5)]
    model = node_model("FusedMatMul", operands, {"transBatchA": 1}, domain="com.microsoft")
    with pytest.raises(UserError, match="expected transBatchA and transBatchB of 0"):
        Vjp(model)


def test_fused_gemm() -> None:
    operands = [normal(3, 4), normal(4, 5, seed=1), normal(5, seed=2)]
    options = {"activation": "Relu", "alpha": 0.5}
    check_node(
        "FusedGemm", operands, options, domain="com.microsoft",
        torch=lambda a, b, c: (0.5 * a @ b + c).relu(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij, jk", [(3, 4), (4, 5)]),
        ("ij,jk->ki", [(3, 4), (4, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bhqk,bhkd->bqhd", [(2, 3, 4, 6), (2, 3, 6, 5)]),
        ("bqd,hde->bhqe", [(2, 4, 6), (3, 6, 5)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (1, 4, 5)]),
        ("...i,...i->...", [(3, 4), (1, 4)]),
        ("ij->ji", [(3, 4)]),
        ("ij->i", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("ij,k->jk", [(3, 4), (5,)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i->", [(4,), (4,)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
        ("ij,ij,jk->ik", [(3, 4), (3, 4), (4, 5)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    import torch

    check_node(
        "Einsum",
        [normal(*shape, seed=i) for i, shape in enumerate(shapes)],
        {"equation": equation},
        torch=lambda *x: torch.einsum(equation, *x),
    )


@examples(15)
@given(st.data())
def test_any_einsum_of_two(data: st.DataObject) -> None:
    import torch

    sizes = dict(zip("abcd", (2, 3, 4, 5), strict=True))
    terms = [data.draw(st.permutations("abcd"))[: data.draw(st.integers(1, 3))] for _ in range(2)]
    every = sorted({*terms[0], *terms[1]})
    result = data.draw(st.permutations(every))[: data.draw(st.integers(0, len(every)))]
    equation = f"{''.join(terms[0])},{''.join(terms[1])}->{''.join(result)}"
    check_node(
        "Einsum",
        [normal(*(sizes[x] for x in term), seed=i) for i, term in enumerate(terms)],
        {"equation": equation},
        torch=lambda *x: torch.einsum(equation, *x),
    )


def test_a_diagonal_is_refused() -> None:
    with pytest.raises(UserError, match="expected no letter twice in one operand"):
        Vjp(node_model("Einsum", [normal(4, 4)], {"equation": "ii->i"}))
