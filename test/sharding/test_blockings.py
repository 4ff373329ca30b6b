"""Blocks are derived from packed projections only, through all that shares their factors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from onnx import numpy_helper, parser, save
from sharding.harness import normal

from tensoropt.compiler.pipeline import driver

HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>'


def rules(text: str, path: Path) -> list[str]:
    """Return the rule of each op, in order: its map and its factors."""
    model = parser.parse_model(f"{HEADER} {text}")
    for own in model.graph.value_info:  # the weights
        shape = [dim.dim_value for dim in own.type.tensor_type.shape.dim]
        model.graph.initializer.append(numpy_helper.from_array(normal(*shape), own.name))
    save(model, path)
    with driver.new_context():
        module = driver.load(path, {})
        driver.advance(module, "rules")
        found = re.findall(r'#topt\.rule<("[^"]*", \[[^\]]*\])', str(module))
        return [rule for rule in found if not rule.startswith('"->')]  # constants


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.onnx"


def test_blocks_reach_all_that_shares_the_columns(path: Path) -> None:
    found = rules(
        """g (float[4, 8] x) => (float[4, 16] q, float[4, 4] k, float[4, 4] v)
        <float[8, 24] w, float[24] b, int64[3] s = {16, 4, 4}> {
            y = MatMul (x, w)
            z = Add (y, b)
            q, k, v = Split <axis = 1> (z, s)
        }""",
        path,
    )
    product, add, split = found
    assert "k=24 of 4+1+1 padded" in product
    assert "j=24 of 4+1+1" in add
    assert '"(i, j of 4+1+1), (_) -> (i, j), (i, j), (i, j)"' in split


def test_slices_cut_the_same_blocks(path: Path) -> None:
    found = rules(
        """g (float[4, 8] x) => (float[4, 6] y)
        <float[8, 12] w, int64[1] a = {0}, int64[1] b = {6}, int64[1] c = {12}, int64[1] d = {1}> {
            z = MatMul (x, w)
            gate = Slice (z, a, b, d)
            up = Slice (z, b, c, d)
            half = Sigmoid (gate)
            y = Mul (half, up)
        }""",
        path,
    )
    assert "k=12 of 2" in found[0]
    assert [rule.startswith('"(i, k of 2)') for rule in found[1:3]] == [True, True]


def test_blocks_of_blocks_are_cut_finer(path: Path) -> None:
    found = rules(
        """g (float[4, 8] x) => (float[4, 8] q, float[4, 4] k, float[4, 4] v)
        <float[8, 16] w, int64[2] s = {8, 8}, int64[2] t = {4, 4}> {
            y = MatMul (x, w)
            q, kv = Split <axis = 1> (y, s)
            k, v = Split <axis = 1> (kv, t)
        }""",
        path,
    )
    assert "k=16 of 2+1+1" in found[0]
    assert '"(i, j of 2+1+1), (_) -> (i, j), (i, j of 2)", ["i=4 padded", "j=4"]' in found[1]


def test_indices_of_a_new_dimension_are_blocks(path: Path) -> None:
    found = rules(
        """g (float[4, 8] x) => (float[1, 4, 2, 4] q)
        <float[8, 24] w, int64[4] s = {4, 3, 2, 4}, int64[1] i = {0}, int64[1] j = {2}> {
            y = MatMul (x, w)
            z = Reshape (y, s)
            t = Transpose <perm = [1, 0, 2, 3]> (z)
            a = Gather <axis = 0> (t, i)
            b = Gather <axis = 0> (t, j)
            q = Add (a, b)
        }""",
        path,
    )
    assert "k=24 of 3" in found[0]
    assert '"(i, j k of 3 in 3), (_) -> (i, j, k, _)"' in found[1]


@pytest.mark.parametrize("pick", ["Gather <axis = 0>", "GatherND"])
def test_matrices_of_experts_have_blocks(pick: str, path: Path) -> None:
    """Each token has its own matrix `[gate | up]`, which a router picks."""
    indices = "int64[5]" if pick.startswith("Gather ") else "int64[5, 1]"
    found = rules(
        f"""g (float[5, 1, 8] x, {indices} chosen) => (float[5, 1, 4] y)
        <float[3, 8, 8] w> {{
            own = {pick} (w, chosen)
            both = MatMul (x, own)
            gate, up = Split <axis = 2, num_outputs = 2> (both)
            y = Mul (gate, up)
        }}""",
        path,
    )
    assert all("=8 of 2" in rule for rule in found[:2])
    assert found[2].startswith('"(i, j, k of 2) -> ')


def test_channels_of_convolutions_have_blocks(path: Path) -> None:
    found = rules(
        """g (float[1, 4, 8, 8] x) => (float[1, 6, 8, 8] y)
        <float[16, 4, 1, 1] w, float[6, 24, 1, 1] u> {
            z = Conv (x, w)
            a, b = Split <axis = 1, num_outputs = 2> (z)
            c = Relu (b)
            d = Concat <axis = 1> (a, b, c)
            y = Conv (d, u)
        }""",
        path,
    )
    assert "j=16 of 2 padded" in found[0]
    assert '-> (i, l of 3, j, k)"' in found[3]
    assert "k=24 of 3 sum padded" in found[4]


def test_joined_rows_of_a_product_have_blocks(path: Path) -> None:
    """Parts have none, nor has a join of other parts."""
    found = rules(
        """g (float[1, 4, 8, 8] x) => (float[1, 6, 8, 8] y)
        <float[8, 4, 1, 1] v, float[16, 4, 1, 1] w, float[6, 24, 1, 1] u> {
            a = Conv (x, v)
            b = Conv (x, w)
            c = Concat <axis = 1> (a, b)
            d = Relu (c)
            y = Conv (d, u)
        }""",
        path,
    )
    assert not any(" of " in rule for rule in found[:2])
    assert '-> (i, l of 1+2, j, k)"' in found[2]
    assert "j=24 of 1+2 padded" in found[3]
    assert "k=24 of 1+2 sum padded" in found[4]


@pytest.mark.parametrize(("width", "has"), [(8, True), (9, False)])
def test_ops_after_groups_have_blocks_unless_some_ranks_divide_both(
    width: int, has: bool, path: Path
) -> None:
    made = 3 * width
    found = rules(
        f"""g (float[1, 6, 8, 8] x) => (float[1, {width}, 3, 8, 8] y)
        <float[{made}, 2, 1, 1] w> {{
            a = Conv <group = 3> (x, w)
            b = Relu (a)
            s = Constant <value_ints = [1, 3, {width}, 8, 8]> ()
            c = Reshape (b, s)
            y = Transpose <perm = [0, 2, 1, 3, 4]> (c)
        }}""",
        path,
    )
    own = [rule for rule in found if "(" in rule]
    assert "-> (i, j l of 3, " in own[0]
    assert (f"j={made} of 3 padded" in own[1]) == has
    assert ("(_, i l of 3 in 3, j, k), (_) -> (_, i, l, j, k)" in own[2]) == has


@pytest.mark.parametrize(
    "text",
    [
        # The halves of a head, which are no columns of a product.
        """g (float[4, 8] x) => (float[4, 8] y) {
            a, b = Split <axis = 1, num_outputs = 2> (x)
            n = Neg (b)
            y = Concat <axis = 1> (n, a)
        }""",
        # Channels that are joined, and read by a product of two inputs.
        """g (float[4, 8] x, float[4, 8] y, float[16, 6] w) => (float[4, 6] z) {
            c = Concat <axis = 1> (x, y)
            z = MatMul (c, w)
        }""",
        # Tables that are joined, and added to rows of a product.
        """g (float[4, 8] x, float[4, 8] y) => (float[4, 6] z) <float[16, 6] w> {
            c = Concat <axis = 1> (x, y)
            z = MatMul (c, w)
        }""",
        # Columns that are joined, but not summed over.
        """g (float[4, 8] x) => (float[4, 16] z) <float[8, 8] v, float[8, 8] w> {
            a = MatMul (x, v)
            b = MatMul (x, w)
            z = Concat <axis = 1> (a, b)
        }""",
        # A product of two inputs.
        """g (float[4, 8] x, float[8, 12] w) => (float[4, 6] a, float[4, 6] b) {
            y = MatMul (x, w)
            a, b = Split <axis = 1, num_outputs = 2> (y)
        }""",
        # Rows.
        """g (float[4, 8] x) => (float[2, 12] a, float[2, 12] b) <float[8, 12] w> {
            y = MatMul (x, w)
            a, b = Split <axis = 0, num_outputs = 2> (y)
        }""",
    ],
)
def test_other_dimensions_have_no_blocks(text: str, path: Path) -> None:
    assert not any(" of " in rule for rule in rules(text, path))
