"""tensoropt-run on real ranks: what it prints, writes and returns."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from handmade import Perceptron
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.cli.opt import main as plan_of
from tensoropt.runtime.cli.run import main
from tensoropt.runtime.inference.jobs import check_plan, check_plans
from tensoropt.runtime.support.errors import UserError


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_check_passes(capsys, plan: Path, perceptron: Perceptron) -> None:
    status, out, err = run(capsys, plan, "--check", perceptron.model)
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0].split() == ["output", "type", "shape", "largest", "difference", "relative"]
    assert lines[1].split()[:3] == ["y", "float32", "4x5"]
    assert lines[1].endswith("ok")
    assert lines[-1] == "PASSED"


def test_check_fails(capsys, perceptron: Perceptron, tmp_path: Path) -> None:
    wrong = perceptron.plan(tmp_path / "wrong", mode="wrong")
    status, out, err = run(capsys, wrong, "--check", perceptron.model)
    assert (status, err) == (1, "")
    assert out.splitlines()[1].endswith("FAILED")
    assert out.splitlines()[-1] == "FAILED"
    loose = ["--check", perceptron.model, "--atol", 1e6]
    assert run(capsys, wrong, *loose)[0] == 0


def test_json(capsys, perceptron: Perceptron, tmp_path: Path) -> None:
    four = perceptron.plan(tmp_path / "four", (2, 2))
    arguments = [four, "--check", perceptron.model, "--format", "json", "--runs", 3]
    status, out, _ = run(capsys, *arguments)
    facts = json.loads(out)
    assert status == 0
    assert facts["passed"] is True
    assert (facts["ranks"], facts["mesh"]) == (4, [2, 2])
    assert facts["outputs"][0]["shape"] == [4, 5]
    assert 0 <= facts["outputs"][0]["absolute"] < 1e-5
    step = facts["step_time_s"]
    assert step["runs"] == 3
    assert 0 < step["min"] <= step["median"] <= step["max"]
    assert facts["one_device_time_s"]["runs"] == 3


def test_several_plans_in_one_launch(capsys, perceptron: Perceptron, tmp_path: Path) -> None:
    good = perceptron.plan(tmp_path / "good", (2, 1))
    wrong = perceptron.plan(tmp_path / "wrong", mode="wrong")
    status, out, err = run(capsys, good, wrong, "--check", perceptron.model, "--runs", 2)
    lines = out.splitlines()
    assert (status, err, len(lines)) == (1, "", 3)
    assert lines[0].split()[:4] == [str(good), "mesh", "2x1", "PASSED"]
    assert lines[1].split()[:4] == [str(wrong), "mesh", "1x2", "FAILED"]
    assert "largest difference" in lines[1]
    assert lines[2] == "FAILED"
    four = perceptron.plan(tmp_path / "four", (2, 2))
    status, out, err = run(capsys, good, four, "--check", perceptron.model)
    assert (status, out) == (1, "")
    assert "plans of one launch need equal numbers of ranks, expected 2" in err


def test_inputs_and_outputs(capsys, perceptron: Perceptron, tmp_path: Path) -> None:
    plan = perceptron.plan(tmp_path / "plan", (2, 1))
    x = np.random.default_rng(1).standard_normal((4, 6), dtype=np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    out = tmp_path / "out.npz"
    status, text, _ = run(capsys, plan, "--inputs", tmp_path / "in.npz", "--outputs", out)
    assert status == 0
    assert text.split() == ["output", "type", "shape", "y", "float32", "4x5"]
    with np.load(out) as file:
        expected = np.maximum(x @ perceptron.w1, 0) @ perceptron.w2
        np.testing.assert_allclose(file["y"], expected, rtol=1e-4, atol=1e-5)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npz", "out.npz", "plan"]


def test_the_seed_decides(capsys, plan: Path, tmp_path: Path) -> None:
    found = []
    for seed in (1, 1, 2):
        out = tmp_path / "out.npz"
        assert run(capsys, plan, "--seed", seed, "--outputs", out)[0] == 0
        found.append(np.load(out)["y"])
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_symbolic_dimensions(capsys, tmp_path: Path) -> None:
    model = Perceptron(tmp_path, "batch")
    plan = model.plan(tmp_path / "plan", (2, 1))
    assert run(capsys, plan, "--check", model.model, "--dim", "batch=6")[0] == 0
    status, _, err = run(capsys, plan, "--check", model.model)
    assert status == 1
    assert "input 'x': dimension 0 does not divide into 2 parts, got: 1" in err
    _, _, err = run(capsys, plan, "--dim", "bach=6")
    assert "--dim bach: no input has such a dimension, did you mean 'batch'?" in err
    _, _, err = run(capsys, plan, "--dim", "batch=5")
    assert "input 'x': dimension 0 does not divide into 2 parts, got: 5" in err


def test_the_python_interface(perceptron: Perceptron, plan: Path, tmp_path: Path) -> None:
    result = check_plan(plan, perceptron.model, seed=3, threads=1)
    assert result.passed
    assert result.outputs[0].name == "y"
    other = perceptron.plan(tmp_path / "other", (2, 1))
    assert [r.passed for r in check_plans([plan, other], perceptron.model)] == [True, True]
    with pytest.raises(UserError, match="no such model"):
        check_plan(plan, tmp_path / "none.onnx")


def test_ranks_already_present(perceptron: Perceptron, plan: Path, tmp_path: Path) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "-launcher", "fork", "-n", "2", sys.executable]
    command += ["-m", "tensoropt.runtime.cli.run", plan, "--check", perceptron.model]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "PASSED"
    assert done.stdout.count("PASSED") == 1
    command[4] = "3"
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == f"error: {plan}: needs 2 ranks, expected mpiexec -n 2, got: 3 ranks\n"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "input 'x' is missing"),
        ({"X": (4, 6)}, "array 'X' is not an input of the plan"),
        ({"x": (4, 6), "xx": (1,)}, "array 'xx' is not an input of the plan, did you mean 'x'?"),
        ({"x": (4, 7)}, "input 'x': expected shape 4x6, got: 4x7"),
        ({"x": (4,)}, "input 'x': expected shape 4x6, got: 4"),
        ({"x": ()}, "input 'x': expected shape 4x6, got: a scalar"),
    ],
)
def test_inputs_that_do_not_fit(capsys, plan: Path, tmp_path: Path, arrays, message) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, **{name: np.zeros(shape, np.float32) for name, shape in arrays.items()})
    status, out, err = run(capsys, plan, "--inputs", path)
    assert (status, out) == (1, "")
    assert err == f"error: {path}: {message}\n"


def test_inputs_of_another_kind(capsys, plan: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    assert run(capsys, plan, "--inputs", path)[2] == f"error: {path}: no such file\n"
    path.write_text("no zip")
    assert f"error: {path}: not an .npz file: " in run(capsys, plan, "--inputs", path)[2]
    np.savez(path, x=np.zeros((4, 6)))
    assert "input 'x': expected float32, got: float64\n" in run(capsys, plan, "--inputs", path)[2]


def test_inputs_that_are_damaged(capsys, plan: Path, tmp_path: Path) -> None:
    held, path = io.BytesIO(), tmp_path / "in.npz"
    np.save(held, np.zeros((4, 6), np.float32))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", held.getvalue()[:-8])
    err = run(capsys, plan, "--inputs", path)[2]
    assert f"{path}: array 'x' is damaged: ValueError: " in err


def test_inputs_are_never_unpickled(capsys, plan: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "run",)

    path = tmp_path / "in.npz"
    np.savez(path, x=np.array([[Evil()]], dtype=object))
    assert "input 'x': expected float32, got: object\n" in run(capsys, plan, "--inputs", path)[2]
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_result_that_cannot_be_printed(plan: Path) -> None:
    command = [sys.executable, "-m", "tensoropt.runtime.cli.run", str(plan)]
    with Path("/dev/full").open("w") as full:
        buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
        done = subprocess.run(
            command, env=buffered, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr == (
        "error: standard output: no space left on device, free some space or choose another place\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--int-range", "5:5"],
            "--int-range: expected LO:HI, whole numbers with LO below HI, got: '5:5'",
        ),
        (["--dim", "batch"], "--dim: expected NAME=SIZE such as batch=8, got: 'batch'"),
        (["--dim", "b=1", "--dim", "b=2"], "--dim: 'b' is given twice"),
        (["--runs", "-1"], "--runs: expected a whole number from 0, got: '-1'"),
        (["--timeout", "0"], "--timeout: expected seconds above 0, got: '0'"),
        (["--rtol", "nan"], "--rtol: expected a number from 0, got: 'nan'"),
        (["--format", "yaml"], "invalid choice: 'yaml'"),
        (["--chekc", "m"], "unknown argument '--chekc', did you mean '--check'?"),
        (["--outputs", "/no/such/out.npz"], "expected a file in an existing folder"),
    ],
)
def test_flags_that_are_wrong(capsys, plan: Path, flags: list[str], message: str) -> None:
    status, out, err = run(capsys, plan, *flags)
    assert (status, out) == (1, "")
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_outputs_of_several_plans(capsys, plan: Path) -> None:
    _, _, err = run(capsys, plan, plan, "--outputs", "out.npz")
    assert err == "error: --outputs out.npz: expected one plan, got: 2\n"


def test_no_plan_given(capsys) -> None:
    assert (
        run(capsys)[2]
        == "error: the following arguments are required: PLAN (see tensoropt-run --help)\n"
    )


def test_the_version_is_the_compilers() -> None:
    from tensoropt.compiler.support.version import TOOL

    command = [sys.executable, "-m", "tensoropt.runtime.cli.run", "--version"]
    assert subprocess.check_output(command, text=True) == f"{TOOL}\n"


def test_nothing_of_the_compiler_is_imported() -> None:
    modules = [
        "cli.report",
        "cli.run",
        "cli.train",
        "device.cuda",
        "device.provider",
        "inference.work",
        "launch.launcher",
        "launch.rank",
        "launch.start",
        "profile.work",
        "session.session",
        "training.export",
        "training.prepare",
        "training.work",
    ]
    names = ", ".join(f"tensoropt.runtime.{name}" for name in modules)
    code = f"import sys, {names}; print([m for m in sys.modules if 'tensoropt.comp' in m])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_check_leaves_the_peak_of_the_plan(capsys, tmp_path: Path) -> None:
    """The one-device run has all weights, which are no part of what a rank of the plan takes."""
    weights = [np.eye(1024, dtype=np.float32) for _ in range(12)]
    nodes, last = [], "x"
    for number in range(len(weights)):
        nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"h{number}"]))
        last = f"h{number}"
    stored = [numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(weights)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 1024]) for n in ("x", last)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    model = tmp_path / "model.onnx"
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), model)
    assert plan_of([str(model), "--mesh", "2", "--pick", "leanest", "-o", str(tmp_path / "p")]) == 0
    capsys.readouterr()
    flags = [tmp_path / "p", "--runs", 2, "--format", "json"]
    alone = json.loads(run(capsys, *flags)[1])["peak_bytes"]
    checked = json.loads(run(capsys, *flags, "--check", model)[1])["peak_bytes"]
    assert checked < 1.15 * alone  # 48 MiB of weights are a third of it
