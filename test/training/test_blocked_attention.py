"""Training steps over long sequences: attention in blocks and in rings computes what others do."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs.llama import Llama
from training.simulated import points, relative_error
from training.steps import build, spec_of

from tensoropt.compiler.pipeline.driver import load, run_phase
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.passes.add_rules import AddRulesPass
from tensoropt.passes.build_training_step import BuildTrainingStepPass
from tensoropt.passes.pipeline import Pipeline, parse_pipeline
from tensoropt.passes.search_strategies import annotate
from tensoropt.runtime.layout.mesh import Mesh

MESHES = [Mesh((1,)), Mesh((2,)), Mesh((4,)), Mesh((2, 2))]
LOSS = "softmax-cross-entropy:scores,labels"
_ATTENTION = "onnx.tensoropt.BlockedAttention"


def model(folder: Path, sequence: int = 72) -> Path:
    """Write a LLaMA of one layer with heads of 4 elements, two per key head."""
    made = Llama(
        layers=1, width=16, heads=4, groups=2, inner=24, vocabulary=32, sequence=sequence,
        batch=2, dtype="float32",
    )  # fmt: skip
    return made.build("llama").save(folder, seed=0)


def plain(path: Path) -> ir.Module:
    """Return the step with separate operations of attention."""
    module = load(path, {}, training=True)
    passes = "verify-onnx,infer-shapes,fold-constants,simplify{keep-dropout=true},dce"
    Pipeline(parse_pipeline(passes, module.context)).run(module)
    Pipeline([BuildTrainingStepPass.from_spec(spec_of(LOSS)), AddRulesPass()]).run(module)
    assert _count(module, _ATTENTION) == 0
    return module


def _count(module: ir.Module, name: str) -> int:
    return sum(op.operation.name == name for op in onnx.function(module).regions[0].blocks[0])


def _rings(point: FrontierPoint) -> int:
    """Return the mesh axes along which keys travel in the forward pass."""
    graph = point.tables.graph
    (index,) = (i for i, n in enumerate(graph.nodes) if getattr(n, "source", None) is not None
                and n.source.name == _ATTENTION)  # fmt: skip
    layout = point.strategies[index].operands[1]
    return len(layout.axes_splitting(4))


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_plans_with_and_without_a_ring_compute_the_same_step(tmp_path: Path, mesh: Mesh) -> None:
    path = model(tmp_path)
    step = build(path, spec_of(LOSS))
    drawn = {_rings(p) > 0: p for seed in range(9) for p in points(step, mesh, seed=seed)}
    assert drawn.keys() == ({False, True} if mesh.size > 1 else {False})
    for point in drawn.values():
        error = relative_error(
            lambda: build(path, spec_of(LOSS)), point, 32, reference=lambda: plain(path)
        )
        assert error < 1e-4


def test_short_attention_is_kept(tmp_path: Path) -> None:
    short = build(model(tmp_path, 48), spec_of(LOSS))
    assert _count(short, _ATTENTION) == 0
    assert _count(short, "onnx.Softmax") == 1


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_totals_of_narrow_steps_are_wide(tmp_path: Path, precision: str) -> None:
    step = build(model(tmp_path), spec_of(LOSS, precision=precision))
    block = onnx.function(step).regions[0].blocks[0]
    (attention,) = (op.operation for op in block if op.operation.name == _ATTENTION)
    y, total = (str(value.type) for value in attention.results)
    assert y.endswith({"float16": "x72x4xf16>", "bfloat16": "x72x4xbf16>"}[precision])
    assert total.endswith("x72x1xf32>")
    (point,) = points(step, Mesh((2,)), seed=1)
    annotate(step, point, "cpu")
    for phase in ("reshard", "partition"):
        run_phase(step, phase)
    assert _count(step, _ATTENTION) == 0
