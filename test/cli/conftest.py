"""Runs tensoropt-opt inside the test process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
from onnx import TensorProto, helper

from tensoropt.compiler.cli.opt import main


class Outcome(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


Opt = Callable[..., Outcome]


@pytest.fixture
def opt(capsys: pytest.CaptureFixture[str]) -> Opt:
    def run(*argv: str | Path) -> Outcome:
        capsys.readouterr()
        status = main([str(arg) for arg in argv])
        out, err = capsys.readouterr()
        return Outcome(status, out, err)

    return run


@pytest.fixture
def refused(opt: Opt) -> Callable[..., str]:
    """Run a command that must fail with one line on stderr and nothing on stdout; return it."""

    def run(*argv: str | Path) -> str:
        outcome = opt(*argv)
        assert outcome.status == 1
        assert outcome.out == ""
        assert outcome.err.startswith("error: ")
        assert outcome.err.count("\n") == 1
        return outcome.err.removeprefix("error: ").rstrip("\n")

    return run


@pytest.fixture(scope="session")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two matrix products with a Relu between them, batch 8, width 16."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, [16, 16], [0.25] * 256) for name in ("w1", "w2")
    ]
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, 16]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "mlp", value[:1], value[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path_factory.mktemp("models") / "mlp.onnx"
    onnx.save(model, path)
    return path
