"""Factors over the roofline by sizes."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.calibrate.tables.grid import factors_of, fit_grid
from tensoropt.compiler.cost.device import device_of
from tensoropt.compiler.cost.kernel import FAMILIES, Kernel
from tensoropt.compiler.cost.products import product_of
from tensoropt.compiler.cost.size_table import SizeTable
from tensoropt.compiler.layout.rule import Factor, Rule
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh

KNOTS = ((1.0, 16.0, 256.0), (32.0, 1024.0), (8.0,))
TABLE = SizeTable(KNOTS, (4.0, 2.0, 1.0, 3.0, 8.0, 0.5))
SIZE = st.floats(0.5, 1e6)
H200 = (Path(__file__).parents[2] / "compiler/cost/devices/h200.toml").read_text(encoding="utf-8")


def test_knots_have_their_own_factors() -> None:
    assert TABLE.factor((16, 32, 8)) == pytest.approx(1.0)
    assert TABLE.factor((256, 1024, 8)) == pytest.approx(0.5)


def test_between_knots_the_logarithm_is_linear() -> None:
    assert TABLE.factor((4, 32, 8)) == pytest.approx(math.sqrt(4.0 * 1.0))


def test_beyond_the_knots_the_factor_is_the_last() -> None:
    assert TABLE.factor((1e9, 1e9, 1e9)) == TABLE.factor((256, 1024, 8))
    assert TABLE.factor((0.1, 1, 1)) == TABLE.factor((1, 32, 8))


@given(st.tuples(SIZE, SIZE, SIZE))
def test_many_rows_have_the_factors_of_single_ones(sizes: tuple[float, float, float]) -> None:
    assert factors_of(TABLE, np.array([sizes]))[0] == pytest.approx(TABLE.factor(sizes))


def test_a_fit_recovers_a_table() -> None:
    axes = [np.geomspace(own[0], own[-1] * 1.01, 9) for own in KNOTS]
    sizes = np.stack([axis.ravel() for axis in np.meshgrid(*axes)], axis=1)
    found = fit_grid(sizes, factors_of(TABLE, sizes), KNOTS)
    assert found.factors == pytest.approx(TABLE.factors, rel=0.05)


def test_an_included_table_is_read() -> None:
    table = device_of(H200, "h200").kernels["products", "bfloat16"]
    assert len(table.factors) == math.prod(map(len, table.knots))
    assert 1.0 < table.factor((4096, 4096, 4096)) < 2.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "rows = [1, 2,",
            "rows = [2, 2,",
            "'kernel.products.bfloat16.rows': expected ascending sizes",
        ),
        (
            "rows = [1, ",
            "rows = [0, ",
            "'kernel.products.bfloat16.rows': expected a list of positive",
        ),
        (
            "rows = [1, ",
            "rows = [",
            "'kernel.products.bfloat16.factors': expected a factor per point",
        ),
        ("[kernel.products.bfloat16]", "[kernel.products.bfloat]", "unknown element type"),
        (
            "rows =",
            "row =",
            "'kernel.products.bfloat16.rows': expected a list of positive numbers, got: ",
        ),
    ],
)
def test_wrong_tables(old: str, new: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        device_of(H200.replace(old, new, 1), "h200.toml")
    assert "\n" not in str(caught.value)


MESH = Mesh((2, 4))
BATCHED = Rule(
    (Factor(8), Factor(64), Factor(96, reduction="sum"), Factor(32)),
    ((0, 1, 2), (0, 2, 3)),
    ((0, 1, 3),),
    flops_per_point=2.0,
)
CONVOLUTION = Rule(
    (Factor(8), Factor(64), Factor(96, reduction="sum"), Factor(30), Factor(9, reduction="sum")),
    ((0, 2, 3), (1, 2, 4)),
    ((0, 1, 3),),
    flops_per_point=2.0,
)


@pytest.mark.parametrize(
    ("rule", "roles", "product"),
    [
        (BATCHED, (None, None), (8 * 64, 32, 96)),
        (BATCHED, (0, 3), (4 * 64, 8, 96)),
        (BATCHED, (2, 1), (8 * 16, 32, 48)),
        (CONVOLUTION, (None, 1), (8 * 30, 16, 96 * 9)),
    ],
)
def test_the_product_of_one_rank(
    rule: Rule, roles: tuple[int | None, ...], product: tuple[float, ...]
) -> None:
    strategy = next(own for own in strategies(rule, MESH) if own.roles == roles)
    assert product_of(rule, strategy, MESH) == Kernel("products", product)
    assert len(FAMILIES["products"]) == len(product)


def test_a_sum_is_no_product() -> None:
    rule = Rule((Factor(8), Factor(64)), ((0, 1), (0, 1)), ((0, 1),))
    assert product_of(rule, strategies(rule, MESH)[0], MESH) is None
