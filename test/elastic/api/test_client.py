"""The client against a real server: by name, by address, and what is left when there is none."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from stand_in_job import StandInJob

from tensoropt.elastic import Client
from tensoropt.elastic.api.client import PendingSwitch
from tensoropt.elastic.api.server import Serving, serve
from tensoropt.elastic.control import RefusedError, SwitchResult
from tensoropt.elastic.jobs import JobFolder
from tensoropt.runtime.support.errors import UserError

DONE = SwitchResult(2, 4, 5, "live", 6.0, 0.094, 1 << 20, "memory", {"publish": 0.03, "take": 0.05})


@pytest.fixture
def client(serving: Serving, job: StandInJob) -> Client:
    return Client(url=serving.url, token=serving.token)


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: Serving, job: StandInJob
) -> Iterator[JobFolder]:
    """The folder of a job that runs, and is named 'a'."""
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path))
    with JobFolder.create("a", {}) as found:
        found.write_api(serving.url, serving.token)
        found.write_status(job.now)
        for row in job.log:
            found.append_step(row)
        found.append_event(0, "started", "from the file")
        yield found


def test_what_is_read_is_what_the_job_says(client: Client, job: StandInJob) -> None:
    assert client.status() == job.now
    assert client.events() == job.happened
    assert client.events(after=1) == []
    assert client.steps() == job.log
    assert client.steps(after=1, limit=2) == job.log[-2:]
    assert client.output() == job.printed
    assert client.profile() == job.profile()
    assert client.profile([3]) == job.profile([3])


def test_a_switch(client: Client, job: StandInJob) -> None:
    assert client.scale(4, plan="b") == DONE
    assert client.migrate(["cpu:7"], method="stop-resume") == replace(
        DONE, from_devices=4, method="stop-resume"
    )
    assert job.asked == [("scale", 4, "b", "live"), ("migrate", ["cpu:7"], "stop-resume")]


def test_a_switch_that_is_not_waited_for(client: Client, job: StandInJob) -> None:
    job.switches_at_once = False
    switch = client.scale(4, wait=False)
    assert isinstance(switch, PendingSwitch)
    assert not switch.done()
    threading.Timer(0.1, job.finish).start()
    assert switch.result() == DONE
    assert switch.done()


def test_what_the_job_refuses(client: Client, job: StandInJob) -> None:
    with pytest.raises(RefusedError, match="no plan for 100 devices") as refusal:
        client.scale(100)
    assert not refusal.value.is_conflict
    job.switches_at_once = False
    switch = client.scale(4, wait=False)
    with pytest.raises(RefusedError, match="a switch is under way") as refusal:
        client.migrate()
    assert refusal.value.is_conflict
    job.finish(RefusedError("the new generation failed: rank 3: no memory"))
    assert isinstance(switch, PendingSwitch)
    with pytest.raises(RefusedError, match="the new generation failed: rank 3: no memory"):
        switch.result()


def test_a_request_that_is_wrong(client: Client) -> None:
    with pytest.raises(UserError, match=r"http://127.*: devices: expected at least 1, got: 0"):
        client.scale(0)


def test_events_are_followed_to_the_end(client: Client, job: StandInJob) -> None:
    def go_on() -> None:
        job.happen("checkpoint", "step 5")
        job.end()

    threading.Timer(0.2, go_on).start()
    assert [event.kind for event in client.follow()] == ["started", "checkpoint", "ended"]
    assert [event.kind for event in client.follow(after=2)] == ["ended"]


@pytest.mark.parametrize("kind", ["ended", "checkpoint"])
def test_events_are_followed_until_the_server_goes(job: StandInJob, kind: str) -> None:
    with serve(job) as serving:
        events = Client(url=serving.url, token=serving.token).follow(after=1)
        job.happen(kind, "")
        assert next(events).kind == kind
    if kind == "ended":
        assert list(events) == []
    else:
        with pytest.raises(UserError, match="no answer: Connection refused"):
            next(events)


def test_stopping(client: Client, job: StandInJob) -> None:
    client.stop(wait=False)
    threading.Timer(0.2, job.end, ("stopped",)).start()
    client.stop()
    assert job.asked == [("stop",), ("stop",)]
    assert client.status().state == "stopped"


def test_a_wrong_token(serving: Serving) -> None:
    with pytest.raises(UserError, match=r"http://127.*: token: wrong"):
        Client(url=serving.url, token="x").status()
    with pytest.raises(UserError, match="token: expected printable ASCII"):
        Client(url=serving.url, token="x\n")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:80", "URL: expected one such as http://host:8000, got: 'localhost:80'"),
        ("ftp://a", "URL: expected one such as"),
        ("http://a?b", "URL: expected one such as"),
        ("http://a:x", "URL: Port could not be cast"),
        ("http://127.0.0.1:9", "http://127.0.0.1:9: no answer: Connection refused"),
        ("http://nowhere.invalid", "http://nowhere.invalid: no answer: "),
    ],
)
def test_a_wrong_address(url: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Client(url=url).status()


def test_neither_or_both() -> None:
    for given in ({}, {"name": "a", "url": "http://a"}):
        with pytest.raises(UserError, match="Client: expected the name of a job, or a url"):
            Client(**given)


class Something(BaseHTTPRequestHandler):
    """What is no API of a job."""

    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/v1/output" else 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"detail": [' if self.path == "/v1/status" else b"{}")

    def log_message(self, *_: object) -> None:
        pass


def test_another_server() -> None:
    with HTTPServer(("127.0.0.1", 0), Something) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            client = Client(url=f"http://127.0.0.1:{server.server_port}")
            for ask in (client.status, client.output, client.steps, client.events):
                with pytest.raises(UserError, match="expected an answer of a job's API, got:"):
                    ask()
        finally:
            server.shutdown()


def test_a_job_by_name(folder: JobFolder, job: StandInJob) -> None:
    client = Client("a")
    assert client.status() == job.now
    assert client.scale(4) == DONE


def test_a_job_by_name_that_has_ended(folder: JobFolder, job: StandInJob) -> None:
    client = Client("a")
    job.end()
    folder.write_status(job.now)
    folder.remove_api()
    assert client.status() == job.now  # it ends just now: its files say how
    folder.close()
    assert client.status().state == "ended"
    assert client.steps() == job.log
    assert client.steps(limit=1) == job.log[-1:]
    assert [event.text for event in client.follow()] == ["from the file"]
    assert client.output() == ""
    for ask in (client.profile, client.stop, client.migrate, lambda: client.scale(4)):
        with pytest.raises(UserError, match="job 'a': expected one that runs, got: ended at step"):
            ask()


def test_a_server_that_goes_while_it_is_asked(folder: JobFolder, job: StandInJob) -> None:
    folder.write_api("http://127.0.0.1:9", "nobody is there any more")
    threading.Timer(0.3, folder.close).start()
    assert Client("a").status().state == "failed"


def test_a_job_that_never_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path))
    JobFolder.create("a", {}).close()
    with pytest.raises(UserError, match="job 'a': never started"):
        Client("a").status()
    with pytest.raises(UserError, match="job 'b': unknown, expected one of a"):
        Client("b")


def test_the_client_brings_nothing_heavy() -> None:
    code = (
        "import sys; from tensoropt.elastic import Client;"
        "heavy = {'fastapi', 'pydantic', 'uvicorn', 'numpy', 'onnx', 'onnxruntime', 'asyncio'};"
        "assert not heavy & {*sys.modules}, heavy & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
