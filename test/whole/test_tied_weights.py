"""A weight that an embedding reads and a product reads turned: held once, and split once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from emitted_memory import emitted_memory
from odd_models import F32, I64, model, node, value, weight

from tensoropt.compiler.cli.opt import main
from tensoropt.runtime.inference.jobs import check_plans

WORDS, WIDTH, BATCH, LENGTH = 48, 16, 4, 6
WEIGHT_BYTES = WORDS * WIDTH * 4


def tied(rank: int) -> onnx.ModelProto:
    """Return an embedding, a layer, and scores of all words by the embedding's own weight."""
    shape = [BATCH, LENGTH][: rank - 1]
    nodes = [
        node("Gather", ["w", "ids"], ["e"]),
        node("MatMul", ["e", "v"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("Transpose", ["w"], ["turned"], perm=[1, 0]),
        node("MatMul", ["r", "turned"], ["y"]),
    ]
    ends = [value("ids", I64, shape)], [value("y", F32, [*shape, WORDS])]
    return model(nodes, *ends, weight("w", WORDS, WIDTH), weight("v", WIDTH, WIDTH))


def optimised(path: Path) -> onnx.ModelProto:
    """Return what ONNX Runtime makes of a graph without collectives, with all optimisations."""
    options = ort.SessionOptions()
    target = path.with_suffix(".optimised.onnx")
    options.optimized_model_filepath = str(target)
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return onnx.load(target)


@pytest.mark.parametrize(("rank", "product"), [(3, "FusedMatMul"), (2, "Gemm")])
def test_onnx_runtime_keeps_one(rank: int, product: str, tmp_path: Path) -> None:
    path, plan = tmp_path / "model.onnx", tmp_path / "plan"
    onnx.save(tied(rank), path)
    assert main([str(path), "--devices", "1", "-o", str(plan)]) == 0
    before, after = optimised(path).graph, optimised(plan / "rank0.onnx").graph
    large = [
        [t for t in g.initializer if np.prod(t.dims) == WORDS * WIDTH] for g in (before, after)
    ]
    assert [len(held) for held in large] == [2, 1]
    assert "Transpose" not in [n.op_type for n in after.node]
    assert product in [n.op_type for n in after.node]
    predicted = json.loads((plan / "plan.json").read_text())["predicted"]
    held = sum(4 * int(np.prod(t.dims)) for t in after.initializer if t.data_type == F32)
    assert predicted["static_bytes"] == held == WEIGHT_BYTES + WIDTH * WIDTH * 4


@pytest.mark.parametrize("rank", [3, 2])
def test_every_rank_holds_its_part_once(rank: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(tied(rank), path)
    plans = []
    for flags in (["--pick", "fastest"], ["--pick", "leanest"], ["--search", "random"]):
        plans.append(tmp_path / f"plan{len(plans)}")
        assert (
            main([str(path), "--devices", "2", "--device", "v100", *flags, "-o", str(plans[-1])])
            == 0
        )
    assert all(result.passed for result in check_plans(plans, path, threads=1, timeout_s=120))
    for plan in plans:
        predicted = json.loads((plan / "plan.json").read_text())["predicted"]
        emitted = emitted_memory(plan / "rank0.onnx")
        # A token of collectives, and the extents of a Slice (decision 11), are not predicted.
        assert 0 <= emitted.static_bytes - predicted["static_bytes"] <= 8 + 3 * 8
    lean = json.loads((plans[1] / "plan.json").read_text())
    assert lean["predicted"]["static_bytes"] < 0.6 * (WEIGHT_BYTES + WIDTH * WIDTH * 4)
    [held] = [tensor for tensor in lean["parameters"] if tensor["name"] == "w"]
    assert held["layout"] in (["S(0)"], ["S(1)"])
