"""Memory that ranks of one machine have in common: by what the system counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from handmade import Perceptron, model_of, tensor, value_info, write_plan
from mpi_ranks import under_mpi
from onnx import helper

from tensoropt.runtime.pool.session import Session

COUNT, HALF = 1 << 19, 1 << 18
SUM = COUNT * (COUNT - 1) / 2


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    ranks: list[dict[str, Any]] = under_mpi(2, Path(__file__).parent / "common_memory_cases.py")
    return ranks


def test_equal_blocks_are_there_once(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["blocks"] == 3
        rss, pss = rank["kept"]["same"]
        assert rss >= 4096 - 8
        assert pss == pytest.approx(rss / 2, abs=8)


def test_others_are_left_alone(found: list[dict[str, Any]]) -> None:
    for rank in found:
        for name in ("own", "later", "untold"):
            rss, pss = rank["kept"][name]
            assert rss == pss


def test_values_stay_and_what_is_written_is_ones_own(found: list[dict[str, Any]]) -> None:
    for number, rank in enumerate(found):
        own, later = (number + 1) * COUNT, number * HALF
        assert rank["sums"] == {"same": SUM, "own": SUM + own, "later": SUM + later, "untold": SUM}
        assert rank["again"] == 0.0
    assert [rank["at"] for rank in found] == [HALF, -1.0]


def test_packed_weights_of_a_session(perceptron: Perceptron, tmp_path: Path) -> None:
    weight = np.random.default_rng(1).standard_normal((1024, 512), np.float32)
    graph = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [value_info("x", "float32", [2, 1024])],
        [value_info("y", "float32", [2, 512])],
        {"w": weight},
    )
    ends = [tensor("x", [4, 1024], ["S(0)"])], [tensor("y", [4, 512], ["S(0)"])]
    plan = write_plan(tmp_path / "plan", perceptron.model, (2,), [graph, graph], *ends)
    onnx.save(graph, tmp_path / "whole.onnx")
    x = np.random.default_rng(2).standard_normal((4, 1024), np.float32)
    with Session(plan, threads=1) as session:
        y = session.run({"x": x})["y"]
        places = [_common(pid) for pid in session.pids]
    whole = ort.InferenceSession(tmp_path / "whole.onnx", providers=["CPUExecutionProvider"])
    parts = [whole.run(None, {"x": part})[0] for part in np.split(x, 2)]
    np.testing.assert_array_equal(y, np.concatenate(parts))
    assert places[0] == places[1] != set()


def _common(pid: int) -> set[str]:
    """Return the numbers of the files of weights without a name that a process maps."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "memfd:tensoropt-weights" in line}
