"""Collectives that go on beside other nodes, on real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_ranks import under_mpi

CASES = Path(__file__).with_name("overlap_cases.py")
LATENCY_S = 0.005


@pytest.fixture(scope="module")
def found() -> dict:
    return under_mpi(2, CASES, LATENCY_S)


def test_results_are_those_of_plain_collectives(found: dict) -> None:
    assert found["wrong"] == []


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("kind", "CombinedAllReduceWait node 'c.AllReduceWait': expected the handle of another"),
        ("handle", "AllReduceWait node 'c.AllReduceWait': expected the handle of a transfer that"),
        ("without x", "expected 3 inputs: the handle, all y and all x, got: 2"),
        ("other x", "expected x1 of its start as input 2, got: another tensor"),
        ("several", "AllReduceStart node 'c.AllReduceStart': expected one x, got: 2"),
        ("disagree", "AllReduceStart node 'c.AllReduceStart': the ranks of the group disagree"),
    ],
)
def test_a_wrong_graph_is_named(found: dict, case: str, text: str) -> None:
    assert text in found["errors"][case]
    assert "\n" not in found["errors"][case]


def test_a_run_that_fails_between_ends_behind_its_transfer(found: dict) -> None:
    failing = found["failing"]
    assert failing["right"] == failing["again"] == "no error"
    assert "Reshape" in failing["wrong"]
    assert failing["wrong s"] > LATENCY_S
    assert failing["wrong values"] == []


def test_what_a_program_leaves_under_way_is_an_error_of_the_next_run(found: dict) -> None:
    left = found["left"]
    text = "AllReduceStart node 'c.AllReduceStart': an earlier run ended before its transfer was"
    assert text in left["next"]
    assert left["one more"] == left["new session"] == "no error"
    assert left["wrong values"] == []


def test_a_transfer_waits_for_other_ranks_asleep(found: dict) -> None:
    assert found["waiting_s"] < 0.1  # of 0.4


def test_the_time_of_a_transfer_is_not_that_of_the_nodes(found: dict) -> None:
    told = found["told"]
    assert told["where"].startswith("after AllReduceStart node 'c.AllReduceStart' (")
    ((name, times),) = told["recorded"].items()
    assert name == "c.AllReduceStart"
    assert len(times) == 1
    assert times[0] > LATENCY_S
    assert told["held_s"] < times[0]  # by what the nodes between took
