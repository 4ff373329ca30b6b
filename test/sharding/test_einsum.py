"""Einsum: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.compiler.sharding.ops import einsum
from tensoropt.compiler.sharding.ops.einsum import parse_equation
from tensoropt.compiler.sharding.ops.einsum_products import as_matmul, as_matrices
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2)]
SIZES = dict(zip("abcd", (2, 4, 6, 8), strict=True))


def case(equation: str, *shapes: tuple[int, ...]) -> Case:
    operands = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    return Case("Einsum", operands, {"equation": equation})


def test_a_product_is_a_matrix_product() -> None:
    assert offered(case("ij, jk -> ik", (4, 6), (6, 8))) == {
        "R R -> R",
        "S(0) R -> S(0)",
        "R S(1) -> S(1)",
        "S(1) S(0) -> P(sum)",
        "P(sum) R -> P(sum)",
        "R P(sum) -> P(sum)",
    }


def test_attention_scores_split_batch_heads_and_positions() -> None:
    found = offered(case("bhqd,bhkd->bhqk", (2, 4, 6, 8), (2, 4, 2, 8)))
    assert {"S(0) S(0) -> S(0)", "S(1) S(1) -> S(1)", "S(2) R -> S(2)"} <= found
    assert {"R S(2) -> S(3)", "S(3) S(3) -> P(sum)"} <= found


def test_dots_stand_for_the_same_dimensions_everywhere() -> None:
    found = offered(case("...ij,...jk->...ik", (2, 4, 4, 6), (1, 4, 6, 8)))
    assert {"S(0) R -> S(0)", "S(1) S(1) -> S(1)", "S(2) R -> S(2)"} <= found


def test_a_stretched_dimension_stays_whole() -> None:
    found = offered(case("...i,...i->...", (4, 6), (1, 6)))
    assert "S(0) R -> S(0)" in found


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("btk,btn->kn", [(2, 4, 6), (2, 4, 8)]),
        ("btn,kn->btk", [(2, 4, 8), (6, 8)]),
        ("btk,ghk->btgh", [(2, 4, 6), (4, 2, 6)]),
        ("bgh,ghk->bk", [(2, 4, 6), (4, 6, 8)]),
        ("kn,btk->btn", [(6, 8), (2, 4, 6)]),
        ("bxk,ghk->bgh", [(4, 1, 6), (4, 2, 6)]),
        ("bhqd,bhkd->bhqk", [(2, 4, 6, 8), (2, 4, 2, 8)]),
        ("bkgst,bkgsd->bktd", [(2, 4, 2, 4, 6), (2, 4, 2, 4, 8)]),
        ("bkgst,bkgsd->bkdt", [(2, 4, 2, 4, 6), (2, 4, 2, 4, 8)]),
    ],
)
@pytest.mark.parametrize("mesh", MESHES)
def test_matrices_are_multiplied_as_they_lie(
    equation: str, shapes: list[tuple[int, ...]], mesh: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    made = []
    monkeypatch.setattr(einsum, "as_matrices", lambda *a: made.append(as_matrices(*a)) or made[-1])
    check(case(equation, *shapes), mesh, opens=False)
    assert made
    assert all(value is not None for value in made)


@pytest.mark.parametrize("equation", ["bhqd,bhkd->bhqk", "bqhk,bhkd->bdqh", "ij,kj->ki", "i,j->ji"])
@pytest.mark.parametrize("mesh", MESHES)
def test_types_without_einsum_are_multiplied_by_matmul(
    equation: str, mesh: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(einsum, "as_matrices", lambda *_: None)
    monkeypatch.setattr(einsum, "_GEMM_ALONE", {"float32"})
    monkeypatch.setattr(einsum, "as_matmul", lambda *a: made.append(as_matmul(*a)) or made[-1])
    sizes = dict(zip("bhqkdij", (2, 4, 4, 8, 2, 4, 6), strict=True))
    shapes = [tuple(sizes[x] for x in term) for term in equation.partition("->")[0].split(",")]
    check(case(equation, *shapes), mesh, opens=False)
    assert made
    assert all(value is not None for value in made)


@pytest.mark.parametrize("mesh", MESHES)
def test_a_narrow_product_is_cast_to_a_wide_sum(mesh: tuple[int, ...]) -> None:
    whole = (np.round(2 * normal(*shape, seed=i)) for i, shape in enumerate([(4, 6), (4, 8)]))
    x, y = (values.astype(np.float16) for values in whole)  # without rounding
    expected = x.astype(np.float32).T @ y.astype(np.float32)
    own = Case("Einsum", [x, y], {"equation": "tm,tn->mn"}, expected=[expected])
    report = check(own, mesh, opens=False, rtol=1e-2, atol=1e-2)
    alone = strategies(report.rule, Mesh((1,)))[0]
    assert report.rule.inner_bytes(alone, Mesh((1,))) == 2 * expected.size
    (step,) = report.rule.inner_steps(alone, Mesh((1,)))
    assert step == ("copy", (), 3 * expected.size)


def test_a_diagonal_declines() -> None:
    assert offered(case("ii->i", (4, 4))) == {"R -> R"}


@pytest.mark.parametrize(
    ("equation", "ranks", "operands", "result"),
    [
        ("ij,jk", (2, 2), ["i j", "j k"], "i k"),
        ("ba", (2,), ["b a"], "a b"),
        ("i...->...i", (3,), ["i ...1 ...0"], "...1 ...0 i"),
        ("...a,a", (3, 1), ["...1 ...0 a", "a"], "...1 ...0"),
        ("ij->", (2,), ["i j"], ""),
    ],
)
def test_equations(equation: str, ranks: tuple[int, ...], operands: list[str], result: str) -> None:
    found = parse_equation(equation, ranks)
    assert found == ([labels.split() for labels in operands], result.split())


@examples(30)
@given(
    mesh=st.sampled_from(MESHES),
    terms=st.lists(st.permutations("abcd").map(lambda p: p[:3]), min_size=1, max_size=3),
    kept=st.permutations("abcd"),
    count=st.integers(0, 3),
    explicit=st.booleans(),
)
def test_any_equation(
    mesh: tuple[int, ...], terms: list[list[str]], kept: list[str], count: int, explicit: bool
) -> None:
    used = {letter for term in terms for letter in term}
    result = [letter for letter in kept if letter in used][:count]
    equation = ",".join("".join(term) for term in terms)
    equation += "->" + "".join(result) if explicit else ""
    shapes = [tuple(SIZES[letter] for letter in term) for term in terms]
    check(case(equation, *shapes), mesh)


def test_work_is_two_per_multiply_add() -> None:
    assert check(case("ij,jk->ik", (4, 6), (6, 8)), (2,)).flops == 2 * 4 * 6 * 8
    assert check(case("ij->ji", (4, 6)), (2,)).flops == 24
