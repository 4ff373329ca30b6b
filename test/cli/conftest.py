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

    def run(*argv: str | Path, status: int = 1) -> str:
        outcome = opt(*argv)
        assert outcome.status == status
        assert outcome.out == ""
        assert outcome.err.startswith("error: ")
        assert outcome.err.count("\n") == 1
        return outcome.err.removeprefix("error: ").rstrip("\n")

    return run


@pytest.fixture(scope="session")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two matrix products with a Relu between them, batch 8, width 16."""
    return _products(["first", "second"], tmp_path_factory.mktemp("models") / "mlp.onnx")


@pytest.fixture(scope="session")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four such products: as a training step too many clusters for a search that learns.

    That takes a tenth of the time of a step of ``mlp``.
    """
    names = ["first", "second", "third", "fourth"]
    return _products(names, tmp_path_factory.mktemp("models") / "deep.onnx")


def _products(names: list[str], path: Path) -> Path:
    """Save a model of matrix products of these names, by w1, w2 and so on, with Relus between."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 16]) for name in "xy")
    nodes, weights, value = [], [], "x"
    for number, name in enumerate(names, 1):
        weights.append(helper.make_tensor(f"w{number}", TensorProto.FLOAT, [16, 16], [0.25] * 256))
        if number == len(names):
            nodes.append(helper.make_node("MatMul", [value, f"w{number}"], ["y"], name=name))
            break
        more = "" if number == 1 else str(number)
        product, value, before = f"h{more}", f"r{more}", value
        nodes += [
            helper.make_node("MatMul", [before, f"w{number}"], [product], name=name),
            helper.make_node("Relu", [product], [value], name=f"relu{more}"),
        ]
    graph = helper.make_graph(nodes, "mlp", [x], [y], weights)
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path
