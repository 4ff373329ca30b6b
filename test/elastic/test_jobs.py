"""Folders of jobs: who may write, what is read after the end, names, and every message."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tensoropt.elastic.control import JobStatus, RankStatus, StepRow
from tensoropt.elastic.jobs import (
    OUTPUT_BYTES,
    JobFolder,
    address_of,
    is_alive,
    job_folder,
    job_names,
    jobs_root,
)
from tensoropt.runtime.support.errors import UserError

STATUS = JobStatus(
    "a", "training", 7, 100, 2, "2", 1, "family", loss=0.5, ranks=(RankStatus(0, "cpu:0", 5, 0.1),)
)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path / "jobs"))
    return tmp_path / "jobs"


def test_where_jobs_are(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    assert jobs_root() == root
    monkeypatch.delenv("TENSOROPT_JOBS")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert jobs_root() == Path("/state/tensoropt/jobs")
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    assert jobs_root() == Path.home() / ".local/state/tensoropt/jobs"


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "-a", ".a", "a b", "a" * 65, "é"])
def test_a_wrong_name(name: str) -> None:
    with pytest.raises(UserError, match="job name: expected 1 to 64 letters, digits"):
        job_folder(name)


def test_a_new_job_is_its_owners_alone(root: Path) -> None:
    with JobFolder.create("a", {"steps": 3}) as job:
        job.write_api("http://127.0.0.1:1", "secret")
        job.write_status(STATUS)
        assert (root / "a").stat().st_mode & 0o777 == 0o700
        for name in ("api.json", "status.json", "job.json"):
            assert (root / "a" / name).stat().st_mode & 0o777 == 0o600
        assert job.request() == {"steps": 3}


def test_what_is_written_is_read_after_the_end() -> None:
    with JobFolder.create("a", {}) as job:
        job.append_step(StepRow(1, 0.5, 0.1, 2, 1))
        job.append_step(StepRow(2, math.nan, 0.1, 2, 1))
        event = job.append_event(2, "switched", "from 2 devices to 4", {"stall_s": math.inf})
        job.write_status(STATUS)
        job.output_path.write_bytes(b"x" * OUTPUT_BYTES + b"\xff end")
    with JobFolder.open("a") as job:
        assert list(job.steps()) == [StepRow(1, 0.5, 0.1, 2, 1), StepRow(2, None, 0.1, 2, 1)]
        assert [found.number for found in job.events()] == [event.number] == [1]
        assert job.events()[0].facts == {"stall_s": None}
        assert job.events(1) == []
        assert len(job.output()) == OUTPUT_BYTES
        assert job.output().endswith("\ufffd end")


def test_steps_are_taken_again_after_a_crash() -> None:
    with JobFolder.create("a", {}) as job:
        for step in range(1, 8):
            job.append_step(StepRow(step, 1.0, 0.1, 2, 1))
        job.truncate_steps(5)
        job.append_step(StepRow(6, 2.0, 0.1, 1, 2))
        assert [(row.step, row.generation) for row in job.steps(4)] == [(5, 1), (6, 2)]


def test_events_are_numbered_on_when_a_job_goes_on() -> None:
    for number in (1, 2):
        with JobFolder.create("a", {"steps": 3}) as job:
            assert job.append_event(0, "started", "go").number == number


def test_one_coordinator_at_a_time() -> None:
    with JobFolder.create("a", {}) as job:
        assert job.is_alive()
        assert is_alive("a")
        with pytest.raises(UserError, match="job 'a': runs already, expected another --name"):
            JobFolder.create("a", {})
    assert not is_alive("a")


def test_who_asks_whether_it_lives_does_not_keep_a_coordinator_away() -> None:
    JobFolder.create("a", {}).close()
    code = (
        "import fcntl, os, sys, time; d = os.open(sys.argv[1], os.O_RDONLY);"
        "fcntl.flock(d, fcntl.LOCK_SH); print(flush=True); time.sleep(0.2)"
    )
    lock = str(job_folder("a") / "lock")
    with subprocess.Popen([sys.executable, "-c", code, lock], stdout=subprocess.PIPE) as asking:
        assert asking.stdout is not None
        asking.stdout.readline()
        JobFolder.create("a", {}).close()


def test_another_job_of_that_name() -> None:
    JobFolder.create("a", {"family": "f", "steps": 3}).close()
    with pytest.raises(
        UserError,
        match=r"job 'a': expected the job that has this name, with steps 3, or another --name, "
        r"got: 4 \(.*/a\)",
    ):
        JobFolder.create("a", {"family": "f", "steps": 4})
    with pytest.raises(UserError, match="with steps 3, or another --name, got: null"):
        JobFolder.create("a", {"family": "f"})
    with pytest.raises(UserError, match="with seed null, or another --name, got: 5 "):
        JobFolder.create("a", {"family": "f", "steps": 4, "training": {"seed": 5}})
    assert not is_alive("a")


def test_a_coordinator_that_died_has_failed() -> None:
    code = (
        "import os, signal, sys; from tensoropt.elastic.jobs import JobFolder;"
        "from tensoropt.elastic.control import JobStatus;"
        "job = JobFolder.create('a', {}); job.write_api('http://127.0.0.1:1', 't');"
        "job.write_status(JobStatus('a', 'training', 7, 100, 2, '2', 1, 'f'));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -signal.SIGKILL
    with JobFolder.open("a") as job:
        status = job.status()
        assert status is not None
        assert (status.state, status.error) == ("failed", "the coordinator died")
        with pytest.raises(UserError, match="expected one that runs, got: failed at step 7"):
            job.address()


def test_the_address() -> None:
    with JobFolder.create("a", {}) as job:
        with pytest.raises(UserError, match="job 'a': has no API yet, try again"):
            address_of("a")
        job.write_api("http://127.0.0.1:1", "secret")
        found = address_of("a")
        assert (found.url, found.token, found.pid) == ("http://127.0.0.1:1", "secret", os.getpid())
        assert "secret" not in repr(found)
        job.remove_api()
        with pytest.raises(UserError, match="has no API yet"):
            address_of("a")
    with pytest.raises(UserError, match="expected one that runs, got: one that never started"):
        address_of("a")


def test_an_unknown_job(root: Path) -> None:
    with pytest.raises(UserError, match=f"job 'bert': unknown, none is in {root}"):
        JobFolder.open("bert")
    JobFolder.create("bert-1", {}).close()
    (root / "no-job").mkdir()
    assert job_names() == ["bert-1"]
    with pytest.raises(
        UserError, match=r"job 'bert': unknown, expected one of bert-1, did you mean 'bert-1'\?"
    ):
        JobFolder.open("bert")


def test_a_folder_that_others_can_write_to(root: Path) -> None:
    (root / "a").mkdir(parents=True)
    (root / "a").chmod(0o777)
    with pytest.raises(UserError, match="/a: expected a folder that only you can write to"):
        JobFolder.create("a", {})


def test_a_spoilt_file(root: Path) -> None:
    JobFolder.create("a", {}).close()
    (root / "a" / "status.json").write_text("{")
    with pytest.raises(UserError, match=r"status.json: expected JSON, got: Expecting"):
        JobFolder.open("a").status()


def test_the_status_is_read_as_it_was_written() -> None:
    with JobFolder.create("a", {}) as job:
        assert job.status() is None
        job.write_status(STATUS)
        assert job.status() == STATUS


def test_a_home_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TENSOROPT_JOBS", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"HOME=.*none: expected an existing folder, or TENSOROPT_"):
        JobFolder.create("a", {})
    assert not (tmp_path / "none").exists()


def test_a_folder_that_somebody_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path))
    with JobFolder.create("a", {}) as folder:
        folder.append_event(0, "started", "")
        folder.check_there()
        shutil.rmtree(folder.path)
        assert folder.append_event(0, "failed", "").number == 2
        with pytest.raises(UserError, match=r"a: was removed while job 'a' ran, .*; run the job"):
            folder.check_there()
