"""The collectives as ONNX Runtime runs them, on real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_ranks import under_mpi

HERE = Path(__file__).parent


# Per type and group: 3 gathers, 3 reductions, 9 scatters, 9 exchanges, 3 permutes and 4 exchanges
# of rows, on each of its ranks; and a broadcast from each.
@pytest.mark.parametrize(("ranks", "memberships", "broadcasts"), [(2, 6, 10), (4, 20, 58)])
def test_every_collective_type_dimension_and_group(
    ranks: int, memberships: int, broadcasts: int
) -> None:
    found = under_mpi(ranks, HERE / "collective_cases.py")
    assert found["wrong"] == []
    assert found["count"] == (memberships * 31 + broadcasts) * 9


def test_the_library_has_every_collective_of_the_table_in_every_form() -> None:
    assert under_mpi(2, HERE / "collective_table.py") == []


@pytest.fixture(scope="module")
def errors() -> dict:
    return under_mpi(2, HERE / "collective_errors.py")


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("absent", "group names ranks that do not exist, expected ranks below 2, got: [0, 2]"),
        ("twice", "group names a rank twice, got: [0, 0]"),
        ("other", "group does not hold this rank, expected rank 0 in it, got: [1]"),
        ("reduction", "unknown reduction, expected sum, max or min, got: mean"),
        ("dim", "dim must be a dimension of the input of shape [3, 4], got: 2"),
        (
            "divide",
            "dimension 0 of the input of shape [3, 4] does not divide by the group's 2 rank",
        ),
        ("split", "dimension 0 of the input of shape [3, 4] does not divide by the group's"),
        ("type", "unsupported element type, expected one of float32, float16,"),
        ("shape", "the ranks of the group disagree here, this rank has: AllReduce of float32[3]"),
        ("root", "root must be a rank of the group [0], got: 1"),
        (
            "roots",
            "the ranks of the group disagree here, this rank has: Broadcast of float32[3, 4]",
        ),
        ("sources", "sources must hold each place of the group [0, 1] once, got: [1, 1]"),
        ("permutes", "the ranks of the group disagree here, this rank has: CollectivePermute of"),
        ("rows", "rows must send the 3 rows of the input, got: 2"),
        (
            "counts",
            "rows must be two numbers for each of the group's 2 ranks, got: [1, 1, 2, 2, 0, 0]",
        ),
        (
            "negative",
            "rows must be two numbers for each of the group's 2 ranks, got: [4, 1, -1, 1]",
        ),
        (
            "widths",
            "the ranks of the group disagree here, this rank has: AllToAllRows of float32[4] rows",
        ),
        ("scalar", "the input must have rows, got: a scalar"),
        ("op", "the ranks of the group disagree here, this rank has: AllGather of float32[3, 4]"),
    ],
)
def test_a_wrong_node_is_named(errors: dict, case: str, text: str) -> None:
    assert "node 'the_node': " in errors[case]
    assert text in errors[case]


def test_an_attribute_that_is_missing(errors: dict) -> None:
    assert "AllGather node 'the_node'" in errors["missing"]
    assert "dim" in errors["missing"]


def test_errors_leave_the_ranks_usable(errors: dict) -> None:
    assert errors["right"] == "no error"
