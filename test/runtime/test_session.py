"""`Session`: whole arrays in and out, of ranks that stay."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from handmade import (
    Perceptron,
    edit,
    failing_plan,
    model_of,
    sha256,
    tensor,
    value_info,
    write_plan,
)
from handmade_mixed import SAME, TABLE, mixed_plan
from onnx import helper
from session_parent import ticks, wait_until_busy
from waiting import wait_until

from tensoropt.runtime.pool.session import Session
from tensoropt.runtime.support.errors import RankFailedError, TensoroptError, UserError

LIMIT_S = 120.0


@pytest.fixture(scope="module")
def mixed(perceptron: Perceptron, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixed_plan(tmp_path_factory.mktemp("mixed") / "plan", perceptron.model)


@pytest.fixture(scope="module")
def session(mixed: Path) -> Iterator[Session]:
    with Session(mixed, threads=1) as session:
        yield session


def feeds(batch: int = 4, none: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(batch)
    return {
        "rows": random.integers(-99, 99, (batch, 6)).astype(np.float32),
        "columns": random.standard_normal((3, 8), dtype=np.float32),
        "half": random.standard_normal(4).astype(np.float16),
        "short": random.standard_normal((2, 2)).astype(ml_dtypes.bfloat16),
        "scalar": np.array(7),
        "nothing": np.zeros((none, 3)),
        "flags": random.random((3, 6)) < 0.5,
        "index": random.integers(0, 10, batch),
    }


def check(out: dict[str, np.ndarray], fed: dict[str, np.ndarray]) -> None:
    for name in SAME:
        assert out[f"{name}_out"].dtype == fed[name].dtype
        np.testing.assert_array_equal(out[f"{name}_out"], fed[name])
    np.testing.assert_array_equal(out["taken"], TABLE[fed["index"]])
    np.testing.assert_array_equal(out["where"], np.nonzero(fed["columns"]))
    np.testing.assert_array_equal(out["sum"], fed["rows"].sum(0))


def test_every_type_shape_and_layout(session: Session) -> None:
    check(session.run(feeds()), feeds())


@pytest.mark.parametrize(("batch", "none"), [(2, 0), (10, 3), (2, 0), (4, 1), (0, 0)])
def test_sizes_change_from_run_to_run(session: Session, batch: int, none: int) -> None:
    check(session.run(feeds(batch, none)), feeds(batch, none))


def test_arrays_that_come_out_stay_what_they_are(session: Session) -> None:
    """Also large ones, which lie in memory that ranks have: it is not used again while they are
    there; and also of those outputs that a later run does not ask for."""
    batches = [10_000 + 2 * n for n in range(6)]
    outs = [session.run(feeds(batch)) for batch in batches]
    session.run(feeds(batches[0]), ["sum"])
    for out, batch in zip(outs, batches, strict=True):
        check(out, feeds(batch))
    rows = outs[0]["rows_out"][1:3]
    del outs, out
    gc.collect()
    session.run(feeds(batches[1]))
    np.testing.assert_array_equal(rows, feeds(batches[0])["rows"][1:3])


def test_memory_is_used_again(session: Session) -> None:
    session.run(feeds(20_000))  # the first makes blocks, if no other test did
    before = len(open_files())
    for _ in range(20):
        session.run(feeds(20_000))
    assert len(open_files()) <= before + 4


def open_files() -> list[str]:
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the folder itself
            found.append(str(path.readlink()))
    return found


def test_more_arrays_are_kept_than_there_can_be_blocks(session: Session) -> None:
    outs = [session.run(feeds(4_000), ["rows_out"])["rows_out"] for _ in range(100)]
    assert all(np.array_equal(out, feeds(4_000)["rows"]) for out in outs)


def test_arrays_in_shared_memory_are_not_copied(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = feeds(10_000)
    made = session.empty({name: array.shape for name, array in fed.items()})
    for name, array in fed.items():
        np.copyto(made[name], array)
    copied: list[tuple[int, ...]] = []
    monkeypatch.setattr(np, "copyto", lambda to, array: copied.append(array.shape))
    out = session.run(made)
    assert copied == [(0, 3)]  # what is empty lies nowhere
    again = session.run({**made, "rows": out["rows_out"]}, ["rows_out"])
    assert copied == [(0, 3)] * 2
    monkeypatch.undo()
    check(out, fed)
    np.testing.assert_array_equal(again["rows_out"], fed["rows"])


def test_arrays_that_lie_otherwise(session: Session) -> None:
    fed = feeds(6)
    odd = {
        **fed,
        "rows": np.asfortranarray(fed["rows"]),
        "columns": fed["columns"].astype(">f4"),
        "index": np.repeat(fed["index"], 2)[::2],
        "short": fed["short"].view("V2"),  # as numpy reads it from a file
        "scalar": 7,
        "flags": fed["flags"].tolist(),
    }
    check(session.run(odd), fed)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"rows": np.zeros((4, 5), np.float32)}, "expected shape batchx6 with batch=4, got: 4x5"),
        ({"rows": np.zeros((4, 6))}, "input 'rows': expected float32, got: float64"),
        ({"index": np.zeros(6, int)}, "expected shape batch with batch=4, got: 6"),
        ({"colums": np.zeros(1)}, "array 'colums' is not an input.*, did you mean 'columns'"),
        ({"rows": np.zeros((3, 6), np.float32)}, "dimension 0 does not divide into 2 parts"),
        ({"scalar": np.zeros(1, int)}, "expected shape a scalar, got: 1"),
    ],
)
def test_inputs_that_do_not_fit(session: Session, changed: dict, text: str) -> None:
    batch = 3 if "divide" in text else 4
    with pytest.raises(UserError, match=text):
        session.run({**feeds(batch), **changed})
    check(session.run(feeds()), feeds())


def test_names_that_are_not_there(session: Session) -> None:
    fed = feeds()
    del fed["half"]
    with pytest.raises(UserError, match=r"plan: input 'half' is missing"):
        session.run(fed)
    with pytest.raises(UserError, match=r"'sun' is not an output of the plan, did you mean 'sum'"):
        session.run(feeds(), ["sun"])
    with pytest.raises(UserError, match="array 'colums' is not an input of the plan, did you mean"):
        session.empty({"colums": (2,)})


def test_an_array_without_a_name(session: Session) -> None:
    with pytest.raises(UserError, match=r"expected a dictionary of arrays by input name \(.*rows"):
        session.run(np.zeros((4, 6), np.float32))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({1: 0}, "array '1' is not an input of the plan"),
        ({"rows": [[1], [1, 2]]}, "input 'rows': expected an array, got: list .setting an array"),
    ],
)
def test_what_is_no_array(session: Session, given: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        session.run({**feeds(), **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dims": 3}, "^dims: expected a dictionary of sizes from 0 to .* by name, got: 3$"),
        ({"dims": {3: 3}}, "dims 3: no input has such a dimension"),
        ({"dims": {"batch": "4"}}, "^dims: expected a dictionary .*, got: {'batch': '4'}$"),
        ({"stall_s": "4"}, "^stall_s: expected seconds above 0, got: '4'$"),
        ({"start_timeout_s": 0}, "^start_timeout_s: expected seconds above 0, got: 0$"),
    ],
)
def test_options_of_the_wrong_kind(session: Session, given: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Session(session.plan.folder, **given)


@pytest.mark.parametrize("plan", [None, 3, b"plan"])
def test_a_plan_that_is_no_path(plan: Any) -> None:
    with pytest.raises(
        UserError, match=f"expected the path of a folder, got: {type(plan).__name__}"
    ):
        Session(plan)


def test_a_size_of_no_dimension(session: Session) -> None:
    with pytest.raises(UserError, match=r"dims bach: no input has such a dimension, did you mean"):
        Session(session.plan.folder, dims={"bach": 4})


def test_a_rank_that_dies_is_no_mistake() -> None:
    assert not issubclass(RankFailedError, UserError)
    assert issubclass(RankFailedError, TensoroptError)
    assert issubclass(UserError, TensoroptError)


def test_what_all_ranks_refuse(session: Session) -> None:
    """Each at the same place: nobody waits for another, and the next run is as ever."""
    with pytest.raises(UserError, match=r"node.*'take'.*out of data bounds") as caught:
        session.run({**feeds(), "index": np.full(4, 99)})
    assert not isinstance(caught.value, RankFailedError)
    assert session.is_alive
    check(session.run(feeds()), feeds())


def test_a_fork_has_no_session(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    with pytest.raises(UserError, match=f"belongs to process {own}, expected a session"):
        session.run(feeds())


def test_threads_queue(session: Session) -> None:
    with ThreadPoolExecutor(4) as threads:
        for batch, out in threads.map(lambda b: (b, session.run(feeds(b))), range(2, 42, 2)):
            check(out, feeds(batch))


def test_steps_of_the_ranks_alone(session: Session) -> None:
    fed = feeds(10_000)
    out = session.run(fed)
    out["taken"][:] = -1
    times = session.step_times_s(3)
    assert (len(times), min(times) > 0) == (3, True)
    assert (out["taken"] == -1).all()  # they write elsewhere
    check(session.run(fed), fed)


def test_idle_ranks_sleep(session: Session) -> None:
    session.run(feeds())
    before = [ticks(pid) for pid in session.pids]
    time.sleep(0.5)
    taken = [ticks(pid) - old for pid, old in zip(session.pids, before, strict=True)]
    assert max(taken) <= 2  # as they fell asleep


def test_answers_are_judged_in_their_turn(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request has its errors before the next request takes its answers."""
    ranks = session._pool._running()
    before, check_errors = ranks._answered, ranks._check_errors
    judged: list[int] = []

    def noted(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        judged.append(ranks._answered - before)
        return check_errors(answers)

    monkeypatch.setattr(ranks, "_check_errors", noted)
    for _ in range(2):
        session.run(feeds())
    assert judged == list(range(len(judged))) != []


def test_a_rank_fails_alone(perceptron: Perceptron, tmp_path: Path) -> None:
    """The other one waits for it in a collective: both end, and are started again."""
    plan = failing_plan(tmp_path / "failing", perceptron.model, 3, [0, 1])
    fed = {"x": np.ones(2, np.float32)}
    with Session(plan, threads=1, stall_s=LIMIT_S) as session:
        pids = session.pids
        with pytest.raises(RankFailedError, match=r"^rank 1 of 2: "):
            session.run(fed)
        assert not session.is_alive
        assert not any(is_there(pid) for pid in pids)
        with pytest.raises(RankFailedError, match=r"^rank 1 of 2: "):
            session.run(fed)


def test_a_run_takes_too_long(hanging: Path) -> None:
    """The ranks themselves say which one is where."""
    where = "rank 1 of 2 is before its first collective; rank 0 is in AllReduce node 'AllReduce_0'"
    limits = (1, 8, 64)  # the next one where the machine is too busy to come to a run by then
    assert any(
        late(hanging, limit) == f"no answer within {limit} s: {where} (collective 1)"
        for limit in limits
    )


def late(plan: Path, limit: float) -> str:
    with pytest.raises(RankFailedError) as caught, Session(plan, stall_s=limit) as session:
        session.run({"x": np.ones(2, np.float32)})
    return str(caught.value)


@pytest.mark.quick
def test_a_session_is_closed_while_a_run_hangs(hanging: Path) -> None:
    session, failed = Session(hanging), []

    def run() -> None:
        with pytest.raises(RankFailedError) as caught:
            session.run({"x": np.ones(2, np.float32)})
        failed.append(str(caught.value))

    waiting = [threading.Thread(target=run, daemon=True) for _ in range(3)]  # two are under way
    for thread in waiting:
        thread.start()
    wait_until(lambda: session.silent_s > 0)
    pids = session.pids
    session.close(grace_s=0.5)
    for thread in waiting:
        thread.join(LIMIT_S)
    assert not any(map(is_there, pids))
    assert len(failed) == 3
    assert "the session was closed while the ranks were at work" in failed
    assert session.silent_s == 0.0
    with pytest.raises(UserError, match="the session is closed"):
        session.restart()


def test_a_session_is_closed_while_its_ranks_start(mixed: Path) -> None:
    session, failed = Session(mixed, threads=1), []

    def restart() -> None:
        with pytest.raises(RankFailedError) as caught:
            session.restart()
        failed.append(str(caught.value))

    starting = threading.Thread(target=restart)
    starting.start()
    wait_until(lambda: session._pool._starting is not None)
    for process in session._pool._starting._processes.ranks.values():
        process.send_signal(signal.SIGSTOP)
    session.close(grace_s=0.5)
    starting.join(LIMIT_S)
    assert failed == ["the session was closed before the ranks were ready"]


def test_a_rank_is_killed(mixed: Path) -> None:
    session = Session(mixed, threads=1)
    os.kill(session.pids[1], signal.SIGKILL)
    with pytest.raises(RankFailedError, match=r"^rank 1 of 2 was killed by signal 9"):
        session.run(feeds())
    assert not session.is_alive
    session.restart()
    assert session.is_alive
    check(session.run(feeds()), feeds())
    session.close()
    session.close()
    with pytest.raises(UserError, match="closed"):
        session.run(feeds())


@pytest.mark.quick
def test_a_plan_that_was_replaced_is_not_started(perceptron: Perceptron, tmp_path: Path) -> None:
    plan, other = tmp_path / "plan", tmp_path / "other"
    perceptron.plan(plan)
    Perceptron(tmp_path, 8).plan(other)
    with Session(plan, threads=1) as session:
        shutil.rmtree(plan)
        other.rename(plan)
        with pytest.raises(UserError, match=r"plan: another plan has replaced this one, expected"):
            session.restart()
        assert not session.is_alive
        # Ranks look themselves, too: it may be replaced while they start.
        with pytest.raises(UserError, match="another plan has replaced this one"):
            session._pool._start()


@pytest.mark.quick
def test_a_session_is_interrupted_and_killed(hanging: Path, tmp_path: Path) -> None:
    """Ctrl-C in a run ends the ranks; the end of the process does, and leaves nothing behind."""
    program = [sys.executable, str(Path(__file__).with_name("session_parent.py")), str(hanging)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        late = threading.Timer(LIMIT_S / 2, parent.kill)  # a restart that waits would never end
        late.start()
        first = list(map(int, parent.stdout.readline().split()))
        wait_until_busy(first[0])
        parent.send_signal(signal.SIGINT)
        assert parent.stdout.readline() == "interrupted False\n"
        assert not any(map(is_there, first))
        assert parent.stdout.readline() == "the ranks were restarted\n"
        second = list(map(int, parent.stdout.readline().split()))
        job = next(tmp_path.glob("tensoropt-run-*"))
        wait_until_busy(second[0])
        late.cancel()
        parent.kill()
    wait_until(lambda: not any(map(is_there, second)) and not job.exists())
    assert first != second


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_strings(perceptron: Perceptron, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Identity", ["words"], ["same"]),
        helper.make_node("Identity", ["x"], ["y"]),
    ]
    ends = [[("words", "string"), ("x", "float32")], [("same", "string"), ("y", "float32")]]
    layouts = {"words": ["S(0)"], "same": ["S(0)"], "x": ["S(1)"], "y": ["S(1)"]}
    entries = [[tensor(n, ["a", 4], layouts[n], t) for n, t in end] for end in ends]
    infos = [[value_info(n, t, None) for n, t in end] for end in ends]
    graph = model_of(nodes, *infos)
    plan = write_plan(tmp_path / "text", perceptron.model, (2,), [graph] * 2, *entries)
    words = np.array([["a", "ö", "", "dd"], ["e", "ff", "g\n", "h"]], object)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with Session(plan, threads=1) as session:
        with pytest.raises(UserError, match="nothing has run yet"):
            session.step_times_s(3)
        for given in (words, words.astype(str)):
            filled = session.empty({"x": x.shape, "words": words.shape})
            filled["words"][:], filled["x"][:] = given, x
            np.testing.assert_array_equal(session.run(filled)["same"], words)
            out = session.run({"words": given, "x": x})
            np.testing.assert_array_equal(out["same"], words)
            np.testing.assert_array_equal(out["y"], x)


@pytest.mark.quick
def test_an_output_is_larger_than_the_plan_says(perceptron: Perceptron, tmp_path: Path) -> None:
    """The model called its size by the name of another: only a run tells."""
    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=0)
    graph = model_of([node], [value_info("x", "float32", None)], [value_info("y", "float32", None)])
    ends = [tensor("x", ["n"], ["R"])], [tensor("y", ["n"], ["R"])]
    plan = write_plan(tmp_path / "larger", perceptron.model, (1,), [graph], *ends)
    before = open_files()
    session = Session(plan, threads=1)
    for size in (2, 3):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(session.run({"x": x})["y"], [*x, *x])
    pids = session.pids
    assert all(map(is_there, pids))
    del session  # nobody closes it
    assert not any(map(is_there, pids))
    # The thread that started ranks has files of its own.
    wait_until(lambda: len(open_files()) <= len(before))


def test_plans_that_no_session_runs(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="nowhere: expected a plan directory"):
        Session("nowhere")
    with pytest.raises(UserError, match=r"^share_gpus: expected provider cuda$"):
        Session(plan, share_gpus=True)
    for settings, message in (
        ({"provider": "gpu"}, "^provider: expected 'cpu' or 'cuda', got: 'gpu'"),
        ({"threads": 0}, "^threads: expected a whole number from 1 to 1024, got: 0$"),
        ({"stall_s": -1}, "^stall_s: expected seconds above 0, got: -1$"),
        ({"custom_ops": "my.so"}, "^custom_ops: expected a list of paths, got: 'my.so'$"),
    ):
        with pytest.raises(UserError, match=message):
            Session(plan, **settings)
    with pytest.raises(UserError, match=r"^custom_ops .*/nothing.so: no such file"):
        Session(plan, custom_ops=["nothing.so"])
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(UserError, match=r"expected a process without a launcher, got: rank 1 of 2"):
        Session(plan)


def test_an_output_of_partial_sums(plan: Path) -> None:
    edit(plan, lambda content: content["outputs"][0].update(layout=["S(0)", "P(sum)"]))
    with pytest.raises(UserError, match="output 'y': expected R or S, got: a partial layout"):
        Session(plan)


def test_ranks_that_do_not_get_ready(plan: Path) -> None:
    (plan / "rank1.onnx").write_bytes(b"no graph")
    edit(plan, lambda content: content["files"].update({"rank1.onnx": sha256(plan / "rank1.onnx")}))
    with pytest.raises(UserError, match=r"^rank 1: .*rank1.onnx: "):
        Session(plan)
