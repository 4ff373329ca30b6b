"""tensoropt-profile from end to end, on ranks of this machine."""

from __future__ import annotations

import json
import time
from pathlib import Path

import onnx
import pytest

from tensoropt.compiler.calibrate import basics, machine_load, run
from tensoropt.compiler.calibrate.graphs import Builder, chain
from tensoropt.compiler.calibrate.ranks import MeasuredGraph, Ranks
from tensoropt.compiler.calibrate.sample_file import read_samples, samples_path
from tensoropt.compiler.cli.opt import main as opt
from tensoropt.compiler.cli.profile import main
from tensoropt.compiler.cost.device import device_of, load_device
from tensoropt.compiler.cost.measurements import KINDS
from tensoropt.runtime.support.arithmetic import ONE_PASS
from tensoropt.runtime.support.rank_options import RankOptions

MODEL = Path(__file__).parent.parent / "models" / "gpt2_tiny.onnx"
SHORT = ["--quick", "--budget", "200"]


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time for all graphs, and 5 ms for each: a few runs of small operators."""
    monkeypatch.setattr(run, "_PART", 5e-3 / 200)
    monkeypatch.setattr(basics, "_UPDATED", (1 << 12,))
    monkeypatch.setattr(machine_load, "busy_fraction", lambda seconds: 0.3)  # other tests may run
    for name, sizes in (("_SIDES", (64, 128)), ("_ROWS", (16,)), ("_STREAM_ELEMENTS", 1 << 16)):
        for provider in ("cpu", "cuda"):  # of which there are stand-ins, on the host
            monkeypatch.setitem(getattr(basics, name), provider, sizes)


def test_a_model_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "here.toml"
    flags = ["--ranks", "2", "--name", "here", "--format", "json", "-o", str(path)]
    assert main([str(MODEL), *SHORT, *flags]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert [
        line for line in err.splitlines() if not line.startswith("note: other work took ")
    ] == []
    assert found["left_out"] == []
    assert {plan["ranks"] for plan in found["plans"]} == {1, 2}
    assert found["expected_error"]["time"]["samples"] == len(found["plans"])
    assert found["expected_error"]["other_models"] is None
    assert {held["ranks"] for held in found["collectives"]} == {2}
    assert all(plan["measured_s"] > 0 and plan["predicted_s"] > 0 for plan in found["plans"])
    device, base = load_device(str(path)), load_device("cpu").process
    assert device.process is not None and base is not None
    assert device.process.floor_bytes >= base.floor_bytes
    assert device.process.error is not None
    assert device.process.error.samples == len(found["plans"])
    assert device.expected_error is not None
    assert device.expected_error.memory == device.process.error
    assert device.operators["Gemm", "float32"].time_s(1e6, 1e5) > 0
    assert ("Conv", "float32") in device.operators  # from the common ones
    assert opt([str(MODEL), "--device", str(path), "--devices", "2"]) == 0
    assert "here" in capsys.readouterr().out


def test_what_was_measured_before_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, samples = tmp_path / "here.toml", tmp_path / "here.samples.jsonl"
    flags = ["--ranks", "1", *SHORT, "-o", str(path), "--format", "json"]
    assert main([str(MODEL), *flags, "--name", "here"]) == 0
    first = read_samples(samples)
    text = path.read_text()
    path.write_text(text.replace("latency_s = 3e-05", "latency_s = 7e-05"))  # of a cluster
    capsys.readouterr()
    assert main(flags) == 0
    found = json.loads(capsys.readouterr().out)
    assert [plan["model"] for plan in found["plans"]] == ["gpt2_tiny.onnx"]
    both = device_of(path.read_text(), "here.toml")
    assert (both.name, both.network.latency_s) == ("here", 7e-5)
    assert [own.name for own in both.measured_models] == ["gpt2_tiny.onnx"]
    assert ("Gather", "float32") in both.operators
    assert len(read_samples(samples).plans) == len(first.plans)
    assert main([*flags[2:], "--ranks", "2"]) == 1
    line = capsys.readouterr().err
    assert line.startswith("error: -o: the file has measurements of 1 ranks of 1 threads, cpu on ")
    assert main([*flags, "--anew"]) == 0
    assert read_samples(samples).plans == []


def test_what_there_is_no_time_for_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What every description needs is measured all the same."""
    path = tmp_path / "here.toml"
    flags = ["--budget", "0.01", "--ranks", "2", "-o", str(path), "--format", "json"]
    assert main([str(MODEL), *flags]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["plans"] == found["collectives"] == []
    assert dict(load_device(str(path)).peaks)["float32"] > 0
    late = [line for line in err.splitlines() if line.endswith("expected a longer --budget")]
    assert late == [f"left out: {line}" for line in found["left_out"]]
    assert [line.partition(" ")[0] for line in found["left_out"]] == [
        "products_float32,",
        "all_reduce",
        "gpt2_tiny.onnx,",
    ]
    assert "gpt2_tiny.onnx, plans of 1 ranks, gpt2_tiny.onnx, plans of 2 ranks" in late[-1]


def test_no_graph_is_begun_after_the_end(tmp_path: Path) -> None:
    """Ranks that have started ask the clock again."""
    ranks = Ranks(
        RankOptions(threads=1), lambda text: None, until=time.monotonic() - 1, start_s=-100
    )
    graph = MeasuredGraph("one", str(chain(tmp_path / "one.onnx", 1)))
    assert ranks.times_s([graph, graph], 2, 0.01) == [None, None]
    assert ranks.left_out == ["one: no time was left, expected a longer --budget"]


def test_a_step_of_training_has_its_own_kernels(tmp_path: Path) -> None:
    built = Builder()  # in a step weights are inputs
    built.node("Conv", built.input(8, 3, 32, 32), built.input(16, 3, 3, 3), pads=[1] * 4)
    path = str(built.write(tmp_path / "conv.onnx"))
    ranks = Ranks(RankOptions(threads=1), lambda text: None)
    for trains in (False, True):
        [found] = ranks.kernels([MeasuredGraph("conv", path, trains=trains)], 1, 0.01)
        assert found.graph is not None
        nodes = onnx.load(found.graph, load_external_data=False).graph.node
        assert [node.domain == "tensoropt" for node in nodes] == [trains]


def test_without_a_file_the_description_is_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--ranks", "1", *SHORT]) == 0
    out, err = capsys.readouterr()
    path = tmp_path / "piped.toml"
    path.write_text(out, encoding="utf-8")
    assert ("MatMul", "float32") in load_device(str(path)).operators
    assert "operator" in err and "median" in err


def test_a_step_of_training_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loss = ["--train", "--loss", "softmax-cross-entropy:linear,y", "--optimizer", "sgd"]
    path = tmp_path / "here.toml"
    given = [str(MODEL), *loss, *SHORT, "--ranks", "1", "-o", str(path), "--format", "json"]
    assert main(given) == 0
    found = json.loads(capsys.readouterr().out)
    operators = load_device(str(path)).operators
    assert ("Gemm:transA", "float32") in operators
    assert operators[ONE_PASS, "float32"].s_per_byte > 0
    [plan] = read_samples(samples_path(path)).plans
    assert sum(sample.work.operator == ONE_PASS for sample in plan.ops) == 1
    assert [plan["ranks"] for plan in found["plans"]] == [1]
    assert found["collectives"] == []


def test_gpus_are_measured(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    log: Path,
) -> None:
    monkeypatch.setitem(basics.DTYPES, "cuda", ("float32", "bfloat16"))
    path = tmp_path / "here.toml"
    flags = ["--provider", "cuda", "--ranks", "2", "--base", "h200", "-o", str(path)]
    assert main([str(MODEL), *SHORT, *flags, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["name"] == "stand-in"
    assert load_device(str(path)).memory_capacity_bytes == 16 << 30
    assert {held["kind"] for held in found["collectives"]} == set(KINDS)
    said = [line for line in err.splitlines() if not line.startswith("stand-ins of ")]
    said = [line for line in said if not line.startswith("note: other work took ")]
    assert said and all(line.startswith("left out: ") for line in said)  # bfloat16, on a CPU
    assert ".onnx" not in err
    assert "ncclAllGather" in "".join(file.read_text() for file in log.iterdir())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-o", "here.json"], "-o here.json: expected a file that ends in .toml"),
        (["-o", "/nowhere/here.toml"], "-o /nowhere/here.toml: expected an existing folder"),
        (["--ranks", "0"], "--ranks: expected a whole number from 1 to 64, got: '0'"),
        (["--threads", "none"], "--threads: expected a whole number from 1 to 1024, got: 'none'"),
        (["--budget", "-1"], "--budget: expected seconds above 0, got: '-1'"),
        (["--base", "h20"], "did you mean 'h200'?"),
        (["--dim", "batch"], "--dim: expected NAME=SIZE such as batch=8, got: 'batch'"),
        (["model.mlir"], "model.mlir: expected an .onnx model"),
        (["none.onnx"], "none.onnx"),
        (["--loss", "mse:a,b"], "--loss belongs to training, expected --train as well"),
        (["--train"], "--train needs --loss"),
        (["--rank", "2"], "unknown argument '--rank', did you mean '--ranks'?"),
        (["--share-gpus"], "--share-gpus: expected --provider cuda"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert main(flags) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1
    assert message in err


def test_it_is_not_one_of_several(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29400")
    assert main(["--quick"]) == 1
    assert "expected it without mpiexec, srun or torchrun" in capsys.readouterr().err


def test_a_file_stays_as_it_was_when_measuring_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "here.toml"
    path.write_text("before")
    assert main([str(tmp_path / "none.onnx"), "-o", str(path)]) == 1
    assert path.read_text() == "before"
    assert [held.name for held in tmp_path.iterdir()] == ["here.toml"]


def test_a_busy_machine_is_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    monkeypatch.setattr(
        machine_load, "busy_fraction", lambda seconds: looks.append(seconds) or 0.93
    )
    assert main(["--ranks", "1", *SHORT, "-o", str(tmp_path / "here.toml")]) == 1
    assert capsys.readouterr().err == (
        "error: the machine is too busy: other work takes 93% of its cores, expected an idle "
        "machine, or --busy to measure all the same, for times that are too long\n"
    )
    assert sum(looks) < 5
    assert not list(tmp_path.iterdir())
