"""Room in /dev/shm: how much ranks need, and one line if there is less."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensoropt.runtime.cli.run import main
from tensoropt.runtime.launch import processes, shared_memory
from tensoropt.runtime.launch.shared_memory import (
    BYTES_PER_RANK,
    check_shared_memory,
    local_ranks,
)
from tensoropt.runtime.support.errors import UserError

LIMIT_S = 60.0

SMALL = 'mount -t tmpfs -o size="$0" tmpfs /dev/shm && "$@"; status=$?; ls /dev/shm; exit $status'


def run_with(size: int, *command: object) -> subprocess.CompletedProcess[str]:
    """Run a command with a /dev/shm of ``size`` bytes, and list what is in there afterwards."""
    words = ["unshare", "--mount", "sh", "-c", SMALL, size, *command]
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


can_mount = pytest.mark.skipif(
    os.geteuid() != 0 or run_with(1 << 20, "true").returncode != 0,
    reason="only root may mount a small /dev/shm",
)


@can_mount
def test_ranks_run_in_the_room_that_they_need(plan: Path) -> None:
    job = run_with(2 * BYTES_PER_RANK, sys.executable, "-m", "tensoropt.runtime.cli.run", plan)
    assert (job.returncode, job.stderr) == (0, "")
    assert job.stdout.startswith("output")


@can_mount
def test_too_little_room_is_one_line(plan: Path) -> None:
    job = run_with(1 << 20, sys.executable, "-m", "tensoropt.runtime.cli.run", plan)
    assert (job.returncode, job.stdout) == (1, "")  # and nothing is left
    assert job.stderr.startswith(
        "error: /dev/shm: expected 2080 KiB of free room for 2 ranks, got: 1024 KiB; "
    )
    assert job.stderr.count("\n") == 1


@can_mount
def test_read_only_memory_is_one_line(plan: Path) -> None:
    words = [sys.executable, "-m", "tensoropt.runtime.cli.run", plan]
    mount = 'mount -t tmpfs -o ro,size=64m tmpfs /dev/shm && "$0" "$@"'
    job = subprocess.run(
        [*map(str, ["unshare", "--mount", "sh", "-c", mount, *words])],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert (job.returncode, job.stdout) == (1, "")
    assert job.stderr.startswith(
        "error: /dev/shm: expected a folder in which MPI can create files for the memory of ranks, "
        "got: a read-only file system; mount it writable ("
    )
    assert job.stderr.count("\n") == 1


def test_memory_without_the_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory.os, "access", lambda *_: False)
    with pytest.raises(UserError, match=r"MPI can create files .*got: no right to write"):
        check_shared_memory(1, tmp_path)


def test_what_no_machine_has(capsys, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rights to mount anything: the ranks need more than there is."""
    monkeypatch.setattr(shared_memory, "BYTES_PER_RANK", 1 << 60)
    assert main([str(plan)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: /dev/shm: expected 2251799813685248 KiB of free room for 2 ranks")
    with pytest.raises(UserError, match="--shm-size"):
        check_shared_memory(1)
    with processes.Processes() as job, pytest.raises(UserError):
        job.start(2, job.folder / "log")
    assert not job.ranks


def test_ranks_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    assert local_ranks() == 1
    monkeypatch.setenv("WORLD_SIZE", "6")
    assert local_ranks() == 1  # on as many machines, for all that it says
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert local_ranks() == 6
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert local_ranks() == 3


def test_no_shared_memory_is_left_to_mpi(tmp_path: Path) -> None:
    check_shared_memory(1, tmp_path / "none")
