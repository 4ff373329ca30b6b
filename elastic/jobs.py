"""Folders of elastic jobs: one per job, under its name, which remains after the job's end.

job.json      the request              lock          locked while a coordinator lives
api.json      address of the API       status.json   the last `JobStatus`
events.jsonl  one `Event` per line     steps.jsonl   one `StepRow` per line
output.log    output of the ranks
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tensoropt.elastic.control import OVER, Event, JobStatus, StepRow
from tensoropt.elastic.records import event_from, facts_of, json_line, status_from, step_from
from tensoropt.elastic.rows import Rows
from tensoropt.runtime.support.closing import Closing
from tensoropt.runtime.support.errors import UserError, cause_of, did_you_mean
from tensoropt.runtime.support.files import replace_private

__all__ = [
    "OUTPUT_BYTES",
    "Address",
    "JobFolder",
    "address_of",
    "check_name",
    "is_alive",
    "job_folder",
    "job_names",
    "jobs_root",
]

OUTPUT_BYTES = 1 << 16
"""Size of the returned tail of the ranks' output."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_LOCK_S = 1.0  # liveness probes hold the job's lock briefly


@dataclass(frozen=True)
class Address:
    """Address of a job's API: process ``pid`` serves it at ``url`` to holders of ``token``."""

    url: str
    token: str = field(repr=False)
    pid: int

    @property
    def page(self) -> str:
        """The page's full address: the token is in the fragment, which browsers do not send."""
        return f"{self.url}/#token={self.token}" if self.token else f"{self.url}/"


def jobs_root() -> Path:
    """Return the folder of all jobs: $TENSOROPT_JOBS, or one in the user's state folder."""
    chosen = os.environ.get("TENSOROPT_JOBS")
    if chosen:
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else _home() / ".local" / "state"
    return base / "tensoropt" / "jobs"


def _home() -> Path:
    home = Path.home()
    if not home.is_dir():
        raise UserError(
            f"HOME={home}: expected an existing folder, or TENSOROPT_JOBS with one for jobs"
        )
    return home


def check_name(name: str) -> str:
    """Return ``name``. Raises `UserError` unless it is a valid job name."""
    if not _NAME.fullmatch(name):
        raise UserError(
            "job name: expected 1 to 64 letters, digits or any of '-_.', the first no '-' or '.', "
            f"got: '{name[:80]}'"
        )
    return name


def job_folder(name: str) -> Path:
    """Return the folder of the job ``name``, existing or not. Raises `UserError`."""
    return jobs_root() / check_name(name)


