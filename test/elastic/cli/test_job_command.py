"""tensoropt-job: what it prints, to people and to programs, and every message."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from stand_in_job import StandInJob

from tensoropt.elastic import Client
from tensoropt.elastic.api.server import Serving, serve
from tensoropt.elastic.cli.job import main
from tensoropt.elastic.cli.run import _is_training
from tensoropt.elastic.control import RefusedError, StepRow
from tensoropt.elastic.jobs import JobFolder
from tensoropt.elastic.records import facts_of

SWITCH = {
    "from": 2,
    "to": 4,
    "step": 5,
    "method": "live",
    "prepared_s": 6.0,
    "stall_s": 0.094,
    "moved_bytes": 1 << 20,
    "moved_by": "memory",
    "phases_s": {"publish": 0.03, "take": 0.05},
}
Command = Callable[..., str]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSOROPT_JOBS", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    return tmp_path


@pytest.fixture
def job() -> StandInJob:
    return StandInJob()


@pytest.fixture
def serving(job: StandInJob) -> Iterator[Serving]:
    """The job, which is named 'bert'."""
    with JobFolder.create("bert", {}) as folder, serve(job) as found:
        folder.write_api(found.url, found.token)
        folder.write_status(job.now)
        yield found


@pytest.fixture
def ended(job: StandInJob) -> None:
    """Leave what a job leaves that has ended."""
    with JobFolder.create("bert", {}) as folder:
        folder.append_event(0, "started", "2 devices, plan 2")
        for row in job.log:
            folder.append_step(row)
        job.end()
        folder.write_status(job.now)
        folder.output_path.write_text("rank 0: bye\n")


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command; returns what it prints."""

    def says(*arguments: str) -> str:
        status = main(arguments)
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return says


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command; returns its one line of error."""

    def refused(*arguments: str) -> str:
        status = main(arguments)
        out, err = capsys.readouterr()
        assert (status, out) == (1, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err.removeprefix("error: ").rstrip("\n")

    return refused


@pytest.mark.usefixtures("serving")
class TestOfAJobThatRuns:
    def test_scale(self, says: Command, job: StandInJob) -> None:
        assert json.loads(says("scale", "bert", "--devices", "4", "--wait")) == SWITCH
        assert says("scale", "bert", "--devices", "2", "--wait", "--format", "text") == (
            "4 devices -> 2 after step 5, live: prepared in 6 s, stalled 94.000 ms "
            "(publish 30.000 ms, take 50.000 ms), moved 1 MiB (memory)\n"
        )
        says("scale", "bert", "--devices", "4", "--plan", "lean", "--method", "stop-resume")
        assert job.asked[-1] == ("scale", 4, "lean", "stop-resume")

    def test_without_waiting(self, says: Command, job: StandInJob) -> None:
        job.switches_at_once = False
        asked = json.loads(says("scale", "bert", "--devices", "4"))
        assert asked == {"number": 1, "state": "under way"}
        job.finish()
        assert says("migrate", "bert", "--format", "text") == "switch 2: under way\n"
        assert job.asked[-1] == ("migrate", None, "live")

    def test_migrate(self, says: Command, job: StandInJob) -> None:
        found = json.loads(says("migrate", "bert", "--to", "cpu:2,cpu:3", "--wait"))
        assert found == {**SWITCH, "to": 2}
        assert job.asked == [("migrate", ["cpu:2", "cpu:3"], "live")]

    def test_profile(self, says: Command) -> None:
        assert says("profile", "bert", "--devices", "2,3").splitlines() == [
            "devices  plan  predicted      measured       in steps  memory per device",
            "2        2     340 samples/s  320 samples/s  5         64 MiB",
            "3        -     -              -              0         -"
            "                  no plan in the family",
        ]
        rows = json.loads(says("profile", "bert", "--format", "json"))
        assert [row["devices"] for row in rows] == [1, 2, 4]

    def test_status(self, says: Command, job: StandInJob) -> None:
        assert says("status", "bert").splitlines() == [
            "stand-in: training, step 5 of 1000, loss 0.25, 100.000 ms, 320 samples/s, "
            "2 devices (plan 2)",
            "generation 1 of family families/mlp",
            "started 2027-01-15 08:00:00",
            "snapshot after step 4",
            "rank  device  pid  own time",
            "0     cpu:0   100  80.000 ms",
            "1     cpu:1   101  80.000 ms",
        ]
        assert json.loads(says("status", "bert", "--format", "json")) == facts_of(job.now)

    def test_status_is_followed(self, says: Command, job: StandInJob) -> None:
        job.changes = [job.take_step, job.end]
        lines = says("status", "bert", "--follow", "--format", "json").splitlines()
        found = [(facts["step"], facts["state"]) for facts in map(json.loads, lines)]
        assert found == [(5, "training"), (6, "training"), (6, "ended")]

    def test_events(self, says: Command, job: StandInJob) -> None:
        threading.Timer(0.3, job.end).start()
        first, last = says("events", "bert", "--follow").splitlines()
        assert first == "08:00:00  step 0  started     2 devices, plan 2"
        assert last.endswith("  step 5  ended       ended")
        lines = says("events", "bert", "--format", "json").splitlines()
        assert [json.loads(line)["kind"] for line in lines] == ["started", "ended"]

    def test_what_a_job_says_is_no_command_to_the_terminal(
        self, says: Command, job: StandInJob
    ) -> None:
        job.happen("lost", "rank \x1b[31m3")
        assert "rank \\x1b[31m3" in says("events", "bert")

    def test_log(self, says: Command, job: StandInJob) -> None:
        job.log.append(StepRow(6, None, 0.1, 2, 1))
        assert says("log", "bert", "--last", "2").splitlines() == [
            "step  loss       time        devices  generation",
            "5     0.2        100.000 ms  2        1",
            "6     no number  100.000 ms  2        1",
        ]
        lines = says("log", "bert", "--after", "4", "--format", "json").splitlines()
        assert [json.loads(line)["loss"] for line in lines] == [0.2, None]

    def test_output(self, says: Command) -> None:
        assert says("output", "bert") == "rank 0: hello\n"
        expected = {"output": "rank 0: hello\n"}
        assert json.loads(says("output", "bert", "--format", "json")) == expected

    def test_page(self, says: Command, serving: Serving) -> None:
        assert says("page", "bert") == f"{serving.page}\n"

    def test_stop(self, says: Command, job: StandInJob) -> None:
        assert says("stop", "bert").startswith("stand-in: training, ")
        threading.Timer(0.2, job.end, ("stopped",)).start()
        assert says("stop", "bert", "--wait").startswith("stand-in: stopped, step 5 of 1000")

    def test_stop_by_address(
        self, says: Command, serving: Serving, job: StandInJob, tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text(serving.token)
        asked = ("--url", serving.url, "--token-file", str(tmp_path / "token"))
        assert says("stop", *asked).startswith("stand-in: training")
        threading.Timer(0.2, serving.close).start()
        assert says("stop", *asked, "--wait") == "it has ended\n"

    def test_by_address(
        self, says: Command, refused: Command, serving: Serving, tmp_path: Path
    ) -> None:
        token = tmp_path / "token"
        token.write_text(f"{serving.token}\n")
        asked = ("--url", serving.url, "--token-file", str(token))
        assert json.loads(says("scale", *asked, "--devices", "4", "--wait")) == SWITCH
        token.write_text("wrong")
        assert refused("status", *asked) == f"{serving.url}: token: wrong"
        assert refused("scale", *asked[:2], "--devices", "4") == (
            f"{serving.url}: token: expected the header 'Authorization: Bearer TOKEN'"
        )

    def test_its_page_is_there(self, refused: Command) -> None:
        assert refused("page", "bert", "--serve") == (
            "job 'bert': runs and serves its page already, expected no --serve"
        )

    def test_what_the_job_refuses(self, refused: Command, job: StandInJob) -> None:
        assert refused("scale", "bert", "--devices", "100", "--wait") == (
            "job 'bert': family families/mlp: no plan for 100 devices"
        )

    def test_a_live_line(self) -> None:
        """A terminal shows where the job is, and at the end the status alone is on stdout."""
        main_end, command_end = pty.openpty()
        command = [sys.executable, "-m", "tensoropt.elastic.cli.job", "status", "bert", "--follow"]
        with subprocess.Popen(command, stderr=command_end, stdout=subprocess.PIPE) as process:
            os.close(command_end)
            seen = b""
            while b"step 5 of 1000" not in seen:
                seen += os.read(main_end, 4096)
            process.terminate()
            assert process.stdout is not None
            assert process.stdout.read() == b""
        os.close(main_end)
        assert seen.startswith(b"\r\x1b[Ktraining, step 5 of 1000, ")


@pytest.mark.usefixtures("ended")
class TestOfAJobThatHasEnded:
    def test_what_can_still_be_read(self, says: Command) -> None:
        assert "ended, step 5 of 1000" in says("status", "bert")
        assert "ended, step 5 of 1000" in says("status", "bert", "--follow")
        assert "started     2 devices, plan 2" in says("events", "bert", "--follow")
        assert len(says("log", "bert").splitlines()) == 6
        assert says("output", "bert") == "rank 0: bye\n"

    def test_its_page(self, job: StandInJob) -> None:
        command = [sys.executable, "-m", "tensoropt.elastic.cli.job", "page", "bert", "--serve"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            url, _, token = process.stdout.readline().strip().partition("/#token=")
            client = Client(url=url, token=token)
            assert client.status().state == "ended"
            assert client.steps() == job.log
            assert [event.kind for event in client.follow()] == ["started"]
            assert client.output() == "rank 0: bye\n"
            refusals = (client.profile, client.migrate, client.stop, lambda: client.scale(4))
            for ask in refusals:
                with pytest.raises(RefusedError, match="a job that runs, got: ended at step 5"):
                    ask()
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130

    @pytest.mark.parametrize("command", ["scale --devices 4", "migrate", "stop", "profile", "page"])
    def test_what_cannot(self, refused: Command, command: str) -> None:
        assert refused(*command.split(), "bert") == (
            "job 'bert': expected one that runs, got: ended at step 5"
        )


@pytest.mark.parametrize(
    ("state", "trains"), [("starting", False), ("training", True), ("failed", False)]
)
def test_a_detached_job_runs_once_it_trains(job: StandInJob, state: str, trains: bool) -> None:
    with JobFolder.create("bert", {}) as folder, serve(job) as serving:
        folder.write_api(serving.url, serving.token)
        folder.write_status(replace(job.now, state=state))  # type: ignore[arg-type]
        assert _is_training("bert", os.getpid()) == trains


def test_list(says: Command, serving: Serving, root: Path) -> None:
    JobFolder.create("new", {}).close()
    JobFolder.create("spoilt", {}).close()
    (root / "spoilt" / "status.json").write_text("[")
    assert says("list").splitlines() == [
        "job     state          step       devices  loss  started",
        "bert    training       5 of 1000  2        0.25  2027-01-15 08:00:00",
        "new     never started  -          -        -     -",
        "spoilt  unreadable     -          -        -     -",
    ]
    lines = says("list", "--format", "json").splitlines()
    assert [json.loads(line)["state"] for line in lines] == [
        "training",
        "never started",
        "unreadable",
    ]


def test_a_list_of_none(says: Command) -> None:
    assert says("list") == "job  state  step  devices  loss  started\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("scal bert", "did you mean 'scale'?"),
        ("status", "expected JOB, the name of a job, or --url"),
        ("status a --url http://b", "expected JOB, the name of a job, or --url"),
        ("status a --token-file b", "--token-file: expected --url too"),
        ("status --url http://a --token-file none", "--token-file none: expected a readable file"),
        ("status a/b", "job name: expected 1 to 64 letters, digits or any of '-_.'"),
        ("status bert", "job 'bert': unknown, none is in "),
        ("status bert --folow", "unknown argument '--folow', did you mean '--follow'?"),
        ("scale bert", "the following arguments are required: --devices"),
        ("scale bert --devices 0", "--devices: expected a whole number from 1, got: '0'"),
        ("scale bert --devices 4 --method alive", "invalid choice: 'alive'"),
        ("migrate bert --to a,,b", "--to: expected DEVICE,DEVICE,..., got: 'a,,b'"),
        ("profile bert --devices 1,x", "--devices: expected numbers such as 1,2,4"),
        ("log bert --last 0", "--last: expected a whole number from 1, got: '0'"),
    ],
)
def test_a_mistake(refused: Command, arguments: str, message: str) -> None:
    assert message in refused(*arguments.split())


def test_a_name_that_was_nearly_right(refused: Command) -> None:
    JobFolder.create("bert-1", {}).close()
    assert refused("status", "bert1") == (
        "job 'bert1': unknown, expected one of bert-1, did you mean 'bert-1'?"
    )


def test_a_list_brings_nothing_heavy() -> None:
    code = (
        "import sys; from tensoropt.elastic.cli.job import main; main(['list']);"
        "heavy = {'fastapi', 'pydantic', 'uvicorn', 'numpy', 'onnx', 'asyncio', 'http.client'};"
        "assert not heavy & {*sys.modules}, heavy & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
