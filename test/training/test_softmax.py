"""Gradients of the softmax family."""

from __future__ import annotations

import pytest
from training.harness import check_node, node_model, normal
from training.vjp import Vjp

from tensoropt.compiler.support.errors import UserError


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(axis: int) -> None:
    x = normal(3, 4, 5)
    check_node("Softmax", [x], {"axis": axis}, torch=lambda x: x.softmax(axis))


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_log_softmax(axis: int) -> None:
    x = normal(3, 4, 5)
    check_node("LogSoftmax", [x], {"axis": axis}, torch=lambda x: x.log_softmax(axis))


def test_large_scores_do_not_overflow() -> None:
    check_node("LogSoftmax", [100 * normal(3, 4)], torch=lambda x: x.log_softmax(-1))


def test_hardmax_has_none() -> None:
    with pytest.raises(UserError, match=r"\(Hardmax\) is between a parameter and the loss"):
        Vjp(node_model("Hardmax", [normal(3, 4)]))
