"""The interpreter of partitioned code, and the truth test itself: wrong rules must fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sharding import harness
from sharding.harness import Case, check, normal
from sharding.spmd import run_spmd

from tensoropt.compiler.sharding.proof.parts import combine, cut
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.dialects.context import context
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

MESH = Mesh((2, 2))


def run(body: str, argument: str, result: str, inputs: list[Any]) -> list[Any]:
    """Return the first output of every rank of a module with `body` in its main function."""
    text = f"""
    module attributes {{topt.opset = {{ai.onnx = 20 : i64}}}} {{
      shard.grid @mesh(shape = 2x2)
      func.func @main(%x: {argument}) -> {result} {{
        {body}
        return %y : {result}
      }}
    }}"""
    with context():
        outputs = run_spmd(ir.Module.parse(text), [[x] for x in inputs])
    return [own[0] for own in outputs]


def ranks(*shape: int) -> list[Any]:
    """Return an input per rank, all different."""
    return [normal(*shape, seed=rank) for rank in range(4)]


def same(got: list[Any], expected: list[Any]) -> None:
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_all_reduce_over_the_minor_axis() -> None:
    x = ranks(2, 4)
    body = "%y = shard.all_reduce %x on @mesh grid_axes = [1] : tensor<2x4xf32> -> tensor<2x4xf32>"
    got = run(body, "tensor<2x4xf32>", "tensor<2x4xf32>", x)
    same(got, [x[0] + x[1]] * 2 + [x[2] + x[3]] * 2)


def test_all_reduce_by_maximum_over_the_major_axis() -> None:
    x = ranks(2, 4)
    body = (
        "%y = shard.all_reduce %x on @mesh grid_axes = [0] reduction = max"
        " : tensor<2x4xf32> -> tensor<2x4xf32>"
    )
    got = run(body, "tensor<2x4xf32>", "tensor<2x4xf32>", x)
    same(got, [np.maximum(x[0], x[2]), np.maximum(x[1], x[3])] * 2)


def test_all_gather_over_both_axes_is_row_major() -> None:
    x = ranks(2, 4)
    body = (
        "%y = shard.all_gather %x on @mesh grid_axes = [0, 1] gather_axis = 1"
        " : tensor<2x4xf32> -> tensor<2x16xf32>"
    )
    got = run(body, "tensor<2x4xf32>", "tensor<2x16xf32>", x)
    same(got, [np.concatenate(x, axis=1)] * 4)


def test_reduce_scatter() -> None:
    x = ranks(2, 4)
    body = (
        "%y = shard.reduce_scatter %x on @mesh grid_axes = [0] scatter_dim = 1"
        " : tensor<2x4xf32> -> tensor<2x2xf32>"
    )
    got = run(body, "tensor<2x4xf32>", "tensor<2x2xf32>", x)
    even, odd = x[0] + x[2], x[1] + x[3]
    same(got, [even[:, :2], odd[:, :2], even[:, 2:], odd[:, 2:]])


def test_all_to_all_moves_a_split_from_one_dimension_to_another() -> None:
    whole = normal(4, 4)
    rows, columns = (Layout.parse(["R", f"S({dim})"]) for dim in (0, 1))
    rng = np.random.default_rng(0)
    body = (
        "%y = shard.all_to_all %x on @mesh grid_axes = [1] split_axis = 1 concat_axis = 0"
        " : tensor<2x4xf32> -> tensor<4x2xf32>"
    )
    got = run(body, "tensor<2x4xf32>", "tensor<4x2xf32>", cut(whole, rows, MESH, rng))
    same(got, cut(whole, columns, MESH, rng))


def test_all_slice_keeps_the_part_of_each_rank() -> None:
    whole = normal(4, 4)
    body = (
        "%y = shard.all_slice %x on @mesh grid_axes = [0, 1] slice_axis = 0"
        " : tensor<4x4xf32> -> tensor<1x4xf32>"
    )
    got = run(body, "tensor<4x4xf32>", "tensor<1x4xf32>", [whole] * 4)
    same(got, list(whole[:, None]))


def test_axis_constant_and_onnx_operations() -> None:
    x = ranks(2)
    body = """
        %c = "topt.axis_constant"() {values = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>,
          axes = array<i64: 1>} : () -> tensor<2xf32>
        %k = "onnx.Constant"() {value = dense<10.0> : tensor<f32>} : () -> tensor<f32>
        %s = "onnx.Mul"(%x, %k) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
        %y = "onnx.Add"(%s, %c) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>"""
    got = run(body, "tensor<2xf32>", "tensor<2xf32>", x)
    held = [np.array(pair) for pair in ([1, 2], [3, 4])] * 2
    same(got, [10 * own + c for own, c in zip(x, held, strict=True)])


def test_a_value_that_is_not_of_its_type_fails() -> None:
    body = '%y = "onnx.Relu"(%x) : (tensor<2xf32>) -> tensor<3xf32>'
    with pytest.raises(AssertionError, match=r"expected tensor<3xf32>, got: \(2,\)"):
        run(body, "tensor<2xf32>", "tensor<3xf32>", ranks(2))
    body = '%y = "onnx.Relu"(%x) : (tensor<2xf32>) -> tensor<2xf64>'
    with pytest.raises(AssertionError, match="got: float32"):
        run(body, "tensor<2xf32>", "tensor<2xf64>", ranks(2))


@pytest.mark.parametrize(
    "texts",
    [["R", "R"], ["S(0)", "S(1)"], ["S(1)", "S(1)"], ["P(sum)", "S(0)"], ["P(max)", "P(max)"],
     ["R", "P(min)"]],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_parts_combine_to_what_was_cut(texts: list[str], dtype: type) -> None:
    whole: Any = (10 * normal(4, 8)).astype(dtype)
    layout = Layout.parse(texts)
    parts = cut(whole, layout, MESH, np.random.default_rng(0))
    assert all(part.shape == layout.local_shape((4, 8), MESH) for part in parts)
    np.testing.assert_allclose(combine(parts, layout, MESH, (4, 8)), whole, atol=1e-5)


def test_partial_parts_differ_from_the_whole() -> None:
    whole = normal(4, 8)
    for kind in ("sum", "max", "min"):
        layout = Layout.parse([f"P({kind})", "R"])
        for part in cut(whole, layout, MESH, np.random.default_rng(0)):
            assert not np.allclose(part, whole)


def test_replicas_that_differ_fail() -> None:
    parts = [normal(2), normal(2), normal(2), normal(2) + 1]
    with pytest.raises(AssertionError, match="ranks 0 and 3 differ"):
        combine(parts, Layout.parse(["R", "R"]), MESH, (2,))


@pytest.mark.parametrize(
    ("case", "broken"),
    [
        (Case("ReduceMean", [normal(4, 8)], {"axes": [1]}, 13), {"localize": None}),
        (Case("Softmax", [normal(4, 8)]), {"localize": None}),
        (Case("Gemm", [normal(4, 6), normal(6, 8), normal(8)]), {"additive": frozenset()}),
        (Case("Transpose", [normal(4, 4)]), {"operands": ((0, 1),), "results": ((0, 1),)}),
        (Case("Conv", [normal(1, 4, 5), normal(4, 1, 3)], {"group": 4}), {"localize": None}),
    ],
    ids=["mean", "softmax", "bias", "transpose", "groups"],
)
def test_wrong_rules_fail(
    case: Case, broken: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    check(case, (2,))
    monkeypatch.setattr(harness, "rule_for", lambda info: replace(rule_for(info), **broken))
    with pytest.raises(AssertionError, match=f"{case.op_type} by "):
        check(case, (2,))
