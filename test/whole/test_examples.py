"""The examples do what they say, run as a reader would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from zoo import transformer_path

EXAMPLES = Path(__file__).parents[2] / "examples"
BIN = Path(sys.executable).parent
MODEL = transformer_path("vit_tiny")


def _run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=100)


def _own_process(ranks: int, *arguments: Path) -> subprocess.CompletedProcess[str]:
    script = EXAMPLES / "own_process.py"
    return _run(BIN / "mpiexec", "-n", str(ranks), sys.executable, script, *arguments)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The leanest plan of a model on 2 ranks, which has collectives and split inputs."""
    folder = tmp_path_factory.mktemp("examples") / "plan"
    flags = ["--devices", "2", "--pick", "leanest", "-o", folder]
    made = _run(BIN / "tensoropt-opt", MODEL, *flags)
    assert made.returncode == 0, made.stderr
    return folder


def test_own_process_agrees_with_one_device(plan: Path, tmp_path: Path) -> None:
    session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    inputs = {i.name: rng.standard_normal(i.shape, np.float32) for i in session.get_inputs()}
    np.savez(tmp_path / "in.npz", **inputs)
    ended = _own_process(2, plan, tmp_path / "in.npz", tmp_path / "out.npz")
    assert ended.returncode == 0, ended.stderr
    names = [output.name for output in session.get_outputs()]
    with np.load(tmp_path / "out.npz") as outputs:
        assert sorted(outputs) == sorted(names)
        for name, expected in zip(names, session.run(names, inputs), strict=True):
            np.testing.assert_allclose(outputs[name], expected, rtol=1e-3, atol=1e-4)


def test_own_process_says_how_many_ranks_it_needs(plan: Path, tmp_path: Path) -> None:
    ended = _own_process(3, plan, tmp_path / "in.npz", tmp_path / "out.npz")
    assert ended.returncode != 0
    assert f"error: {plan}: expected 2 ranks, got: 3" in ended.stderr
    assert not (tmp_path / "out.npz").exists()


def test_own_process_says_what_it_wants(tmp_path: Path) -> None:
    for arguments in ((), (tmp_path, "in.npz", "out.npz")):
        ended = _run(sys.executable, EXAMPLES / "own_process.py", *arguments)
        assert ended.returncode == 1
        assert ended.stderr.startswith("error: ")
        assert ended.stderr.count("\n") == 1
