"""A search that ends early, by the clock or by Ctrl-C, and meshes that it must leave out."""

from __future__ import annotations

import json
import math
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tensoropt.compiler.planning import answer_time, request
from tensoropt.compiler.search.engine.control import OutOfTimeError
from tensoropt.compiler.search.frontier import anytime, clock, plans, turns
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.progress import Progress

COMMAND = [sys.executable, "-c", "import sys; from tensoropt.compiler.cli.opt import main; "
           "sys.exit(main())"]  # fmt: skip
LLAMA = Path(__file__).parent.parent / "models" / "llama_tiny.onnx"
# On three axes this takes a while.
LONG = [*COMMAND, str(LLAMA), "--devices", "8", "--epsilon", "0.01", "--progress"]


def _until(process: subprocess.Popen[str], pattern: str) -> list[str]:
    """Read the progress until a line matches."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if re.search(pattern, line):
            return lines
    raise AssertionError(f"no line with {pattern} in {lines}")


def _start(*flags: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*LONG, *map(str, flags)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_ctrl_c_prints_what_was_found(tmp_path: Path) -> None:
    process = _start("--pareto", "--format", "json", "-o", tmp_path / "plan")
    _until(process, r"mesh 8 \(2 of 3\): ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    found = json.loads(out)
    assert found["interrupted"]
    assert {tuple(point["mesh"]) for point in found["points"]} & {(8,), (2, 4)}
    last = err.splitlines()[-1]
    assert last.startswith("interrupted: these are the results so far, within ")
    assert last.endswith(f"; not written: {tmp_path / 'plan'}")
    assert list(tmp_path.iterdir()) == []


def test_a_second_ctrl_c_ends_at_once() -> None:
    before = time.monotonic()
    process = _start()
    _until(process, "mesh 2x4 ")  # the first one: there is no plan yet that could be printed
    started = time.monotonic()
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    assert time.monotonic() - started < 5 + (started - before)  # which other work prolongs alike
    assert process.returncode in (130, -signal.SIGINT)
    assert process.communicate()[0] == ""


def test_progress_is_for_terminals(opt, mlp: Path) -> None:
    assert opt(mlp, "--devices", "4").err == ""
    lines = opt(mlp, "--devices", "4", "--progress").err.splitlines()
    assert lines[0] == f"reading {mlp}"
    assert lines[1:4] == [
        "phase prepare: verify-onnx, 1 of 13",
        "prepare: fuse-attention, 1 of 2",
        "phase rules: assume-sizes, 1 of 4",
    ]
    assert re.fullmatch(r"mesh 2x2 \(1 of 2\): tables, 0\.\d s", lines[4])
    assert re.fullmatch(r"mesh 4 \(2 of 2\): tables, 0\.\d s", lines[5])


def test_progress_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((10, 24)))
        say = Progress()
        say("a text that is too long")
        say.clear()
        want = b"\r\x1b[Ka text th\r\x1b[K"
        shown = b""
        while len(shown) < len(want):  # a read returns one write, or several
            assert select.select([ours], [], [], 5)[0], shown
            shown += os.read(ours, 100)
        assert shown == want
    os.close(ours)


def test_a_mesh_that_is_refused_is_left_out(opt, mlp: Path, monkeypatch) -> None:
    _refuse(monkeypatch, "2x2")
    outcome = opt(mlp, "--devices", "4", "--pareto")
    assert outcome.status == 0
    assert outcome.err == "note: mesh 2x2: left out, too wide\n"
    assert "without mesh 2x2, per device" in outcome.out
    found = json.loads(opt(mlp, "--devices", "4", "--pareto", "--format", "json").out)
    assert found["left_out"] == [{"mesh": [2, 2], "reason": "too wide"}]
    assert not found["interrupted"]


def test_all_meshes_refused(refused, mlp: Path, monkeypatch) -> None:
    _refuse(monkeypatch, "2x2", "4")
    assert refused(mlp, "--devices", "4") == "too wide (mesh 2x2 and 1 other)"
    assert refused(mlp, "--mesh", "2x2") == "too wide"


def _refuse(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make the search refuse some meshes."""
    solve = anytime.Anytime._solve

    def refuse(search, candidate, *given):  # type: ignore[no-untyped-def]
        if str(candidate.mesh) in names:
            raise UserError("too wide")
        return solve(search, candidate, *given)

    monkeypatch.setattr(anytime.Anytime, "_solve", refuse)


