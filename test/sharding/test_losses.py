"""Losses: every strategy is right, and the expected ones are offered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st
from sharding.harness import Case, check, normal, offered

from tensoropt.runtime.layout.mesh import Mesh

MESHES = [(2,), (4,), (2, 2)]
NAMES = ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]


def loss(
    name: str, shape: tuple[int, ...] = (4, 6), *, weights: bool = False, second: bool = False,
    **attributes: Any,
) -> Case:  # fmt: skip
    """Return a loss over ``shape``, whose dimension 1 is the classes."""
    targets = np.random.default_rng(0).integers(0, shape[1], (shape[0], *shape[2:]))
    operands = [normal(*shape), targets]
    operands += [normal(shape[1], seed=1) ** 2] if weights else []
    results = (True, True) if second else (True,)
    return Case(name, operands, attributes, 13, results=results)


@pytest.mark.parametrize("name", NAMES)
def test_samples_and_positions_leave_partial_sums(name: str) -> None:
    for how in ("mean", "sum"):
        assert offered(loss(name, (2, 3, 4), reduction=how)) == {
            "R R -> R",
            "S(0) S(0) -> P(sum)",
            "S(1) R -> P(sum)",
            "S(2) S(1) -> P(sum)",
        }
    assert offered(loss(name, (2, 3, 4), reduction="none")) == {
        "R R -> R",
        "S(0) S(0) -> S(0)",
        "S(1) R -> P(sum)",
        "S(2) S(1) -> S(1)",
    }


def test_classes_leave_partial_sums() -> None:
    for how in ("mean", "sum", "none"):
        found = offered(loss(NAMES[1], weights=True, second=True, reduction=how))
        assert "S(1) R S(0) -> P(sum) S(1)" in found
        assert "S(1) R -> P(sum)" in offered(loss(NAMES[0], reduction=how))


def test_samples_and_classes_that_do_not_divide_are_padded() -> None:
    found = offered(loss(NAMES[1], (65, 33), ignore_index=3))
    assert {"S(0) S(0) -> P(sum)", "S(1) R -> P(sum)"} <= found


def test_probabilities_split_as_the_scores() -> None:
    case = loss("SoftmaxCrossEntropyLoss", (2, 3, 4), second=True)
    assert offered(case) == {
        "R R -> R R",
        "S(0) S(0) -> P(sum) S(0)",
        "S(1) R -> P(sum) S(1)",
        "S(2) S(1) -> P(sum) S(2)",
    }


@examples(50)
@given(
    mesh=st.sampled_from(MESHES),
    name=st.sampled_from(NAMES),
    shape=st.sampled_from([(4, 6), (2, 3, 4), (1, 5, 4, 2), (4, 4, 1), (5, 3), (2, 8, 3)]),
    how=st.sampled_from(["mean", "sum", "none"]),
    weights=st.booleans(),
    ignored=st.sampled_from([None, 0, 1, -100]),
    second=st.booleans(),
)
def test_any_loss(
    mesh: tuple[int, ...], name: str, shape: tuple[int, ...], how: str, weights: bool,
    ignored: int | None, second: bool,
) -> None:  # fmt: skip
    attributes = {"reduction": how} | ({} if ignored is None else {"ignore_index": ignored})
    second = second and name.startswith("Softmax")
    check(loss(name, shape, weights=weights, second=second, **attributes), mesh)


def test_only_a_mean_adds_up_weights() -> None:
    mesh = Mesh((2,))
    for how, count in (("mean", 1), ("sum", 0)):
        report = check(loss(NAMES[0], reduction=how), (2,))
        priced = {s.operands[0].texts[0]: report.rule.inner_steps(s, mesh)
                  for s in report.tried}  # fmt: skip
        added = [("all_reduce", (0,), 4)] * count
        assert priced == {"R": [], "S(0)": added, "S(1)": added}
