"""Units: parts with whole heads, where a number of ranks does not divide the heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sharding.harness import Case, check, normal

from tensoropt.compiler.layout.sizes import is_worth_units
from tensoropt.compiler.pipeline import driver
from tensoropt.dialects import onnx as views
from tensoropt.dialects.topt import keys
from tensoropt.runtime.layout.layout import units_text

APART = Case(
    "Reshape",
    [normal(2, 3, 20), np.array([2, 3, 5, 4])],
    literals=frozenset([1]),
    units=((2, (5,)),),
)
JOINED = Case(
    "Reshape",
    [normal(6, 3, 4), np.array([18, 4])],
    literals=frozenset([1]),
    units=((0, (6,)),),
)


@pytest.mark.parametrize("mesh", [(2,), (3,)])
def test_a_reshape_splits_heads_that_do_not_divide(mesh: tuple[int, ...]) -> None:
    assert "S(2 in 5) R -> S(2)" in check(APART, mesh).offered


def test_a_reshape_splits_a_batch_that_does_not_divide() -> None:
    assert "S(0) R -> S(0 in 6)" in check(JOINED, (7,)).offered


def test_without_units_merged_dimensions_have_no_padding() -> None:
    case = Case("Reshape", APART.operands, literals=frozenset([1]))
    assert "S(2) R -> S(2)" not in check(case, (2,)).offered
    assert "S(2) R -> S(2)" in check(case, (5,)).offered


@pytest.mark.parametrize("mesh", [(2,), (2, 3)])
def test_columns_and_rows_of_a_product_have_whole_units(mesh: tuple[int, ...]) -> None:
    columns = Case("MatMul", [normal(4, 6), normal(6, 20)], units=((2, (5,)),))
    rows = Case("MatMul", [normal(4, 20), normal(20, 6)], units=((0, (5,)),))
    first = ",".join(["S(1 in 5)", *["R"] * (len(mesh) - 1)])
    whole = ",".join(["R"] * len(mesh))
    found = check(columns, mesh).offered
    assert f"{whole} {first} -> {first}" in found
    partial = first.replace("S(1 in 5)", "P(sum)")
    row = first.replace("S(1", "S(0")
    assert f"{first} {row} -> {partial}" in check(rows, mesh).offered


def test_axes_share_units() -> None:
    case = Case("Relu", [normal(2, 22)], units=((1, (11,)),))
    assert "S(1 in 11),S(1 in 11) -> S(1 in 11),S(1 in 11)" in check(case, (2, 2)).offered


def test_units_that_divide_are_not_mentioned() -> None:
    case = Case("Relu", [normal(2, 24)], units=((1, (6,)),))
    assert check(case, (3,)).offered == {"R -> R", "S(1) -> S(1)"}


@pytest.mark.parametrize("mesh", [(2,), (3,)])
def test_attention_with_packed_heads_has_any_heads(mesh: tuple[int, ...]) -> None:
    """Five heads of keys, and ten of queries."""
    heads = {"q_num_heads": 10, "kv_num_heads": 5}
    operands = [normal(2, 3, 40), normal(2, 4, 20, seed=1), normal(2, 4, 20, seed=2)]
    case = Case("Attention", operands, heads, 23, units=((1, (5,)),))
    wanted = "S(2 in 5) S(2 in 5) S(2 in 5) -> S(2 in 5)"
    assert wanted in check(case, mesh).offered


@pytest.mark.parametrize(
    ("units", "ranks", "wanted"),
    [
        (5, 2, True),
        (12, 5, True),
        (12, 4, False),  # divides
        (3, 2, False),
        (12, 8, False),
        (25, 4, False),
        (64, 7, True),
        (100, 8, False),
        (8, 6, False),  # more than a quarter
    ],
)
def test_few_units_may_be_padding(units: int, ranks: int, wanted: bool) -> None:
    assert is_worth_units((units,), [ranks]) is wanted
    assert is_worth_units((units,) * 3, [ranks]) is wanted


@pytest.mark.parametrize(
    ("units", "extents", "wanted"),
    [
        ((8, 1, 1), [4], True),
        ((8, 1, 1), [8], True),
        ((8, 1, 1), [3], True),  # padding of queries, and copies
        ((8, 1, 1), [6], False),  # half of the queries more
        ((8, 2, 2), [4], False),  # copies along half of an axis
        ((8, 2, 2), [2, 2], True),
        ((8, 4, 4), [2, 2], False),  # divides
        ((24, 12, 12), [5], False),  # heads of queries and keys would not meet
        ((1, 1, 1), [2], False),
        ((8, 1), [1], False),
    ],
)
def test_blocks_of_few_units_have_copies(
    units: tuple[int, ...], extents: list[int], wanted: bool
) -> None:
    assert is_worth_units(units, extents) is wanted


def _factors(nodes: list[onnx.NodeProto], tmp_path: Any, **stored: Any) -> list[str]:
    """Return the factors with units of all ops of a model with an input `x` of 4x48."""
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 48])]
    made = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes[-1:]]
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "g", ends, made, held)
    opset = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "m.onnx")
    with driver.new_context():
        module = driver.load(tmp_path / "m.onnx", {})
        driver.advance(module, "rules")
        ops = (view.operation for view in views.function(module).regions[0].blocks[0])
        ruled = [op for op in ops if keys.RULE.on(op.attributes)]
        return [
            f"{op.name.removeprefix('onnx.')} {number}: {factor.size} in {units_text(factor.units)}"
            for op in ruled
            for number, factor in enumerate(
                keys.RULE.kind.read(op.attributes["topt.rule"]).rule.factors
            )
            if factor.units
        ]


def test_several_numbers_of_heads_have_a_common_divisor(tmp_path: Any) -> None:
    """As 24 heads and 9 of 3: three units."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Reshape", ["y", "one"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Reshape", ["b", "flat"], ["c"]),
        helper.make_node("Reshape", ["c", "two"], ["d"]),
    ]
    weight = normal(48, 72)
    sizes = {"one": [4, 24, 3], "flat": [4, 72], "two": [4, 9, 8]}
    found = _factors(nodes, tmp_path, w=weight, **sizes)
    assert found == [
        "MatMul 2: 72 in 3",
        "Reshape 1: 24 in 3",
        "Relu 1: 24 in 3",
        "Reshape 1: 24 in 3",
        "Reshape 1: 9 in 3",
    ]


def test_dimensions_that_no_reshape_merges_have_no_units(tmp_path: Any) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Reshape", ["y", "shape"], ["z"]),
    ]
    assert not _factors(nodes, tmp_path, w=normal(48, 72), shape=[4, 1, 72])
