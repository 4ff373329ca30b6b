"""Ranks that die, raise or hang: the job ends, says which rank and why, and leaves nothing."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from chaos import chaos
from handmade import Perceptron, failing_plan
from launched import BURNT_S, LIMIT_S, LIMITS_S, processor_s, rank_processes
from waiting import wait_until

from tensoropt.runtime.cli.run import main
from tensoropt.runtime.inference.jobs import check_plans
from tensoropt.runtime.launch import guardian, launcher
from tensoropt.runtime.support.errors import UserError


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own for temporary files, empty again at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    assert list(folder.iterdir()) == []
    assert rank_processes(folder) == {}


def guardian_of(temporary: Path) -> int:
    """The process that cleans up after the one job whose folder lies in ``temporary``."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().decode().split("\0")
            if any(w.endswith("guardian.py") for w in words) and str(temporary) in words[-2]:
                return int(process.name)
    raise AssertionError("no guardian")


def start(plan: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tensoropt.runtime.cli.run", str(plan), *flags]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def ranks_wait(temporary: Path, count: int = 2) -> dict[int, int]:
    """Wait until all ranks are inside MPI, that is, burn time; return their processes."""
    wait_until(lambda: len(list(temporary.glob("*/rank*.up"))) == count)
    found = rank_processes(temporary)
    for pid in found.values():
        wait_until(lambda maps=Path(f"/proc/{pid}/maps"): "onnxruntime" in maps.read_text())
        spent = processor_s(pid)
        wait_until(lambda pid=pid, end=spent + BURNT_S: processor_s(pid) > end)
    return found


@pytest.mark.parametrize(
    ("plan", "number", "text"),
    [
        ("hanging", signal.SIGKILL, "was killed by signal 9 (out of memory?)"),
        ("hanging", signal.SIGSEGV, "was killed by signal 11"),
        ("hanging_later", signal.SIGKILL, "was killed by signal 9 (out of memory?)"),
    ],
)
def test_a_rank_is_killed(
    request: pytest.FixtureRequest, temporary: Path, plan: str, number: int, text: str
) -> None:
    before = time.monotonic()
    job = start(request.getfixturevalue(plan))
    os.kill(ranks_wait(temporary)[1], number)
    killed = time.monotonic()
    out, err = job.communicate(timeout=LIMIT_S)
    assert time.monotonic() - killed < 5 + (killed - before)  # which other work prolongs alike
    assert (job.returncode, out, err) == (1, "", f"error: rank 1 of 2 {text}\n")


@pytest.mark.parametrize(
    ("limit", "value", "text"),
    [
        (resource.RLIMIT_NOFILE, 16, "raise the limit of open files (ulimit -n)\n"),
        # A thread cannot be started, or a rank aborts.
        (
            resource.RLIMIT_AS,
            203_000 << 10,
            (" (ulimit -u, ulimit -v)\n", " free some memory or raise its limit (ulimit -v)\n"),
        ),
    ],
)
def test_libraries_that_get_too_little(
    plan: Path, limit: int, value: int, text: str | tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "tensoropt.runtime.cli.run", str(plan)]
    limited = partial(resource.setrlimit, limit, (value, value))
    job = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=limited, timeout=LIMIT_S, check=False
    )
    assert (job.returncode, job.stdout) == (1, "")
    assert job.stderr.startswith("error: ")
    assert job.stderr.endswith(text)
    assert job.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("plan", "node"),
    [
        ("hanging", "AllReduce node 'AllReduce_0'"),
        ("hanging_later", "AllReduceStart node 'AllReduceStart_node'"),
    ],
)
def test_a_timeout(capsys, request: pytest.FixtureRequest, plan: str, node: str) -> None:
    for limit in LIMITS_S:
        assert main([str(request.getfixturevalue(plan)), "--timeout", str(limit)]) == 1
        err = capsys.readouterr().err
        if "AllReduce" in err:
            break
    assert err == (
        f"error: no result within --timeout {limit} s: rank 1 of 2 is before its first collective; "
        f"rank 0 is in {node} (collective 1)\n"
    )


def test_a_job_that_stands_still(capsys, hanging: Path) -> None:
    where = "rank 1 of 2 is before its first collective; rank 0 is in AllReduce node"
    for limit in (0.5, *LIMITS_S):
        assert main([str(hanging), "--stall", str(limit)]) == 1
        err = capsys.readouterr().err
        if where in err:
            break
    start = f"error: no rank has made progress within --stall {limit} s: "
    assert err.startswith(start + where)