def test_no_time_still_gives_the_fastest_and_the_leanest(opt, mlp: Path) -> None:
    asked = (mlp, "--devices=4", "--device=h200", "--pareto", "--format=json")
    points = [
        json.loads(opt(*asked, *flags).out)["points"] for flags in ((), ("--search-time", "0"))
    ]
    for found in points:
        assert "fastest" in found[0].pop("marks")  # which is the knee depends on the others
    assert points[0][0] == points[1][0]
    assert points[0][-1]["memory_bytes"] == points[1][-1]["memory_bytes"]


def test_the_default_answers_with_what_it_has_by_then(opt, monkeypatch) -> None:
    monkeypatch.setattr(answer_time, "LEAST_S", 0.5)
    monkeypatch.setattr(request, "ANSWER_S", 0.0)
    outcome = opt(LLAMA, "--devices", "8", "--pareto")
    assert outcome.status == 0
    first = outcome.out.splitlines()[0]
    assert re.search(
        r"within \d+\.\d\d% of the exact frontier( of meshes of up to two axes)? after 0\.5 s",
        first,
    )
    assert outcome.err.splitlines()[-1] == (
        "note: the search ended after 0.5 s; --search-time 60 gives it a minute, "
        "--epsilon 0.01 continues until the frontier is within 1%"
    )
    found = json.loads(opt(LLAMA, "--devices", "8", "--pareto", "--format", "json").out)
    assert found["stopped"] == "time"


@pytest.mark.parametrize("is_late", [False, True])
def test_the_cause_of_the_end_is_stated(opt, mlp: Path, monkeypatch, is_late: bool) -> None:
    """Programs are still further from the frontier than the bound allows."""
    monkeypatch.setattr(plans.Plans, "gap", lambda self, candidate: 0.078)
    plan = turns.Turns.plan_next

    def planned(self, candidate):  # type: ignore[no-untyped-def]
        plan(self, candidate)
        candidate.closed = not is_late
        if is_late:
            self.clock.limit_s = 0.01

    monkeypatch.setattr(turns.Turns, "plan_next", planned)
    outcome = opt(mlp, "--devices", "4", "--mesh", "4", "--pareto", "--resolution", "0")
    reason = r"after [\d.]+ s" if is_late else "at the finest cost tables"
    assert re.search(f"within 7.80% of the exact frontier {reason}", outcome.out.splitlines()[0])
    final = "note: the bound of 7.80% is final, and more --search-time does not lower it: the cost "
    start = "note: the search ended after " if is_late else final
    assert outcome.err.startswith(start)
    assert ("--search-time 60 gives" in outcome.err) is is_late


def test_the_default_counts_from_the_start_of_the_process() -> None:
    """What reading takes, and what is to come, is taken off the search."""
    now = time.monotonic()
    late, soon = (answer_time.search_time_s(now - past, 1000) for past in (2.0, 0.0))
    assert 1.7 < soon - late < 1.9  # 2 s less, a tenth of the rest is left for late answers
    assert clock.LATE_S + (1 + clock.LATE) * soon < request.ANSWER_S
    assert answer_time.search_time_s(now - 8, 1000) == answer_time.LEAST_S
    few, many = (answer_time.search_time_s(now - 60, nodes) for nodes in (10**5, 10**6))
    assert many == 10 * few  # large models have time in proportion, though the answer is late
    script = (
        "import sys, types; from tensoropt.runtime.support.command import begun_s, run_main; "
        "sys.modules['tool'] = types.SimpleNamespace(main=lambda: print(begun_s()) or 0); "
        "run_main('tool')"
    )
    before = time.monotonic()
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert before - 0.02 <= float(told.stdout) <= time.monotonic()


