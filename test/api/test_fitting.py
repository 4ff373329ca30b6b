"""Searches that go on where nothing fits: with recomputation, micro-batches, and stages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensoropt as to
from tensoropt.compiler.api import fitting
from tensoropt.compiler.cli.opt import main
from tensoropt.compiler.cost import devices

V100 = (Path(devices.__path__[0]) / "v100.toml").read_text(encoding="utf-8")
LAYERS, RELUS, WIDTH, BATCH = 4, 3, 32, 256
STATES = 3 * LAYERS * WIDTH * WIDTH * 4 // 2
"""Bytes of the weights and of Adam's moments, on each of two devices."""
TRAIN = ("--train", "--loss", "mse:y,t", "--dim", f"batch={BATCH}")
PINNED = ("--recompute", "none", "--micro-batches", "1", "--stages", "1")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Products with Relus between, over any number of samples: most memory is activations."""
    nodes, weights, value = [], [], "x"
    for number in range(LAYERS):
        weights.append(numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32), f"w{number}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{number}"], [f"m{number}"]))
        value = f"m{number}"
        for relu in range(RELUS):
            nodes.append(helper.make_node("Relu", [value], [f"r{number}.{relu}"]))
            value = f"r{number}.{relu}"
    nodes[-1].output[:] = "y"
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", WIDTH]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    opsets = [helper.make_opsetid("", 20)]
    path = tmp_path_factory.mktemp("models") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


@pytest.fixture
def device(tmp_path: Path) -> Callable[[int], str]:
    """Return the file of a V100 with a capacity."""

    def make(capacity_bytes: int) -> str:
        text = re.sub("capacity_bytes = .*", f"capacity_bytes = {capacity_bytes}", V100)
        path = tmp_path / f"{capacity_bytes}.toml"  # descriptions are read once
        path.write_text(text.replace('"v100"', '"small"'), encoding="utf-8")
        return str(path)

    return make


@pytest.fixture
def run(model: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*flags: str) -> tuple[int, str, str]:
        status = main([str(model), "--devices", "2", *flags])
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def needs(run: Run, device: Callable[[int], str]) -> Callable[..., list[int]]:
    """Return the process bytes of the points with some flags, where everything fits."""

    def sizes(*flags: str) -> list[int]:
        status, out, _ = run(*flags, "--device", device(10**12), "--pareto", "--format", "json")
        assert status == 0
        return sorted(point["process_bytes"] for point in json.loads(out)["points"])

    return sizes


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def chosen_flags(err: str) -> list[str]:
    """Return the flags that the line on the choice names."""
    (line,) = lines(err, "note: nothing fits")
    match = re.search(r"the search chose (--\S+ \S+(?: --\S+ \S+)*), which repeats", line)
    assert match is not None
    return match[1].split()


def test_micro_batches_are_added(run, device, needs) -> None:
    own = ("--device", device(needs(*TRAIN)[0] - 1))
    status, out, err = run(*TRAIN, *own)
    flags = chosen_flags(err)
    assert (status, flags) == (0, ["--micro-batches", "2..2"])
    again = run(*TRAIN, *own, *flags)
    assert (again[0], again[1]) == (0, out)
    assert lines(again[2], "note: nothing fits") == []
    assert run(*TRAIN, *own)[1] == out  # the same in every run


def test_numbers_that_cannot_suffice_are_passed_over(run, device, needs) -> None:
    few = needs(*TRAIN, "--micro-batches", "8..8")[0]
    _, _, err = run(*TRAIN, "--device", device(few))
    assert chosen_flags(err) == ["--micro-batches", "8..8"]
    assert "--micro-batches 2..2" not in err


def test_requested_options_stay(run, device, needs) -> None:
    least = needs(*TRAIN, *PINNED)[0]
    own = ("--device", device(least - 1))
    status, out, err = run(*TRAIN, *own, *PINNED)
    assert (status, out) == (3, "")
    assert err.count("\n") == 1
    assert err.endswith(
        "(there is nothing else to try; kept: --recompute none --micro-batches 1 --stages 1)\n"
    )
    status, _, err = run(*TRAIN, *own, *PINNED[:2], *PINNED[4:])
    assert (status, chosen_flags(err)) == (0, ["--micro-batches", "2..2"])
    assert "repeats this answer; kept: --recompute none --stages 1" in err
    status, _, err = run(*TRAIN, *own, *PINNED[2:])
    assert (status, lines(err, "note: nothing fits")) == (0, [])  # recomputation is searched anyway


def test_recomputation_is_tried_if_the_time_was_too_short(run, device, needs) -> None:
    """Without time, the first search only has the fastest and the leanest plan of one mesh."""
    none, blocks = (needs(*TRAIN, "--recompute", name)[0] for name in ("none", "blocks"))
    assert blocks < none
    brief = (*TRAIN, "--search-time", "0", "--device", device((none + blocks) // 2))
    status, _, err = run(*brief)
    assert (status, chosen_flags(err)) == (0, ["--recompute", "blocks"])


def test_nothing_is_tried_if_the_states_alone_do_not_fit(run, device, monkeypatch) -> None:
    monkeypatch.setattr(fitting._Further, "_attempt", lambda *given: 1 / 0)
    status, out, err = run(*TRAIN, "--device", device(STATES - 1))
    assert (status, out) == (3, "")
    assert err.count("\n") == 1
    assert "a process needs at least 24.0 KiB for weights and states alone" in err


def test_an_error_has_what_was_tried(run, device, needs) -> None:
    own = ("--device", device(STATES + 100))
    status, out, err = run(*TRAIN, *own)
    most = f"--micro-batches {BATCH}..{BATCH}"
    assert (status, out) == (3, "")
    assert f"(tried {most} and {most} --stages auto, the nearest with {most}" in err
    need = re.search(r"needs .* \((\d+) bytes\)", err)
    assert need is not None
    every = [needs(*TRAIN, *most.split()), needs(*TRAIN, *most.split(), "--stages", "auto")]
    assert int(need[1]) == min(map(min, every))
    assert run(*TRAIN, *own)[2] == err
    status, table, err = run(*TRAIN, *own, "--pareto")
    assert status == 0
    assert "above capacity" in table
    assert lines(err, "note: --device small: nothing fits")


def test_stages_are_tried_in_inference(run, device, needs) -> None:
    asked = ("--dim", f"batch={BATCH}")
    limit = str(needs(*asked)[0] - 1)
    flags = (*asked, "--device", device(10**12), "--memory", limit)
    status, _, err = run(*flags)
    assert (status, "(tried --stages auto" in err) == (3, True)
    for single in (("--mesh", "2"), ("--netron", "a.onnx"), ("--objective", "memory")):
        status, _, err = run(*flags, *single)
        assert (status, "there is nothing else to try" in err) == (3, True)


def test_reports_have_the_choice(run, device, needs, tmp_path: Path) -> None:
    own, page = ("--device", device(needs(*TRAIN)[0] - 1)), tmp_path / "a.html"
    status, out, _ = run(*TRAIN, *own, "--format", "json", "--report", str(page))
    assert status == 0
    assert json.loads(out)["added"] == {"micro_batches": "2..2"}
    assert "the search chose --micro-batches 2..2" in page.read_text(encoding="utf-8")
    status, out, _ = run(*TRAIN, "--device", device(10**12), "--format", "json")
    assert "added" not in json.loads(out)


def test_plans_are_written(run, device, needs, tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    status, _, _ = run(*TRAIN, "--device", device(needs(*TRAIN)[0] - 1), "-o", str(plan))
    assert status == 0
    document = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
    assert document["training"]["micro_batches"] == 2


def test_python_has_the_same_answer(model, run, device, needs) -> None:
    limited = device(needs(*TRAIN)[0] - 1)
    own: dict[str, Any] = {"devices": 2, "device": limited}
    read = to.load(model, {"batch": BATCH})
    frontier = read.frontier(train=to.Training("mse:y,t"), **own)
    assert frontier.added == {"micro_batches": "2..2"}
    assert "the search chose micro_batches='2..2', which repeats" in "\n".join(frontier.notes)
    _, out, _ = run(*TRAIN, "--device", limited, "--format", "json")
    (point,) = json.loads(out)["points"]
    assert (frontier.fastest.index, frontier.fastest.time_s) == (point["index"], point["time_s"])
    again = read.frontier(train=to.Training("mse:y,t", micro_batches="2..2"), **own)
    assert [p.time_s for p in again] == [p.time_s for p in frontier]
    assert again.added == {}
    kept = to.Training("mse:y,t", micro_batches=1)
    with pytest.raises(to.DoesNotFitError, match="kept: micro_batches='1', stages='1'"):
        _ = read.frontier(train=kept, stages=1, **own).fastest


def test_samples_that_meet_are_not_split(tmp_path: Path, device) -> None:
    """A mean over the samples: other numbers of micro-batches are other steps."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "a"),
        helper.make_node("ReduceMean", ["a", "axes"], ["b"], "b", keepdims=1),
        helper.make_node("Sub", ["a", "b"], ["y"], "c"),
    ]
    weights = [
        numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32), "w"),
        numpy_helper.from_array(np.array([0]), "axes"),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", WIDTH]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    opsets = [helper.make_opsetid("", 20)]
    path = tmp_path / "mean.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    read, step = to.load(path, {"batch": BATCH}), to.Training("mse:y,t")
    frontier = read.frontier(2, device(10_000), train=step)
    with pytest.raises(to.DoesNotFitError, match=r"nothing else to try; .*node 'c'.*samples meet"):
        _ = frontier.fastest
    every = to.Training("mse:y,t", micro_batches=f"{BATCH}..{BATCH}")
    with pytest.raises(to.UserError, match="lets samples meet"):
        read.frontier(2, "v100", train=every)


def test_stages_come_last(model, run, device, monkeypatch) -> None:
    """The order of the searches, where none fits."""
    tried = []
    attempt = fitting._Further._attempt

    def watched(self: Any, options: Any) -> Any:
        tried.append(dict(options))
        return attempt(self, options)

    monkeypatch.setattr(fitting._Further, "_attempt", watched)
    monkeypatch.setattr(fitting._Further, "_may_suffice", lambda *given: True)
    run(*TRAIN, "--device", device(STATES + 100))
    numbers = [f"{2**power}..{2**power}" for power in range(1, 9)]
    assert tried == [
        *({"micro_batches": number} for number in numbers),
        {"micro_batches": numbers[-1], "stages": "auto"},
    ]
