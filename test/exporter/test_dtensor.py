"""The placements of a plan in PyTorch: each of its ranks has what the rank of the plan has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tensoropt.compiler.cli.opt import main

pytest.importorskip("torch")

MODEL = Path(__file__).parents[1] / "models" / "gpt2_tiny.onnx"
RANK = Path(__file__).with_name("dtensor_rank.py")


def _arrays(path: Path) -> dict[str, np.ndarray]:
    proto = onnx.load(path)
    return {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}


def test_ranks_of_pytorch_have_the_parts_of_a_plan(tmp_path: Path) -> None:
    said, plan = tmp_path / "placements.json", tmp_path / "plan"
    flags = ["--mesh", "2", "--pin", "m.transformer.h.*.mlp.c_fc.weight=S(1)@x"]
    flags += ["--pin", "m.transformer.h.*.mlp.c_proj.weight=S(0)@x"]
    assert main([str(MODEL), *flags, "--dtensor", str(said), "-o", str(plan)]) == 0
    placements = json.loads(said.read_text())["parameters"]
    assert placements["m.transformer.h.0.mlp.c_fc.weight"] == [["Shard", 1]]

    ranks = [_arrays(plan / f"rank{rank}.onnx") for rank in range(2)]
    whole = {
        name: array
        for name, array in _arrays(MODEL).items()
        if name in placements and all(name in own for own in ranks)
    }
    assert len(whole) > 10
    np.savez(tmp_path / "whole.npz", **whole)
    given = [said, tmp_path / "whole.npz", tmp_path / "store"]
    jobs = [
        subprocess.Popen([sys.executable, RANK, *given, str(rank), tmp_path / f"{rank}.npz"])
        for rank in range(2)
    ]
    assert [job.wait(timeout=600) for job in jobs] == [0, 0]
    for rank, own in enumerate(ranks):
        parts = np.load(tmp_path / f"{rank}.npz")
        for name in whole:
            np.testing.assert_array_equal(parts[name], own[name], err_msg=name)