def test_the_default_ends_at_its_bound_where_that_is_quick(opt, mlp: Path) -> None:
    flags = (mlp, "--devices", "4", "--pareto", "--format", "json")
    outcome = opt(*flags)
    found = json.loads(outcome.out)
    assert (found["stopped"], outcome.err) == (None, "")
    assert 0 < found["epsilon"] <= request.ENOUGH
    assert json.loads(opt(*flags, "--resolution", "0").out)["epsilon"] == 0


def test_the_default_gives_a_point_however_long_that_takes(opt, mlp: Path, monkeypatch) -> None:
    monkeypatch.setattr(answer_time, "LEAST_S", 0.0)
    monkeypatch.setattr(request, "ANSWER_S", 0.0)
    monkeypatch.setattr(clock, "LATE_S", 0.0)
    outcome = opt(mlp, "--devices", "4", "--pareto", "--format", "json")
    assert outcome.status == 0
    assert json.loads(outcome.out)["points"]


def test_many_devices_are_searched_on_deep_meshes_too(opt, mlp: Path) -> None:
    outcome = opt(mlp, "--devices", "64", "--pareto", "--format", "json", "--epsilon", "0.05")
    found = json.loads(outcome.out)
    assert found["left_out"] == []
    assert found["epsilon"] <= 0.05


def test_the_time_is_for_all_meshes_together() -> None:
    before = _processor_seconds()
    command = [*COMMAND, str(LLAMA), "--devices", "64", "--search-time", "2", "--format", "json"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    # Of two threads, for 20% and a second more than asked for, and for reading.
    assert _processor_seconds() - before < 2 * (1.2 * 2 + 1) + 3
    found = json.loads(result.stdout)
    assert found["stopped"] == "time"
    assert 0 < found["epsilon"] < math.inf
    assert {left["reason"] for left in found["left_out"]} <= {
        "no time was left; expected more --search-time"
    }


@pytest.mark.parametrize("tables_s", [0.1, 0.5, 2.0])
def test_a_search_is_late_by_at_most_a_fifth_and_a_second(
    opt, mlp: Path, monkeypatch, tables_s: float
) -> None:
    """On a clock of its own: tables take their time, and runs half a second more than allowed."""
    clock = _Clock(monkeypatch)
    clock.takes("check_tables", tables_s)
    solve = anytime.solve_frontier

    def late(problem, time_limit_s, control, **options):  # type: ignore[no-untyped-def]
        wanted_s = time_limit_s + 0.5
        last_s = math.inf if control.last_limit_s is None else control.last_limit_s
        clock.now += min(wanted_s, last_s)
        if wanted_s > last_s:
            raise OutOfTimeError("time was over")
        return solve(problem, **options)

    monkeypatch.setattr(anytime, "solve_frontier", late)
    found = json.loads(
        opt(mlp, "--devices", "16", "--search-time", "2", "--pareto", "--format", "json").out
    )
    assert found["points"]
    assert clock.now <= 1.2 * 2 + 1
    assert tables_s < 2 or found["left_out"]


class _Clock:
    """Stands for the clock of the search."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.patch = 0.0, monkeypatch
        monkeypatch.setattr(anytime, "time", self)
        monkeypatch.setattr(clock, "time", self)
        monkeypatch.setattr(anytime, "alarm", self.alarm)

    def monotonic(self) -> float:
        return self.now

    process_time = monotonic

    @contextmanager
    def alarm(self, end: float | None) -> Iterator[None]:
        yield
        if end is not None and self.now > end:
            self.now = end
            raise OutOfTimeError("time is over")

    def takes(self, name: str, seconds: float) -> None:
        function = getattr(anytime, name)

        def slow(*args):  # type: ignore[no-untyped-def]
            self.now += seconds
            return function(*args)

        self.patch.setattr(anytime, name, slow)


def _processor_seconds() -> float:
    """Of the commands run so far: other work leaves them alone."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_devices_that_cannot_be_enough_are_not_searched(refused, monkeypatch) -> None:
    monkeypatch.setattr(anytime.Anytime, "_improve", lambda *given: 1 / 0)
    message = refused(LLAMA, "--objective", "devices", "--memory", "8KiB", status=3)
    assert "nothing fits 8.00 KiB on 64 devices, the leanest plan needs at least " in message
