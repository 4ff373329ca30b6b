"""Gradients of gathering and scattering: repeated and negative indices, batches, narrow types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training.harness import Vjp, check_node, ints, node_model, normal, spaced

from tensoropt.compiler.support.errors import UserError


@pytest.mark.parametrize("literals", [set(), {1}])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [[[1, 3, 1], [0, -1, 1]], [2, 2], -1, [0], [[3]]])
def test_gather(indices: Any, axis: int, literals: set[int]) -> None:
    held = np.array(indices, np.int64)

    def function(x: Any, at: Any) -> Any:
        x = x.movedim(axis, 0)[at]
        return x.reshape(-1, *x.shape[at.ndim :]).movedim(0, axis).unflatten(
            axis % 3, at.shape) if at.ndim else x  # fmt: skip

    check_node("Gather", [normal(4, 5, 6), held], {"axis": axis}, literals=literals, torch=function)


def test_rows_of_an_embedding_are_added_up_in_float32() -> None:
    table, ids = normal(5, 4, dtype=np.float16), np.zeros((3000,), np.int32)
    vjp = Vjp(node_model("Gather", [table, ids]))
    ones = np.ones((3000, 4), np.float16)
    gradient = vjp.run({"x0": table, "x1": ids}, {"y0": ones}).gradients["x0"]
    assert gradient is not None
    np.testing.assert_array_equal(gradient[0], np.full(4, 3000, np.float16))


@pytest.mark.parametrize("axis", [0, -1])
def test_gather_elements(axis: int) -> None:
    at = np.random.default_rng(0).integers(-3, 3, (2, 3))
    check_node("GatherElements", [normal(3, 3), at], {"axis": axis}, torch=lambda x, i: (
        (x[:, :3] if axis == 0 else x[:2]).gather(axis, i % 3)))  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "indices", "batch"),
    [
        ((3, 4), [[0, 1], [2, -1], [0, 1]], 0),
        ((3, 4), [[1], [1]], 0),
        ((2, 3, 4), [[[0], [0]], [[-1], [2]]], 1),
        ((2, 3, 4), [[1, 1], [2, 0]], 1),
        ((2, 2, 3), [[[1], [1]], [[0], [2]]], 2),
    ],
)
def test_gather_nd(shape: Any, indices: Any, batch: int) -> None:
    check_node("GatherND", [normal(*shape), np.array(indices, np.int64)], {"batch_dims": batch})


REDUCTIONS = ["none", "add"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, -1])
def test_scatter_elements(axis: int, reduction: str) -> None:
    at = np.array([[0, 2, 1], [-2, 0, 2]]) if axis else np.array([[0, 2, 1], [1, 0, -1]])
    if reduction == "add":
        at[1] = at[0]

    def function(x: Any, i: Any, u: Any) -> Any:
        held = i % 3
        return x.scatter_add(axis, held, u) if reduction == "add" else x.scatter(axis, held, u)

    check_node("ScatterElements", [normal(3, 3), at, normal(2, 3, seed=1)],
               {"axis": axis, "reduction": reduction}, torch=function)  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_nd(reduction: str) -> None:
    at = np.array([[1], [-1]] if reduction == "none" else [[1], [1]])

    def function(x: Any, i: Any, u: Any) -> Any:
        return x.index_put((i[:, 0] % 4,), u, accumulate=reduction == "add")

    check_node("ScatterND", [normal(4, 3), at, normal(2, 3, seed=1)], {"reduction": reduction},
               torch=function)  # fmt: skip


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_top_k(axis: int, largest: int) -> None:
    def function(x: Any, k: Any) -> Any:
        return tuple(x.topk(int(k), axis, bool(largest)))

    attributes = {"axis": axis, "largest": largest}
    check_node("TopK", [spaced(4, 5), ints(3)], attributes, outputs=2, literals={1},
               torch=function)  # fmt: skip


@pytest.mark.parametrize("axis", [0, -1])
def test_values_of_one_hot(axis: int) -> None:
    operands = [np.array([[1, 0], [2, 4]]), np.array(3, np.int64), normal(2, dtype=np.float32)]
    check_node("OneHot", operands, {"axis": axis}, literals={1})


def test_other_reductions_are_refused() -> None:
    operands = [normal(3, 2), ints(1, 0).reshape(2, 1), normal(2, 2)]
    model = node_model("ScatterND", operands, {"reduction": "mul"})
    with pytest.raises(UserError, match=r"node 'ScatterND' .* 'none' or 'add', got: 'mul'"):
        Vjp(model)
