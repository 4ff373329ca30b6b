"""Rules in blocks: ops that cut, join, read or pass on the blocks of a packed projection."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sharding.harness import Array, Case, check, normal, offered
from sharding.test_runtime_attention import grouped, merged

from tensoropt.compiler.layout.rule import Sections
from tensoropt.compiler.sharding.rule.units import Counts
from tensoropt.runtime.layout.layout import blocks_text, ratio_of, units_text

MESHES = [(2,), (2, 2)]


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def in_blocks(case: Case, blocks: Sections, mesh: tuple[int, ...] = (2,)) -> set[str]:
    """Check a case with dimensions in ``blocks``; return its strategies in blocks as text."""
    found = offered(replace(case, blocks=blocks), mesh)
    return {text for text in found if " of " in text}


SPLITS = [
    Case("Split", [normal(4, 24)], {"axis": 1, "num_outputs": 3}, results=(True,) * 3),
    Case("Split", [normal(4, 24), ints(8, 8, 8)], {"axis": 1}, 13, results=(True,) * 3),
    Case("Split", [normal(4, 24)], {"axis": 1, "split": [8, 8, 8]}, 11, results=(True,) * 3),
]


@pytest.mark.parametrize("case", SPLITS, ids=str)
def test_split_cuts_equal_blocks(case: Case) -> None:
    found = in_blocks(case, ((0, 1, (1, 1, 1)),), (2,))
    rest = " R" * (len(case.operands) - 1)
    assert found == {f"S(1 of 3){rest} -> S(1) S(1) S(1)"}
    found = in_blocks(case, ((0, 1, (1, 1, 1)),), (4,))
    assert found == {f"S(1 of 3){rest} -> S(1) S(1) S(1)"}


def test_split_cuts_unequal_blocks_and_blocks_of_blocks() -> None:
    case = Case("Split", [normal(4, 24), ints(16, 4, 4)], {"axis": 1}, results=(True,) * 3)
    found = in_blocks(case, ((0, 1, (4, 1, 1)),), (2,))
    assert found == {"S(1 of 4+1+1) R -> S(1) S(1) S(1)"}
    assert not in_blocks(case, ((0, 1, (1, 1, 1)),), (2,))
    case = Case("Split", [normal(4, 24), ints(8, 16)], {"axis": 1}, results=(True,) * 2)
    nested = ((0, 1, (1, 1, 1)), (len(case.operands) + 1, 1, (1, 1)))
    assert in_blocks(case, nested, (2,)) == {"S(1 of 3) R -> S(1) S(1 of 2)"}


@pytest.mark.parametrize("mesh", MESHES)
def test_slice_takes_whole_blocks(mesh: tuple[int, ...]) -> None:
    bounds = [ints(16), ints(20), ints(1), ints(1)]
    case = Case("Slice", [normal(8, 24), *bounds], literals=frozenset((1, 2, 3, 4)))
    found = in_blocks(case, ((0, 1, (4, 1, 1)),), mesh)
    assert found if mesh == (2, 2) else found == {"S(1 of 4+1+1) R R R R -> S(1)"}
    bounds = [ints(4), ints(2**63 - 1), ints(-1)]
    case = Case("Slice", [normal(8, 12), *bounds], literals=frozenset((1, 2, 3)))
    found = in_blocks(case, ((0, 1, (1, 1, 1)), (4, 1, (1, 1))), (2,))
    assert found == {"S(1 of 3) R R R -> S(1 of 2)"}


def test_a_slice_across_blocks_is_not_split() -> None:
    bounds = [ints(2), ints(6), ints(1)]
    case = Case("Slice", [normal(8, 12), *bounds], literals=frozenset((1, 2, 3)))
    assert not in_blocks(case, ((0, 1, (1, 1, 1)),), (2,))


@pytest.mark.parametrize("mesh", MESHES)
def test_concat_joins_blocks(mesh: tuple[int, ...]) -> None:
    case = Case("Concat", [normal(4, 16), normal(4, 4), normal(4, 4)], {"axis": 1})
    found = in_blocks(case, ((3, 1, (4, 1, 1)),), mesh)
    assert found if mesh == (2, 2) else found == {"S(1) S(1) S(1) -> S(1 of 4+1+1)"}
    case = Case("Concat", [normal(4, 8), normal(4, 4)], {"axis": 1})
    blocks = ((0, 1, (1, 1)), (2, 1, (1, 1, 1)))
    assert in_blocks(case, blocks, (2,)) == {"S(1 of 2) S(1) -> S(1 of 3)"}


@pytest.mark.parametrize("mesh", MESHES)
def test_reshape_passes_blocks_of_heads_on(mesh: tuple[int, ...]) -> None:
    case = Case("Reshape", [normal(4, 48), ints(4, 12, 4)], literals=frozenset((1,)))
    found = in_blocks(case, ((0, 1, (1, 1, 1)), (2, 1, (1, 1, 1))), mesh)
    assert found if mesh == (2, 2) else found == {"S(1 of 3) R -> S(1 of 3)"}
    assert not in_blocks(case, ((0, 1, (1, 1)), (2, 1, (1, 1, 1))), mesh)


@pytest.mark.parametrize("mesh", MESHES)
def test_indices_of_a_new_dimension_are_blocks(mesh: tuple[int, ...]) -> None:
    """Back, too, as in the gradient."""
    case = Case("Reshape", [normal(4, 48), ints(4, 3, 4, 4)], literals=frozenset((1,)))
    found = in_blocks(case, ((0, 1, (1, 1, 1)),), mesh)
    assert found if mesh == (2, 2) else found == {"S(1 of 3) R -> S(2)"}
    case = Case("Reshape", [normal(4, 3, 4, 4), ints(4, 48)], literals=frozenset((1,)))
    found = in_blocks(case, ((2, 1, (1, 1, 1)),), mesh)
    assert found if mesh == (2, 2) else found == {"S(2) R -> S(1 of 3)"}
    assert not in_blocks(case, ((2, 1, (1, 1)),), mesh)


def test_indices_of_a_new_dimension_are_blocks_next_to_symbolic_dimensions() -> None:
    case = Case(
        "Reshape", [normal(4, 5, 48), ints(4, -1, 3, 4, 4)], literals=frozenset((1,)),
        symbolic=frozenset([(0, 1)]), symbolic_results=frozenset([(0, 1)]),
    )  # fmt: skip
    assert in_blocks(case, ((0, 2, (1, 1, 1)),)) == {"S(2 of 3) R -> S(3)"}


@pytest.mark.parametrize("mesh", MESHES)
def test_padding_is_blocks_before_and_after(mesh: tuple[int, ...]) -> None:
    """As in the gradient of a Slice."""
    case = Case("Pad", [normal(4, 8), ints(0, 4, 0, 12)], literals=frozenset((1,)))
    found = in_blocks(case, ((2, 1, (1, 2, 3)),), mesh)
    assert found if mesh == (2, 2) else found == {"S(1) R -> S(1 of 1+2+3)"}
    case = Case("Pad", [normal(4, 8), ints(0, 8), None, ints(1)], literals=frozenset((1, 3)))
    found = in_blocks(case, ((4, 1, (1, 1)),), (2,))
    assert found == {"S(1) R R R -> S(1 of 2)"}


@pytest.mark.parametrize(
    "case",
    [
        Case("Pad", [normal(4, 8), ints(0, 4, 0, -4)], literals=frozenset((1,))),
        Case(
            "Pad", [normal(4, 8), ints(0, 4, 0, 4)], {"mode": "reflect"}, literals=frozenset((1,))
        ),
        Case("Pad", [normal(4, 8), ints(2, 4, 2, 4)], literals=frozenset((1,))),
    ],
    ids=["cropped", "reflected", "two"],
)
def test_other_padding_has_no_blocks(case: Case) -> None:
    assert not in_blocks(case, ((2, 1, (1, 1)),))


def test_products_pass_blocks_on() -> None:
    case = Case("MatMul", [normal(4, 12), normal(12, 24)])
    columns = ((1, 1, (1, 1, 1)), (2, 1, (1, 1, 1)))
    assert in_blocks(case, columns) == {"R S(1 of 3) -> S(1 of 3)"}
    rows = ((0, 1, (2, 1)), (1, 0, (2, 1)))
    assert in_blocks(case, rows) == {"S(1 of 2+1) S(0 of 2+1) -> P(sum)"}


def in_units(case: Case, blocks: Sections, units: Counts, mesh: tuple[int, ...]) -> set[str]:
    """Check a case with dimensions in ``blocks`` and units; return its strategies in units."""
    found = check(replace(case, blocks=blocks, units=units), mesh, opens=False).offered
    return {text for text in found if " in " in text}


_ONE_KEY = (8, 1, 1)
"""Units of queries, keys and values with a single head of keys: whole on every rank."""


@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2)])
def test_split_cuts_blocks_that_are_whole_on_every_rank(mesh: tuple[int, ...]) -> None:
    case = Case("Split", [normal(4, 40), ints(32, 4, 4)], {"axis": 1}, results=(True,) * 3)
    found = in_units(case, ((0, 1, _ONE_KEY),), ((1, _ONE_KEY),), mesh)
    every = [",".join([text] * len(mesh)) for text in ("S(1 of 8+1+1 in 8+1+1)", "R", "S(1)")]
    assert "{0} {1} -> {2} {1} {1}".format(*every) in found
    assert found if len(mesh) > 1 else len(found) == 1


def test_split_cuts_blocks_that_some_ranks_have_whole() -> None:
    """Two heads of keys on four ranks: each on two."""
    case = Case("Split", [normal(4, 48), ints(32, 8, 8)], {"axis": 1}, results=(True,) * 3)
    blocks, units = ((0, 1, (4, 1, 1)),), ((1, (8, 2, 2)),)
    both = ",".join(["S(1 of 4+1+1 in 8+2+2)"] * 2)
    assert in_units(case, blocks, units, (2, 2)) == {f"{both} R,R -> S(1),S(1) S(1),R S(1),R"}
    assert not in_units(case, blocks, units, (4,))


@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
def test_blocks_with_padding_are_cut_and_joined(mesh: tuple[int, ...]) -> None:
    """Seven heads in each of three blocks."""
    units = ((1, (7, 7, 7)),)
    case = Case("Split", [normal(4, 42), ints(14, 14, 14)], {"axis": 1}, results=(True,) * 3)
    found = in_units(case, ((0, 1, (1, 1, 1)),), units, mesh)
    every = [",".join([text] * len(mesh)) for text in ("S(1 of 3 in 7)", "R", "S(1 in 7)")]
    assert "{0} {1} -> {2} {2} {2}".format(*every) in found
    case = Case("Concat", [normal(4, 14), normal(4, 14), normal(4, 14)], {"axis": 1})
    found = in_units(case, ((3, 1, (1, 1, 1)),), units, mesh)
    assert "{2} {2} {2} -> {0}".format(*every) in found


@pytest.mark.parametrize(("first", "size", "result"), [(0, 32, "S(1)"), (32, 4, "R"), (36, 4, "R")])
def test_slice_takes_blocks_that_are_whole_on_every_rank(
    first: int, size: int, result: str
) -> None:
    bounds = [ints(first), ints(first + size), ints(1)]
    case = Case("Slice", [normal(4, 40), *bounds], literals=frozenset((1, 2, 3)))
    found = in_units(case, ((0, 1, _ONE_KEY),), ((2, _ONE_KEY),), (4,))
    assert found == {f"S(1 of 8+1+1 in 8+1+1) R R R -> {result}"}


def test_slice_takes_several_blocks_in_units() -> None:
    bounds = [ints(32), ints(40), ints(1)]
    case = Case("Slice", [normal(4, 40), *bounds], literals=frozenset((1, 2, 3)))
    blocks = ((0, 1, _ONE_KEY), (4, 1, (1, 1)))
    found = in_units(case, blocks, ((2, _ONE_KEY),), (4,))
    assert found == {"S(1 of 8+1+1 in 8+1+1) R R R -> R"}
    bounds = [ints(14), ints(42), ints(1)]
    case = Case("Slice", [normal(4, 42), *bounds], literals=frozenset((1, 2, 3)))
    blocks = ((0, 1, (1, 1, 1)), (4, 1, (1, 1)))
    found = in_units(case, blocks, ((2, (7, 7, 7)),), (2,))
    assert found == {"S(1 of 3 in 7) R R R -> S(1 of 2 in 7)"}


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
@pytest.mark.parametrize("index", [-2, 9])
@pytest.mark.parametrize(("name", "factor"), [("GatherND", 3), ("Gather", 4)])
def test_a_single_head_is_picked_from_any_rank(
    name: str, factor: int, index: int, mesh: tuple[int, ...]
) -> None:
    picked = np.array([index] if name == "Gather" else [[index]])
    case = Case(name, [normal(10, 3, 4), picked], literals=frozenset((1,)))
    found = in_units(case, ((0, 0, _ONE_KEY),), ((factor, _ONE_KEY),), mesh)
    every = [",".join([text] * len(mesh)) for text in ("S(0 of 8+1+1 in 8+1+1)", "R")]
    assert "{0} {1} -> {1}".format(*every) in found


@pytest.mark.parametrize(
    ("blocks", "units", "mesh"),
    [((8, 1, 1), (8, 1, 1), (4,)), ((8, 1, 1), (8, 1, 1), (2, 2)), ((1, 1, 1), (5, 5, 5), (2,))],
)
def test_products_and_reshapes_pass_units_of_blocks_on(
    blocks: tuple[int, ...], units: tuple[int, ...], mesh: tuple[int, ...]
) -> None:
    heads, own = sum(units), f"of {blocks_text(blocks)} in {units_text(units)}"
    split, whole = (",".join([text] * len(mesh)) for text in (f"S(1 {own})", "R"))
    case = Case("MatMul", [normal(4, 6), normal(6, 4 * heads)])
    columns = ((1, 1, blocks), (2, 1, blocks))
    assert f"{whole} {split} -> {split}" in in_units(case, columns, ((2, units),), mesh)
    rows = Case("MatMul", [normal(4, 4 * heads), normal(4 * heads, 6)])
    assert not in_units(rows, ((0, 1, blocks), (1, 0, blocks)), ((1, units),), mesh)
    case = Case("Reshape", [normal(2, 4 * heads), ints(2, heads, 4)], literals=frozenset((1,)))
    found = in_units(case, ((0, 1, blocks), (2, 1, blocks)), ((1, units),), mesh)
    assert f"{split} {whole} -> {split}" in found
    case = Case("Transpose", [normal(2, heads, 4)], {"perm": [2, 1, 0]})
    assert f"{split} -> {split}" in in_units(
        case, ((0, 1, blocks), (1, 1, blocks)), ((1, units),), mesh
    )


@pytest.mark.parametrize(
    ("keys", "mesh", "layout"),
    [
        (1, (2,), "S(2 of 4+1+1 in 4+1+1)"),
        (1, (4,), "S(2 of 4+1+1 in 4+1+1)"),
        (2, (2, 2), ",".join(["S(2 of 2+1+1 in 4+2+2)"] * 2)),
    ],
)
def test_ranks_that_share_packed_keys_each_have_them(
    keys: int, mesh: tuple[int, ...], layout: str
) -> None:
    case = grouped((4, keys), packed=True, rotary=True)
    blocks = ratio_of([4, keys, keys])
    found = in_units(case, ((0, 2, blocks),), ((1, (4, keys, keys)),), mesh)
    assert any(text.startswith(layout) for text in found)


@pytest.mark.parametrize("mesh", [(2,), (3,)])
def test_packed_heads_that_ranks_do_not_divide_have_padding(mesh: tuple[int, ...]) -> None:
    case = grouped((5, 5), packed=True, rotary=True)
    found = in_units(case, ((0, 2, (1, 1, 1)),), ((1, (5, 5, 5)),), mesh)
    assert any(text.startswith("S(2 of 3 in 5)") and "-> S(2 in 5) S(1)" in text for text in found)
    blocks = ((1, 1, (1, 1, 1)), (2, 0, (1, 1, 1)))
    found = in_units(merged(heads=5, past=2), blocks, ((1, (5, 5, 5)),), mesh)
    assert "R S(1 of 3 in 5) S(0 of 3 in 5) R S(2) R -> S(2 in 5) S(2)" in found
    blocks = ((1, 1, (2, 2, 1)), (2, 0, (2, 2, 1)))
    found = in_units(merged(heads=5, width=4), blocks, ((1, (5, 5, 5)),), mesh)
    assert "R S(1 of 2+2+1 in 5) S(0 of 2+2+1 in 5) R R R -> S(2 in 5)" in found


def test_blocks_that_do_not_divide_are_split_as_one() -> None:
    case = Case("MatMul", [normal(4, 12), normal(12, 24)])
    columns = ((1, 1, (1, 1, 1)), (2, 1, (1, 1, 1)))
    assert not in_blocks(case, columns, (16,))


@pytest.mark.parametrize("mesh", MESHES)
def test_packed_heads_are_read_in_blocks(mesh: tuple[int, ...]) -> None:
    case = grouped(packed=True)
    found = in_blocks(case, ((0, 2, (2, 1, 1)),), mesh)
    assert any(text.startswith("S(2 of 2+1+1)") for text in found) or mesh == (2, 2)
    assert found


@pytest.mark.parametrize("mesh", MESHES)
def test_merged_weights_are_stored_in_blocks(mesh: tuple[int, ...]) -> None:
    case = merged(heads=4)
    found = in_blocks(case, ((1, 1, (1, 1, 1)), (2, 0, (1, 1, 1))), mesh)
    assert found