def job_names() -> list[str]:
    """Return the names of all jobs, sorted. Raises `UserError` if they cannot be read."""
    root = jobs_root()
    try:
        found = [path.name for path in root.iterdir() if (path / "job.json").is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(root, error) from None
    return sorted(name for name in found if _NAME.fullmatch(name))


def address_of(name: str) -> Address:
    """Return the address of a job's API. Raises `UserError` unless it runs."""
    with JobFolder.open(name) as job:
        return job.address()


def is_alive(name: str) -> bool:
    """Return whether a coordinator runs the job. Raises `UserError` for an unknown job."""
    with JobFolder.open(name) as job:
        return job.is_alive()


Extends = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""Predicate: the second request continues the job of the first."""


class JobFolder(Closing):
    """The files of a job: `create` for its coordinator, the only writer, `open` to read.

    Both return context managers. Thread-safe.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = job_folder(name)
        self._events = Rows(self.path / "events.jsonl", "number", flush_s=0.0)
        self._steps = Rows(self.path / "steps.jsonl", "step")
        self._numbering = threading.Lock()
        self._lock: int | None = None
        self._unwritten: str | None = None

    @classmethod
    def open(cls, name: str) -> JobFolder:
        """Return the folder of an existing job, running or not. Raises `UserError`."""
        folder = cls(name)
        try:
            (folder.path / "job.json").stat()
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(_unknown(name)) from None
        except OSError as error:
            raise _unreadable(folder.path, error) from None
        return folder

    @classmethod
    def create(
        cls, name: str, asked: Mapping[str, Any], extends: Extends = lambda before, asked: False
    ) -> JobFolder:
        """Return the locked folder for a coordinator: a new one, or an existing job's.

        ``asked`` is JSON. It must equal the request that the job was started with, or extend it.
        Raises `UserError` if the job runs already, or its request differs.
        """
        folder = cls(name)
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(folder.path)
        folder.lock()
        try:
            folder._claim(json.loads(json.dumps(asked)), extends)
        except BaseException:
            folder.close()
            raise
        return folder

    def check_there(self) -> None:
        """Raise `UserError` if somebody has removed the folder."""
        if not (self.path / "lock").is_file():
            raise UserError(
                f"{self.path}: was removed while job '{self.name}' ran, its steps since the last "
                "checkpoint are lost; run the job again, and end jobs with tensoropt-job stop"
            )

    def lock(self) -> None:
        """Become the writer, until `close` or the end of the process.

        Raises `UserError` if another process is the writer.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        if not _try_lock(descriptor):
            os.close(descriptor)
            raise UserError(f"job '{self.name}': runs already, expected another --name")
        self._lock = descriptor

    def close(self) -> None:
        """Write everything to the files and release the lock for another coordinator.

        Raises `UserError` if lines could not be written.
        """
        try:
            try:
                self._events.close()
            finally:
                self._steps.close()
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    # Written by the coordinator.

    def append_event(
        self, step: int, kind: str, text: str, facts: Mapping[str, Any] | None = None
    ) -> Event:
        """Append an event of now, under the next number; it is flushed immediately."""
        with self._numbering:
            number = self._events.last() + 1
            event = Event(number, time.time(), step, kind, text, dict(facts or {}))
            self._events.append(facts_of(event))
        return event

    def append_step(self, row: StepRow) -> None:
        """Append a step. `steps` of this object returns it immediately; the file has it after the
        next flush: by the first step half a second after the last one, or by `flush`.

        Raises ValueError unless it is later than the last step.
        """
        self._steps.append(facts_of(row))

    def flush(self) -> None:
        """Write all steps and events to their files; `trouble` returns a failure."""
        self._steps.flush()
        self._events.flush()

    def trouble(self) -> str | None:
        """Return the file that could not be written last, and why; None if all were."""
        for rows in (self._steps, self._events):
            if rows.error is not None:
                return f"{rows.path}: {cause_of(rows.error)}"
        return self._unwritten

    def truncate_steps(self, after_step: int) -> None:
        """Remove the steps later than ``after_step``: they will be repeated."""
        self._steps.truncate(after_step)

    def write_status(self, status: JobStatus) -> None:
        """Replace the status; `trouble` returns a failure until a later write succeeds."""
        try:
            self._write("status.json", facts_of(status))
        except OSError as error:
            self._unwritten = f"{self.path / 'status.json'}: {cause_of(error)}"
        else:
            self._unwritten = None

    def write_api(self, url: str, token: str) -> None:
        """Record the address at which this process serves the API, until `remove_api`."""
        self._write("api.json", {"url": url, "token": token, "pid": os.getpid()})

    def remove_api(self) -> None:
        """Remove the address of the API, which is no longer served."""
        (self.path / "api.json").unlink(missing_ok=True)

    @property
    def output_path(self) -> Path:
        """The file for the ranks' output."""
        return self.path / "output.log"

    # Readable by any process.

    def request(self) -> dict[str, Any]:
        """Return the request that the job was started with."""
        return self._read("job.json")

    def is_alive(self) -> bool:
        """Return whether a coordinator runs the job."""
        if self._lock is not None:
            return True
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unreadable(self.path, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def find_address(self) -> Address | None:
        """Return the API's address; None if the job does not run, or serves no API at present."""
        if not self.is_alive():
            return None
        try:
            facts = self._read("api.json")
        except FileNotFoundError:
            return None
        return Address(facts["url"], facts["token"], facts["pid"])

    def address(self) -> Address:
        """Return the API's address. Raises `UserError` unless the job runs and has one."""
        address = self.find_address()
        if address is not None:
            return address
        if self.is_alive():
            raise UserError(f"job '{self.name}': has no API yet, try again")
        raise UserError(f"job '{self.name}': expected one that runs, got: {self._ended()}")

    def status(self) -> JobStatus | None:
        """Return the last status, None before the first.

        A job counts as failed if its coordinator died.
        """
        try:
            status = status_from(self._read("status.json"))
        except FileNotFoundError:
            return None
        if status.state not in OVER and not self.is_alive():
            return replace(status, state="failed", error="the coordinator died")
        return status

    def events(self, after: int = 0) -> Sequence[Event]:
        """Return the events numbered higher than ``after``."""
        return [event_from(facts) for facts in self._events.rows_after(after)]

    def steps(self, after: int = 0, limit: int = 10_000) -> Sequence[StepRow]:
        """Return the steps later than ``after``, at most the last ``limit``."""
        return [step_from(facts) for facts in self._steps.rows_after(after, limit)]

    def output(self) -> str:
        """Return the last `OUTPUT_BYTES` of the ranks' output."""
        try:
            with self.output_path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - OUTPUT_BYTES, 0))
                return file.read(OUTPUT_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _ended(self) -> str:
        status = self.status()
        return (
            "one that never started" if status is None else f"{status.state} at step {status.step}"
        )

    def _claim(self, asked: dict[str, Any], extends: Extends) -> None:
        try:
            before: dict[str, Any] | None = self._read("job.json")
        except FileNotFoundError:
            before = None
        if before is None or (before != asked and extends(before, asked)):
            self._write("job.json", asked)
        elif before != asked:
            raise UserError(f"job '{self.name}': {_difference(before, asked)} ({self.path})")

    def _write(self, name: str, facts: Mapping[str, Any]) -> None:
        replace_private(self.path / name, json_line(facts))

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            facts: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unreadable(path, error) from None
        except ValueError as error:
            raise UserError(f"{path}: expected JSON, got: {error}") from None
        return facts


def _try_lock(descriptor: int) -> bool:
    end = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        else:
            return True


def _check_private(path: Path) -> None:
    facts = path.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise UserError(f"{path}: expected a folder that only you can write to")


def _difference(before: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Describe the difference of two requests by their first differing fact.

    More steps alone are no difference, so steps come last.
    """
    old, new = _flat(before), _flat(asked)
    keys = [key for key in {**old, **new} if old.get(key, ...) != new.get(key, ...)]
    key = next((key for key in keys if key not in ("steps", "total_steps")), keys[0])
    return (
        f"expected the job that has this name, with {key} {json.dumps(old.get(key))}, "
        f"or another --name, got: {json.dumps(new.get(key))}"
    )


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts with nested mappings flattened."""
    flat: dict[str, Any] = {}
    for key, value in facts.items():
        flat |= value if isinstance(value, dict) else {key: value}
    return flat


def _unknown(name: str) -> str:
    names = job_names()
    known = f"expected one of {', '.join(names[:10])}" if names else f"none is in {jobs_root()}"
    return f"job '{name}': unknown, {known}{did_you_mean(name, names)}"


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path}: expected a readable folder, got: {cause_of(error)}")
