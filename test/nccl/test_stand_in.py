"""The stand-ins do what NCCL and the CUDA runtime do, so that what runs on them is tested."""

from __future__ import annotations

from pathlib import Path

from mpi_ranks import under_mpi
from stand_ins import calls, communication, environment, stand_ins


def test_every_function_type_and_group_and_wrong_use(tmp_path: Path) -> None:
    script, log = Path(__file__).with_name("stand_in_cases.py"), tmp_path / "log"
    assert under_mpi(4, script, stand_ins(), env=environment(log)) == []
    made = [call for call in calls(log, 3) if call["call"] == "ncclCommInitRank"]
    groups = [[0, 1, 2, 3], [3, 1], [3], [3, 0, 1], [0, 1, 2, 3]]
    assert [(call["world"], call["device"]) for call in made] == [(g, 3) for g in groups]
    grouped = [call for call in communication(log, 3) if call["call"] == "ncclSend"]
    assert {call["depth"] for call in grouped} == {2}
