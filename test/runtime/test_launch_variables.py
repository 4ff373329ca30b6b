"""What the variables of launchers say about a process's place, and which are wrong."""

from __future__ import annotations

import pytest

from tensoropt.runtime.launch.launcher import ranks_present
from tensoropt.runtime.support.errors import UserError


def test_no_ranks_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert present(monkeypatch) is None
    assert present(monkeypatch, RANK="1") is None  # a common name
    assert present(monkeypatch, SLURM_PROCID="0", SLURM_NTASKS="8") is None  # a batch script
    assert present(monkeypatch, SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="1") is None


MEETING = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, (1, 4)),
        ({"PMI_PORT": "node0:1234", "PMI_ID": "3"}, (3, 0)),
        ({"PMIX_RANK": "3", "SLURM_STEP_NUM_TASKS": "8"}, (3, 8)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "4", **MEETING}, (1, 4)),
        ({"PMI_RANK": "2", "PMI_SIZE": "8", "RANK": "1", "WORLD_SIZE": "4", **MEETING}, (2, 8)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", **MEETING}, (1, 4)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "PMIX_RANK": "1", **MEETING}, (1, 4)),
    ],
)
def test_which_ranks_are_there(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], found: tuple[int, int]
) -> None:
    assert present(monkeypatch, **environment) == found


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK: expected a rank below WORLD_SIZE = 4, got: 4"),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, "RANK: expected a rank below WORLD_SIZE = 4, got: -1"),
        ({"RANK": "1x", "WORLD_SIZE": "4"}, "RANK: expected a rank below WORLD_SIZE = 4, got: 1x"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE: expected a number of ranks, got: 0"),
        ({"RANK": "0", "WORLD_SIZE": "9" * 30}, "WORLD_SIZE: expected a number of ranks, got: 999"),
        ({"RANK": "0", **MEETING}, "WORLD_SIZE: expected a number of ranks, got: nothing"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "MASTER_ADDR: expected the name or address of rank 0's"),
        (
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node0"},
            "MASTER_PORT: expected a port between 1 and 65535, got: nothing",
        ),
        (
            {"RANK": "1", "WORLD_SIZE": "2", **MEETING, "TENSOROPT_PORT": "70000"},
            "TENSOROPT_PORT: expected a port between 1 and 65535, got: 70000",
        ),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, "srun started several tasks without"),
        (
            {"PMI_RANK": "2", "PMI_SIZE": "2"},
            "PMI_RANK: expected a rank below PMI_SIZE = 2, got: 2",
        ),
    ],
)
def test_variables_that_are_wrong(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError) as raised:
        present(monkeypatch, **environment)
    assert str(raised.value).startswith(message)


def present(monkeypatch: pytest.MonkeyPatch, **environment: str) -> tuple[int, int] | None:
    for name in ("RANK", "WORLD_SIZE", *MEETING):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return ranks_present()
