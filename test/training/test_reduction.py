"""Gradients of reductions: axes, dimensions kept and dropped, ties and zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from training.harness import Array, Vjp, check_node, ints, node_model, normal, positive, spaced

from tensoropt.compiler.support.errors import UserError


def _product(x: Any, dims: list[int], keep: bool) -> Any:
    for dim in sorted((d % x.ndim for d in dims), reverse=True):
        x = x.prod(dim, keepdim=keep)
    return x


REDUCTIONS = {
    "ReduceSum": lambda x, d, k: x.sum(d, k),
    "ReduceMean": lambda x, d, k: x.mean(d, k),
    "ReduceMax": lambda x, d, k: x.amax(d, k),
    "ReduceMin": lambda x, d, k: x.amin(d, k),
    "ReduceProd": _product,
    "ReduceL1": lambda x, d, k: x.abs().sum(d, k),
    "ReduceL2": lambda x, d, k: x.norm(2, d, k),
    "ReduceSumSquare": lambda x, d, k: (x * x).sum(d, k),
    "ReduceLogSum": lambda x, d, k: x.sum(d, k).log(),
    "ReduceLogSumExp": lambda x, d, k: x.logsumexp(d, k),
}


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [(1,), (-1, 0), (2, 1, 0), None])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, axes: tuple[int, ...] | None, keep: int) -> None:
    x = positive(2, 3, 4) if name == "ReduceLogSum" else spaced(2, 3, 4)
    operands: list[Array | None] = [x] if axes is None else [x, ints(*axes)]
    dims = list(axes or (0, 1, 2))
    check_node(name, operands, {"keepdims": keep}, literals={1} if axes else (),
               torch=lambda x, *_: REDUCTIONS[name](x, dims, bool(keep)))  # fmt: skip


@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd"])
def test_nothing_is_reduced(name: str) -> None:
    check_node(name, [spaced(2, 3), np.zeros(0, np.int64)], {"noop_with_empty_axes": 1},
               literals={1}, torch=lambda x, _: x)  # fmt: skip


def test_equal_elements_share() -> None:
    x = np.array([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    check_node("ReduceMax", [x, ints(1)], literals={1}, differences=False,
               torch=lambda x, _: x.amax(1, True))  # fmt: skip


@pytest.mark.parametrize(
    "row", [[2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0], [2.0, 4.0, 5.0]]
)
def test_products_with_zeros(row: list[float]) -> None:
    check_node("ReduceProd", [np.array([row]), ints(1)], literals={1},
               torch=lambda x, _: x.prod(1, True))  # fmt: skip


def test_the_norm_of_zeros() -> None:
    check_node("ReduceL2", [np.zeros((1, 3)), ints(1)], literals={1}, differences=False,
               torch=lambda x, _: x.norm(2, 1, True))  # fmt: skip


def test_axes_that_are_computed_are_refused() -> None:
    model = node_model("ReduceMax", [normal(2, 3), ints(1)])
    result = helper.make_tensor_value_info("y0", TensorProto.DOUBLE, [2, 1])
    model.graph.output[0].CopyFrom(result)
    with pytest.raises(UserError, match=r"node 'ReduceMax' .* expected operand 1, the axes"):
        Vjp(model)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_cumulative_sums(axis: int, reverse: int, exclusive: int) -> None:
    def function(x: Any, _: Any) -> Any:
        x = x.flip(axis) if reverse else x
        y = x.cumsum(axis)
        y = y - x if exclusive else y
        return y.flip(axis) if reverse else y

    attributes = {"reverse": reverse, "exclusive": exclusive}
    axes = np.array(axis, np.int64)
    check_node("CumSum", [normal(3, 4), axes], attributes, literals={1}, torch=function)
