"""Ranks of another launcher that raise, hang or do not answer: every rank says why it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from handmade import Perceptron, failing_plan
from launched import LIMITS_S, RUN, ends, run, started, wait_for_sessions
from stand_ins import environment

from tensoropt.runtime.launch.oversight import whereabouts
from tensoropt.runtime.ops.library import Position

HANGS = "rank 1 of 2 is before its first collective; rank 0 is in AllReduce node 'AllReduce_0'"


def test_a_rank_that_fails_before_mpi_starts_reports_its_error(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{")
    command = [sys.executable, "-m", "tensoropt.runtime.launch.rank", str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "RANK": "0"}, check=False)
    assert done.returncode == 1
    assert (tmp_path / "rank0.error").read_text().startswith("JSONDecodeError: ")


def test_a_rank_raises(perceptron: Perceptron, tmp_path: Path) -> None:
    plan = failing_plan(tmp_path / "failing", perceptron.model, 3, [0, 1])
    first, second = run(2, [*RUN, plan])
    text = f"error: rank 1 of 2: {plan}: Non-zero status code returned while"
    for status, out, err in (first, second):
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(text)


@pytest.mark.parametrize(
    ("flag", "what"),
    [
        ("--timeout", "no result within"),
        ("--stall", "no rank has made progress within"),
    ],
)
def test_a_job_hangs(hanging: Path, flag: str, what: str) -> None:
    for limit in LIMITS_S:
        first, second = run(2, [*RUN, hanging, flag, limit])
        if HANGS in first[2]:
            break
    text = f"{what} {flag} {limit} s: {HANGS} (collective 1)\n"
    assert first == (1, "", f"error: {text}")
    assert second == (1, "", f"error: rank 0 of 2: {text}")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_is_killed(hanging: Path, rank: int) -> None:
    before = time.monotonic()
    with started(2, [*RUN, hanging]) as processes:
        wait_for_sessions(processes)
        shared = shared_memory(processes[rank].pid)
        processes[rank].kill()
        killed = time.monotonic()
        other = ends([processes[1 - rank]])[0]
        assert time.monotonic() - killed < 5 + (killed - before)  # which other work prolongs alike
    assert other == (1, "", f"error: rank {rank} of 2 ended\n")
    assert shared
    assert not any(path.exists() for path in shared)


RECEIVES = """
import numpy, os, signal, threading
from tensoropt.runtime.launch.world import world
comm = world()
x, y = numpy.zeros(1 << 20, numpy.float32), numpy.empty(3 << 20, numpy.float32)
comm.Barrier()
if comm.rank == 1:
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    comm.Allgather(x, y)
"""


@pytest.mark.parametrize("_", range(2))
def test_a_rank_is_killed_while_others_receive_from_it(_: int) -> None:
    """They copy from the memory of a process that is gone: MPI alone would print a stack."""
    first, second, third = run(3, [sys.executable, "-c", RECEIVES])
    assert second == (-signal.SIGKILL, "", "")
    assert [first, third] == [(1, "", "error: rank 1 of 3 ended\n")] * 2


def shared_memory(pid: int) -> list[Path]:
    """What MPICH would leave behind."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [Path(line.split()[5]) for line in lines if "/mpich_shm_" in line]


def test_a_rank_is_stopped(hanging: Path) -> None:
    where = "rank 1 of 2 does not answer; rank 0 is in AllR"
    for limit in LIMITS_S:
        with started(2, [*RUN, hanging, "--timeout", limit]) as processes:
            with suppress(OSError):  # it has ended before
                wait_for_sessions(processes)
            processes[1].send_signal(signal.SIGSTOP)
            status, out, err = ends(processes[:1])[0]
        if where in err:
            break
    assert (status, out) == (1, "")
    assert err.startswith(f"error: no result within --timeout {limit} s: {where}")


def test_nccl_hangs(plan: Path) -> None:
    settings = environment(fault="1:1:hang")
    stand_ins = {name: text for name, text in settings.items() if "STAND_IN" in name}
    where = "ranks 0, 1 of 2 are in AllReduce node 'fc2_reduce' (collective 1)"
    for limit in LIMITS_S:
        found = run(2, [*RUN, plan, "--provider", "cuda", "--timeout", limit], **stand_ins)
        if where in found[0][2]:
            break
    what = f"no result within --timeout {limit} s: {where}\n"
    for rank, (status, out, err) in enumerate(found):
        lines = [line for line in err.splitlines(keepends=True) if line.startswith("error: ")]
        assert (status, out) == (1, "")
        assert lines == [f"error: rank 0 of 2: {what}" if rank else f"error: {what}"]


def test_where_ranks_are() -> None:
    ahead, behind = (
        "in AllGather node 'b' (collective 4)",
        "after AllReduce node 'a' (3 collectives done)",
    )
    places = {rank: Position(5, behind if rank == 1 else ahead) for rank in range(4)}
    assert whereabouts(places, 4) == f"rank 1 of 4 is {behind}; ranks 0, 2, 3 are {ahead}"
    alone = {0: Position(5, ahead)}
    assert whereabouts(alone, 3) == f"ranks 1, 2 of 3 do not answer; rank 0 is {ahead}"
    early = dict.fromkeys((0, 1), Position(0, "before its first collective"))
    assert whereabouts(early, 2) == "ranks 0, 1 of 2 are before their first collective"
