"""The collectives on the path of CUDA: every type, dimension and group, and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_ranks import under_mpi
from recorded import disorder
from stand_ins import calls, communication, environment

RUNTIME = Path(__file__).parent.parent / "runtime"


# As in test/runtime/test_collectives.py, whose script this is.
@pytest.mark.parametrize(("ranks", "memberships", "broadcasts"), [(2, 6, 10), (4, 20, 58)])
def test_every_collective_type_dimension_and_group(
    ranks: int, memberships: int, broadcasts: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    found = under_mpi(ranks, RUNTIME / "collective_cases.py", env=environment(log))
    assert found["wrong"] == []
    assert found["count"] == (memberships * 31 + broadcasts) * 9
    for rank in range(ranks):
        made = [c["world"] for c in calls(log, rank) if c["call"] == "ncclCommInitRank"]
        assert len({tuple(world) for world in made}) == len(made)
        assert all(len(world) > 1 for world in made)
        assert {c["type"] for c in communication(log, rank)} >= {"float16", "bfloat16", "uint8"}


def test_a_wrong_node_is_told_as_over_mpi() -> None:
    script = RUNTIME / "collective_errors.py"
    over_mpi, over_nccl = (under_mpi(2, script, env=env) for env in (None, environment()))
    assert over_nccl == {
        case: text.replace("over MPI", "over NCCL") for case, text in over_mpi.items()
    }


# Late, a transfer runs when it is awaited: what is read or reused too early is wrong.
@pytest.mark.parametrize("late", [0, 1])
def test_transfers_beside_other_nodes_have_a_stream_of_their_own(late: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    found = under_mpi(2, RUNTIME / "overlap_cases.py", env=environment(log, late=late))
    assert found["wrong"] == found["failing"]["wrong values"] == []
    for rank in range(2):
        made = calls(log, rank)
        (side,) = (c["stream"] for c in made if c["call"] == "cudaStreamCreateWithFlags")
        assert disorder(made, side) == ""
        assert any(c["stream"] == side for c in communication(log, rank))
        assert any(c["stream"] != side for c in communication(log, rank))  # plain ones
        assert "cudaStreamSynchronize" in {c["call"] for c in made}  # a run that failed between
