"""Rules in blocks: ops that cut, join, read or pass on the blocks of a packed projection."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sharding.harness import Array, Case, normal, offered
from sharding.test_runtime_attention import grouped, merged

from tensoropt.compiler.layout.rule import Sections

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


def test_products_pass_blocks_on() -> None:
    case = Case("MatMul", [normal(4, 12), normal(12, 24)])
    columns = ((1, 1, (1, 1, 1)), (2, 1, (1, 1, 1)))
    assert in_blocks(case, columns) == {"R S(1 of 3) -> S(1 of 3)"}
    rows = ((0, 1, (2, 1)), (1, 0, (2, 1)))
    assert in_blocks(case, rows) == {"S(1 of 2+1) S(0 of 2+1) -> P(sum)"}


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
