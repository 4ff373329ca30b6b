"""Python client of a job: by its name on this machine, or by the URL of its API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar, overload

from tensoropt.elastic.api.http import Http, NoAnswerError
from tensoropt.elastic.control import (
    OVER,
    Event,
    JobStatus,
    ProfileRow,
    RefusedError,
    StepRow,
    SwitchResult,
)
from tensoropt.elastic.jobs import JobFolder
from tensoropt.elastic.records import (
    event_from,
    profile_row_from,
    status_from,
    step_from,
    switch_from,
)
from tensoropt.runtime.support.errors import UserError

__all__ = ["Client", "PendingSwitch"]

_WAIT_S = 30.0
_GONE_S = 3.0
_LOOK_S = 0.05
_Answer = TypeVar("_Answer")


class Client:
    """A client of a job, by ``Client("bert")`` or ``Client(url=..., token=...)``.

    It has the methods of `JobControl`. A job by name can also be read after its end. Every method
    raises `RefusedError` if the job refuses, and `UserError` if the job cannot be reached. Nothing
    stays open between requests.
    """

    def __init__(self, name: str | None = None, *, url: str | None = None, token: str = "") -> None:
        if (name is None) == (url is None):
            raise UserError("Client: expected the name of a job, or a url")
        self._folder = None if name is None else JobFolder.open(name)
        self._http = None if url is None else Http(url, token)

    def status(self) -> JobStatus:
        """Return the job's status."""
        return self._read(lambda http: status_from(http.get("/v1/status")), self._last_status)

    def events(self, after: int = 0, *, wait_s: float = 0.0) -> Sequence[Event]:
        """Return the events numbered higher than ``after``.

        Waits up to ``wait_s`` seconds, 60 at most, for the first one.
        """
        return self._read(
            lambda http: [
                event_from(facts)
                for facts in http.get("/v1/events", after=after, wait_s=wait_s)["events"]
            ],
            lambda folder: folder.events(after),
        )

    def follow(self, after: int = 0) -> Iterator[Event]:
        """Yield events as they happen, until the job has ended."""
        last = ""
        while True:
            try:
                is_over = self.status().state in OVER
                events = self.events(after, wait_s=0.0 if is_over else _WAIT_S)
            except NoAnswerError:
                if last in OVER:
                    return
                raise
            for event in events:
                after, last = event.number, event.kind
                yield event
            if is_over:
                return
            time.sleep(0.0 if events else _LOOK_S)

    def steps(self, after: int = 0, limit: int = 10_000) -> Sequence[StepRow]:
        """Return the steps later than ``after``, at most the last ``limit``, up to 100,000."""
        return self._read(
            lambda http: [
                step_from(facts)
                for facts in http.get("/v1/steps", after=after, limit=limit)["steps"]
            ],
            lambda folder: folder.steps(after, limit),
        )

    def output(self) -> str:
        """Return the last 64 KiB of the ranks' output."""
        return self._read(lambda http: str(http.get("/v1/output")), lambda folder: folder.output())

    def profile(self, devices: Sequence[int] | None = None) -> Sequence[ProfileRow]:
        """Return throughput by number of devices, for ``devices`` or the family's counts."""
        counts = None if devices is None else ",".join(str(count) for count in devices)
        rows = self._ask(lambda http: http.get("/v1/profile", devices=counts))["rows"]
        return [profile_row_from(facts) for facts in rows]

    @overload
    def scale(
        self, devices: int, *, plan: str | None = ..., method: str = ..., wait: Literal[True] = ...
    ) -> SwitchResult: ...
    @overload
    def scale(
        self, devices: int, *, plan: str | None = ..., method: str = ..., wait: bool
    ) -> SwitchResult | PendingSwitch: ...
    def scale(
        self, devices: int, *, plan: str | None = None, method: str = "live", wait: bool = True
    ) -> SwitchResult | PendingSwitch:
        """Continue with ``devices``, or another ``plan`` of the family.

        Returns when the switch is done, or immediately without ``wait``. If the job refuses, it
        continues unchanged.
        """
        return self._switch("/v1/scale", wait, devices=devices, plan=plan, method=method)

    def migrate(
        self, to: Sequence[str] | None = None, *, method: str = "live", wait: bool = True
    ) -> SwitchResult | PendingSwitch:
        """Continue on the same number of other devices: ``to``, or free devices; see `scale`."""
        named = None if to is None else list(to)
        return self._switch("/v1/migrate", wait, to=named, method=method)

    def stop(self, *, wait: bool = True) -> None:
        """Write a checkpoint and end; returns when the job has ended, or immediately."""
        ended = self._ask(lambda http: http.post("/v1/stop", wait_s=0.0))["ended"]
        while wait and not ended:
            try:
                ended = self.status().state in OVER
            except NoAnswerError:
                return
            time.sleep(0.0 if ended else _LOOK_S)

    def _switch(self, path: str, wait: bool, **asked: Any) -> SwitchResult | PendingSwitch:
        wait_s = _WAIT_S if wait else 0.0
        facts = self._ask(lambda http: http.post(path, wait_s=wait_s, **asked))
        pending = PendingSwitch(self, facts)
        return pending.result() if wait else pending

    def _ask(self, ask: Callable[[Http], _Answer]) -> _Answer:
        http = self._http
        if http is None:
            assert self._folder is not None
            address = self._folder.address()  # changes if the job's coordinator is restarted
            http = Http(address.url, address.token)
        return _check_answer(http, ask)

    def _read(
        self, ask: Callable[[Http], _Answer], from_files: Callable[[JobFolder], _Answer]
    ) -> _Answer:
        """Query the job, or read its files if it has ended or ends during the request."""
        if self._folder is None:
            return self._ask(ask)
        end = time.monotonic() + _GONE_S
        while (address := self._folder.find_address()) is not None:
            try:
                return _check_answer(Http(address.url, address.token), ask)
            except NoAnswerError:
                if time.monotonic() > end:
                    raise
                time.sleep(_LOOK_S)
        return from_files(self._folder)

    def _last_status(self, folder: JobFolder) -> JobStatus:
        status = folder.status()
        if status is None:
            raise UserError(f"job '{folder.name}': never started")
        return status


def _check_answer(http: Http, ask: Callable[[Http], _Answer]) -> _Answer:
    """Return the answer. Raises `UserError` for JSON that no job's API sends."""
    try:
        return ask(http)
    except (KeyError, TypeError):
        raise UserError(f"{http.url}: expected an answer of a job's API, got: other JSON") from None


class PendingSwitch:
    """A requested switch; the job continues with it even if nobody polls."""

    def __init__(self, client: Client, facts: dict[str, Any]) -> None:
        self._client, self._facts = client, facts

    @property
    def number(self) -> int:
        """The number of the switch in the API."""
        return int(self._facts["number"])

    @property
    def state(self) -> str:
        """``under way``, ``done`` or ``refused``, as of the last request."""
        return str(self._facts["state"])

    def done(self) -> bool:
        """Return whether it is done or refused, after a request to the job."""
        self._look(0.0)
        return self.state != "under way"

    def result(self) -> SwitchResult:
        """Wait for the switch and return its result. Raises `RefusedError` if it was refused."""
        while self.state == "under way":
            self._look(_WAIT_S)
        if self._facts["error"] is not None:
            raise RefusedError(self._facts["error"])
        return switch_from(self._facts["result"])

    def _look(self, wait_s: float) -> None:
        if self.state == "under way":
            path = f"/v1/switches/{self._facts['number']}"
            self._facts = self._client._ask(lambda http: http.get(path, wait_s=wait_s))