def test_a_job_that_does_not_stand_still(capsys, plan: Path) -> None:
    assert main([str(plan), "--runs", "400", "--stall", "2", "--timeout", "60"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("stopped", "where"),
    [
        (
            1,
            "rank 1 of 2 does not answer; rank 0 is in AllReduce node 'AllReduce_0' (collective 1)",
        ),
        (0, "rank 0 does not answer"),
    ],
)
def test_a_rank_that_is_stopped(hanging: Path, temporary: Path, stopped: int, where: str) -> None:
    for limit in LIMITS_S:
        job = start(hanging, "--timeout", str(limit))
        with suppress(OSError, KeyError):  # it has ended before
            os.kill(ranks_wait(temporary)[stopped], signal.SIGSTOP)
        out, err = job.communicate(timeout=limit + LIMIT_S)
        if where in err:
            break
    assert (job.returncode, out) == (1, "")
    assert err.startswith(f"error: no result within --timeout {limit} s: {where}")


def test_ranks_that_do_not_come_up(capsys, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "RANKS_END_S", 0.0)
    assert main([str(plan), "--timeout", "0.001"]) == 1
    err = capsys.readouterr().err
    assert err == (
        "error: no result within --timeout 0.001 s: rank 0, 1 did not come up, "
        "the 2 ranks were ended\n"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_launcher_is_ended(hanging: Path, temporary: Path, number: int) -> None:
    job = start(hanging)
    ranks_wait(temporary)
    job.send_signal(number)
    out, err = job.communicate(timeout=LIMIT_S)
    assert (out, err) == ("", "")
    assert job.returncode in (130, 143, -signal.SIGKILL)
    wait_until(lambda: not rank_processes(temporary) and not list(temporary.iterdir()))


@pytest.mark.parametrize("signals", [[signal.SIGKILL], [signal.SIGSTOP, signal.SIGKILL]])
def test_the_guardian_is_killed(hanging: Path, temporary: Path, signals: list[int]) -> None:
    job = start(hanging)
    ranks_wait(temporary)
    for number in signals:
        os.kill(guardian_of(temporary), number)
    out, err = job.communicate(timeout=LIMIT_S)
    text = "error: the process that cleans up after the ranks was killed\n"
    assert (job.returncode, out, err) == (1, "", text)


def test_launcher_and_guardian_are_killed(plan: Path, hanging: Path, temporary: Path) -> None:
    """The system kills the ranks; the next job removes what is left, once it is old."""
    job = start(hanging)
    ranks = ranks_wait(temporary)
    job.send_signal(signal.SIGSTOP)  # it does not see the guardian go
    os.kill(guardian_of(temporary), signal.SIGKILL)
    job.kill()
    job.communicate(timeout=LIMIT_S)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks.values()))
    (folder,) = temporary.iterdir()
    assert main([str(plan)]) == 0
    assert folder.is_dir()  # it might have been just made
    os.utime(folder, (0, 0))
    with held(folder):
        assert main([str(plan)]) == 0
        assert folder.is_dir()
    assert main([str(plan)]) == 0
    assert not folder.exists()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a folder like a launcher that lives."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def test_the_names_of_shared_memory(hanging: Path, temporary: Path) -> None:
    """MPICH's file is what the guardian takes it for, and is gone as soon as all ranks have it."""
    libc = ctypes.CDLL(None)
    created, watched = libc.inotify_init1(os.O_NONBLOCK), Path("/dev/shm")
    assert libc.inotify_add_watch(created, str(watched).encode(), 0x100) > 0  # IN_CREATE
    job = start(hanging)
    ranks_wait(temporary)
    (folder,) = temporary.iterdir()
    seen = os.read(created, 1 << 16)
    os.close(created)
    names = {watched / name.decode() for name in re.findall(rb"mpich_shm_[0-9a-f]+_0", seen)}
    assert guardian.shared_memory(folder.name) == []
    gone = {name for name in names if not name.exists()}  # of jobs of other tests too
    for name in gone:
        name.touch()
    (name,) = guardian.shared_memory(folder.name)
    assert name in gone
    for other in gone - {name}:
        other.unlink()
    job.kill()
    job.communicate(timeout=LIMIT_S)
    wait_until(lambda: not name.exists() and not folder.exists())


def test_chaos() -> None:
    """A sample of ``make chaos``."""
    counts, wrong = chaos(1, 0, print)
    assert sum(counts.values()) >= 1
    assert wrong == []


def test_a_rank_raises(capsys, perceptron: Perceptron, tmp_path: Path) -> None:
    plan = failing_plan(tmp_path / "failing", perceptron.model, 3, [0, 1])
    assert main([str(plan)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: rank 1 of 2: {plan}: Non-zero status code returned while")
    assert "Name:'fold'" in err
    assert err.count("\n") == 1


def test_a_session_cannot_be_made(capsys, perceptron: Perceptron, tmp_path: Path) -> None:
    plan = failing_plan(tmp_path / "failing", perceptron.model, 2, [0, 5])
    assert main([str(plan)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: {plan}: rank 0: {plan / 'rank0.onnx'}: ")
    assert "AllReduce node 'total': group names ranks that do not exist" in err


def test_one_bad_plan_does_not_stop_the_others(perceptron: Perceptron, tmp_path: Path) -> None:
    bad = perceptron.plan(tmp_path / "bad", group=[0, 5])
    good = perceptron.plan(tmp_path / "good")
    results = check_plans([bad, good], perceptron.model)
    assert [result.passed for result in results] == [False, True]
    assert "group names ranks that do not exist" in str(results[0].error)


def test_no_library(capsys, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensoropt.runtime import ops

    monkeypatch.setattr(ops, "_NAME", "libnone.so")
    with pytest.raises(UserError, match=r"libnone\.so: not built, expected it after: pip install"):
        ops.library_path()
