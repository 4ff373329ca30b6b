"""A plan that is said to fit a limit of memory runs in a process that has no more."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tensoropt.compiler.cli.opt import main as opt

WIDTH, ROWS, LAYERS = 1024, 4096, 12
LIMITS = (("memory", "memory.limit_in_bytes"), (".", "memory.max"))
"""Of the first and the second version of control groups: where they are, and their limit."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Products with 48 MiB of weights and 16 MiB of every activation."""
    path, random = tmp_path_factory.mktemp("limit") / "model.onnx", np.random.default_rng(0)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [ROWS, WIDTH]) for n in "xy")
    names = ["x", *(f"h{n}" for n in range(1, LAYERS)), "y"]
    nodes, weights = [], []
    for n, (read, made) in enumerate(itertools.pairwise(names)):
        values = random.standard_normal((WIDTH, WIDTH), np.float32) / WIDTH
        weights.append(numpy_helper.from_array(values, f"w{n}"))
        nodes.append(helper.make_node("MatMul", [read, f"w{n}"], [made]))
    graph = helper.make_graph(nodes, "products", [x], [y], weights)
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


@pytest.fixture
def limit() -> Iterator[tuple[Path, Path]]:
    """Yield a control group of its own and the file with its limit; skip where none can be made."""
    for folder, name in LIMITS:
        group = Path("/sys/fs/cgroup", folder, f"tensoropt-{uuid.uuid4().hex}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / name).is_file():
                yield group, group / name
                return
        finally:
            with suppress(OSError):
                group.rmdir()
    pytest.skip("no control group with a limit of memory can be made here")


def run_within(limit: tuple[Path, Path], size: int, plan: Path, *flags: str) -> int:
    """Run a plan of one rank in a process that has ``size`` bytes; return how that ended."""
    group, file = limit
    file.write_text(str(size))
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    tool = "import sys; from tensoropt.runtime.cli.run import main; sys.exit(main())"
    command = [sys.executable, "-c", tool, str(plan), *flags, "--threads", "1"]
    enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    return subprocess.run(
        ["sh", "-c", enter, "sh", *command], env=environment, check=False, capture_output=True
    ).returncode


def test_a_plan_runs_in_what_it_is_said_to_take(
    model: Path, limit: tuple[Path, Path], tmp_path: Path
) -> None:
    plan = tmp_path / "plan"
    assert opt([str(model), "--devices", "1", "-o", str(plan)]) == 0
    predicted = json.loads((plan / "plan.json").read_text())["predicted"]
    size = predicted["process_bytes"]
    given = tmp_path / "given"
    assert opt([str(model), "--devices", "1", "--memory", str(size), "-o", str(given)]) == 0
    assert run_within(limit, size, given, "--runs", "3") == 0
    # What only its tensors take is not enough.
    half = predicted["memory_bytes"] // 2
    assert run_within(limit, half, plan, "--runs", "3") == -signal.SIGKILL


def test_a_step_trains_in_what_it_is_said_to_take(
    model: Path, limit: tuple[Path, Path], tmp_path: Path
) -> None:
    """The leanest plan, which is the only one that fits."""
    x = np.ones((ROWS, WIDTH), np.float32)
    np.savez(tmp_path / "data.npz", x=x, t=x)
    step = ["--train", "--loss", "mse:y,t", "--optimizer", "sgd", "--devices", "1"]
    lean, given = tmp_path / "lean", tmp_path / "given"
    assert opt([str(model), *step, "--pick", "leanest", "-o", str(lean)]) == 0
    size = json.loads((lean / "plan.json").read_text())["predicted"]["process_bytes"]
    assert opt([str(model), *step, "--memory", str(size), "-o", str(given)]) == 0
    train = ("--train", "--data", str(tmp_path / "data.npz"), "--steps", "2")
    assert run_within(limit, size, given, *train) == 0
    assert run_within(limit, size // 2, given, *train) == -signal.SIGKILL
