"""What cannot be split runs whole on every rank, and the products around it are split."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import onnx
import pytest
from odd_models import MODELS

from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plan

WHOLE = {
    "a_condition": {"If"},
    "a_loop": {"Loop"},
    "a_scan": {"Scan"},
    "a_sequence": {"SequenceConstruct", "ConcatFromSequence"},
    "an_optional": {"Optional", "OptionalGetElement"},
    "texts": {"StringConcat"},
}


@pytest.mark.parametrize("name", WHOLE)
def test_the_leanest_plan_splits_the_rest(name: str, tmp_path: Path) -> None:
    path, plan = tmp_path / "model.onnx", tmp_path / "plan"
    onnx.save(MODELS[name](), path)
    assert (
        main(
            [str(path), "--devices", "2", "--device", "v100", "--pick", "leanest", "-o", str(plan)]
        )
        == 0
    )
    rows = json.loads((plan / "plan.json").read_text(encoding="utf-8"))["strategies"]
    placements = defaultdict(set)
    for row in rows:
        placements[row["op"]].update(p for x in (*row["operands"], *row["results"]) for p in x)
    assert all(placements[op] <= {"R"} for op in WHOLE[name])
    assert placements["MatMul"] - {"R"}
    result = check_plan(plan, path, threads=1, timeout_s=120)
    assert (result.error, result.passed) == (None, True)
