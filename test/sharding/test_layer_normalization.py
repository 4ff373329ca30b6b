"""Layer normalisations: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2)]
TEXT = normal(2, 4, 8)


def test_layer_normalization_splits_every_dimension() -> None:
    scale, bias = normal(8), normal(8, seed=1)
    assert offered(Case("LayerNormalization", [TEXT, scale, bias])) == {
        "R R R -> R",
        "S(0) R R -> S(0)",
        "S(1) R R -> S(1)",
        "S(2) S(0) S(0) -> S(2)",
    }
    assert offered(Case("LayerNormalization", [TEXT, scale])) == {
        "R R -> R",
        "S(0) R -> S(0)",
        "S(1) R -> S(1)",
        "S(2) S(0) -> S(2)",
    }


def test_layer_normalization_statistics_are_whole_over_a_split_axis() -> None:
    case = Case("LayerNormalization", [TEXT, normal(8)], results=(True, True, True))
    assert {"S(1) R -> S(1) S(1) S(1)", "S(2) S(0) -> S(2) R R"} <= offered(case)
    without_mean = Case("LayerNormalization", [TEXT, normal(8)], results=(True, False, True))
    assert "S(2) S(0) -> S(2) R R" in offered(without_mean)


@examples(25)
@given(
    mesh=st.sampled_from(MESHES),
    op_type=st.sampled_from(["LayerNormalization", "RMSNormalization"]),
    shape=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3),
    axis=st.integers(-3, 2),
    bias=st.booleans(),
    statistics=st.tuples(st.booleans(), st.booleans()),
)
def test_any_axis(
    mesh: tuple[int, ...],
    op_type: str,
    shape: list[int],
    axis: int,
    bias: bool,
    statistics: tuple[bool, bool],
) -> None:
    axis = max(-len(shape), min(axis, len(shape) - 1))
    parameters = shape[axis:]
    operands = [normal(*shape), normal(*parameters)]
    results: tuple[bool, ...] = (True,)
    if op_type == "LayerNormalization":
        operands += [normal(*parameters, seed=1)] if bias else []
        results = (True, *statistics) if any(statistics) else results
    check(Case(op_type, operands, {"axis": axis, "epsilon": 1e-2}, 23, results=results), mesh)


@pytest.mark.parametrize("mesh", MESHES)
def test_a_stretched_scale_stays_whole(mesh: tuple[int, ...]) -> None:
    operands = [TEXT, normal(4, 8), normal(1, 8)]
    case = Case("LayerNormalization", operands, {"axis": 1})
    assert any(" R" in text for text in check(case, mesh).offered)
    assert "S(1) S(0) R -> S(1)" in offered(case)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types(dtype: type) -> None:
    operands = [TEXT.astype(dtype), normal(8, dtype=dtype), normal(8, dtype=dtype)]
    loose = 1e-2 if dtype == np.float16 else 1e-4
    report = check(Case("LayerNormalization", operands), (2,), rtol=loose, atol=loose)
    assert "S(2) S(0) S(0) -> S(2)" in report.offered


def test_a_symbolic_normalised_dimension_stays_whole() -> None:
    hidden = {"symbolic": frozenset({(0, 1)}), "symbolic_results": frozenset({(0, 1)})}
    case = Case("LayerNormalization", [TEXT, normal(4, 8)], {"axis": 1}, **hidden)  # type: ignore[arg-type]
    assert offered(case) == {"R R -> R", "S(0) R -> S(0)"}


def test_all_reduces_inside_are_priced() -> None:
    mesh = Mesh((2,))
    for op_type, count in (("LayerNormalization", 2), ("RMSNormalization", 1)):
        report = check(Case(op_type, [TEXT, normal(8)], version=23), (2,))
        priced = {s.operands[0].texts[0]: report.rule.inner_steps(s, mesh) for s in report.tried}
        assert priced["S(2)"] == [("all_reduce", (0,), 2 * 4 * 4)] * count
        assert priced["S(1)"] == priced["R"] == []


def test_work_of_layer_normalization() -> None:
    assert check(Case("LayerNormalization", [TEXT, normal(8)]), (2,)).flops == 8 * TEXT.size


def test_simplified_normalization_is_that_of_the_runtime() -> None:
    case = Case("SimplifiedLayerNormalization", [TEXT, normal(8)], results=(True, True))
    assert offered(case) == {
        "R R -> R R",
        "S(0) R -> S(0) S(0)",
        "S(1) R -> S(1) S(1)",
        "S(2) S(0) -> S(2) R",
    }


def skip(name: str, *extra: bool, added: tuple[int, ...] = (2, 4, 8), total: bool = False) -> Case:
    """Return the normalised sum of two tensors; ``extra``: which parameters follow the scale."""
    operands = [TEXT, normal(*added, seed=1), normal(8)]
    operands += [normal(8, seed=2 + i) if there else None for i, there in enumerate(extra)]
    results = (True, False, False, True) if total else (True,)
    return Case(name, operands, {"epsilon": 1e-3}, 1, "com.microsoft", results=results)


def test_normalised_sums_split_every_dimension() -> None:
    assert offered(skip("SkipLayerNormalization", True, True, total=True)) == {
        "R R R R R -> R R R R",
        "S(0) S(0) R R R -> S(0) R R S(0)",
        "S(1) S(1) R R R -> S(1) R R S(1)",
        "S(2) S(2) S(0) S(0) S(0) -> S(2) R R S(2)",
    }
    assert "S(2) S(2) S(0) -> S(2)" in offered(skip("SkipSimplifiedLayerNormalization"))


def test_training_statistics_are_not_split() -> None:
    case = skip("SkipLayerNormalization", True)
    info = check(case, (2,)).info
    trained = replace(info, results=info.results * 2)
    assert len(strategies(rule_for(trained), Mesh((2,)))) == 1


@examples(40)
@given(
    mesh=st.sampled_from(MESHES),
    simplified=st.booleans(),
    extra=st.tuples(st.booleans(), st.booleans()),
    added=st.sampled_from([(2, 4, 8), (1, 4, 8), (4, 8)]),
    total=st.booleans(),
)
def test_any_normalised_sum(
    mesh: tuple[int, ...],
    simplified: bool,
    extra: tuple[bool, bool],
    added: tuple[int, ...],
    total: bool,
) -> None:
    name = "SkipSimplifiedLayerNormalization" if simplified else "SkipLayerNormalization"
    check(skip(name, *extra[: 1 if simplified else 2], added=added, total=total), mesh)


@pytest.mark.parametrize("name", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_epsilon_of_a_sum_is_that_of_the_runtime(name: str) -> None:
    """Where the attribute is left out, which small numbers show."""
    case = replace(skip(name), operands=[TEXT / 1000, TEXT[::-1] / 1000, normal(8)], attributes={})
    assert "S(2) S(2) S(0) -> S(2)" in check(case, (2,)).offered


def test_sums_of_short_numbers_are_made_of_long_ones() -> None:
    case = skip("SkipLayerNormalization", True, True, total=True)
    halves = [None if x is None else x.astype(np.float16) for x in case.operands]
    report = check(replace(case, operands=halves), (2,), rtol=1e-2, atol=1e-2)
    assert "S(2) S(2) S(0) S(0) S(0) -> S(2) R R S(2)" in report.offered


def embedding(
    *, segments: bool = True, mask: bool = False, positions: int = 0, lengths: bool = False,
    total: bool = False,
) -> Case:  # fmt: skip
    """Return embeddings of 2 sequences of 4 words; ``positions``: of how many sequences."""
    rng, hidden = np.random.default_rng(0), 8
    operands = [
        rng.integers(0, 10, (2, 4), np.int32),
        rng.integers(0, 2, (2, 4), np.int32) if segments else None,
        normal(10, hidden),
        normal(6, hidden, seed=1),
        normal(2, hidden, seed=2) if segments else None,
        normal(hidden),
        normal(hidden, seed=1),
        np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32) if mask else None,
        rng.integers(0, 6, (positions, 4), np.int32) if positions else None,
    ]
    results = (True, lengths, total)
    return Case("EmbedLayerNormalization", operands, {}, 1, "com.microsoft", results=results)


def test_embeddings_split_rows_that_have_positions() -> None:
    assert offered(embedding(positions=2, total=True)) == {
        "R R R R R R R R R -> R R R",
        "S(0) S(0) R R R R R R S(0) -> S(0) R S(0)",
        "S(1) S(1) R R R R R R S(1) -> S(1) R S(1)",
    }
    assert offered(embedding(mask=True, lengths=True)) == {
        "R R R R R R R R R -> R R R",
        "S(0) S(0) R R R R R S(0) R -> S(0) S(0) R",
    }


@examples(25)
@given(
    mesh=st.sampled_from([(2,), (2, 2)]),
    segments=st.booleans(),
    mask=st.booleans(),
    positions=st.sampled_from([0, 1, 2]),
    lengths=st.booleans(),
    total=st.booleans(),
)
def test_any_embedding(
    mesh: tuple[int, ...], segments: bool, mask: bool, positions: int, lengths: bool, total: bool
) -> None:
    check(
        embedding(segments=segments, mask=mask, positions=positions, lengths=lengths, total=total),
        mesh,
    )


@pytest.mark.parametrize("mesh", [(2,), (3,), (2, 2)])
def test_quantized_embeddings_split_their_batch(mesh: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    tables = [rng.integers(0, 255, shape).astype(np.uint8) for shape in ((7, 8), (9, 8), (2, 8))]
    affine = [rng.integers(0, 255, 8).astype(np.uint8) for _ in range(2)]
    ids, segments = (rng.integers(0, n, (6, 5)).astype(np.int32) for n in (7, 2))
    scales, points = [np.array(0.1, np.float32)] * 5, [np.array(3, np.uint8)] * 5
    operands = [ids, segments, *tables, *affine, np.ones((6, 5), np.int32), *scales, *points]
    case = Case("QEmbedLayerNormalization", operands, {}, 1, "com.microsoft", results=(True, True))
    split = " ".join(["S(0) S(0) R R R R R S(0)", *["R"] * 10, "-> S(0) S(0)"])
    found = check(case, mesh).offered
    assert len(mesh) > 1 or split in found
