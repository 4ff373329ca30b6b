"""Normalisations: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.compiler.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2)]
IMAGE = normal(2, 4, 6, 8)
TEXT = normal(2, 4, 8)


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


@settings(max_examples=25, deadline=None)
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
        priced = {
            s.operands[0].texts[0]: report.rule.inner_all_reduces(s, mesh) for s in report.tried
        }
        assert priced["S(2)"] == [((0,), 2 * 4 * 4)] * count
        assert priced["S(1)"] == priced["R"] == []


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
    assert check(Case("LayerNormalization", [TEXT, normal(8)]), (2,)).flops == 8 * TEXT.size
    grouped = Case("GroupNormalization", [IMAGE, *channels(2)], {"num_groups": 2}, version=21)
    assert check(grouped, (2,)).flops == 8 * IMAGE.size
