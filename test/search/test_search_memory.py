"""A search keeps within the memory that it may use, and says so where that is too little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tensoropt.compiler.api.model import load
from tensoropt.compiler.support.errors import UserError

HERE = Path(__file__).parent
LLAMA = HERE.parent / "models" / "llama_tiny.onnx"
INSTANCE = HERE / "instances" / "transformer_p16.npz"
MIB = 2**20
SEARCH = """
import resource, sys
from pathlib import Path
from tensoropt.compiler.cli.instance import load_instance
from tensoropt.compiler.search.engine.ft import solve_frontier
problem = load_instance(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = solve_frontier(problem, time_limit_s=15, memory_bytes=float(sys.argv[2]))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(1024 * (after - before), found.short_of_memory, found.epsilon)
"""


def searched(budget_bytes: float) -> tuple[int, bool, float]:
    """Return by how much the peak memory of a process grew by an exact search, and how it ended."""
    command = [sys.executable, "-c", SEARCH, str(INSTANCE), str(budget_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, short, epsilon = done.stdout.split()
    return int(grown), short == "True", float(epsilon)


def test_a_search_keeps_within_its_budget_and_says_how_far_it_came() -> None:
    grown, short, epsilon = searched(40 * MIB)
    assert grown < 60 * MIB
    assert short
    assert 0 < epsilon < 0.2


@pytest.mark.parametrize("size", ["1", "100KiB"])
def test_a_budget_too_small_to_begin_is_refused_in_one_line(size: str) -> None:
    with pytest.raises(UserError) as refused:
        load(LLAMA).frontier(4, search_memory=size)
    assert "may take a quarter of its memory, expected --search-memory " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("size", ["", "much", "-1GiB"])
def test_a_size_that_is_none_is_refused(size: str) -> None:
    with pytest.raises(UserError, match="search_memory: expected"):
        load(LLAMA).frontier(4, search_memory=size)


def test_a_method_that_heeds_no_budget_refuses_one() -> None:
    with pytest.raises(UserError, match="search_memory belongs to search ft"):
        load(LLAMA).frontier(4, search="pase", search_memory="1GiB")
