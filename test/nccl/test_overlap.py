"""Training steps whose collectives run during other nodes, over the stand-ins.

With `TENSOROPT_STAND_IN_LATE`, transfers run as late as their waits allow. So a gather that a layer
reads too early, a gradient that the update reads too early, and memory that is reused during a
transfer change the losses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import pytest
from graphs.trained import LOSS
from recorded import FULL, check_together, disorder
from search_graphs import training_spec
from stand_ins import calls
from sweep_train import TOLERANCE, Case
from train_plans import extremes, zero_point
from train_runs import difference, run_plan

import tensoropt as to
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.search.frontier.search import FrontierResult
from tensoropt.passes.build_training_step import BuildTrainingStepPass

EAGER = str(Path(__file__).parents[1] / "devices" / "eager.toml")
RANKS, STAGES, STEPS = 2, 2, 3
PRODUCTS = {"MatMul", "Gemm", "FusedMatMul"}
SAMPLE = [pytest.param("gpt2", 1, marks=pytest.mark.quick), ("gpt2", 2)]
ALL = [(name, count) for name in ("gpt2", "llama") for count in (1, 2)]


@dataclass(frozen=True)
class Window:
    """A collective that is started: its kind, what it sends, and the products until its wait."""

    kind: str
    sent: tuple[str, ...]
    products: tuple[str, ...]

    def has(self, kind: str, layer: str, during: str) -> bool:
        """Return whether it sends something of a layer during a product of another one."""
        is_sent = any(name.startswith(layer) for name in self.sent)
        return self.kind == kind and is_sent and any(map(during.__eq__, map(_part, self.products)))


@pytest.mark.parametrize(("name", "micro_batches"), ALL if FULL else SAMPLE)
def test_gathers_run_a_layer_ahead_and_sums_of_gradients_behind(
    name: str, micro_batches: int, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(name, tmp_path, STEPS)
    plain, started = (_plan(case, micro_batches, way) for way in ("off", "auto"))
    assert not [*_windows(plain)]
    windows = [*_windows(started)]
    assert any(one.has("AllGather", "layer1.", "layer0 forward") for one in windows)
    assert any(one.has("ReduceScatter", "layer1/", "layer0 backward") for one in windows)
    expected = _losses(case, plain)
    late = log / "late"
    late.mkdir()
    monkeypatch.setenv("TENSOROPT_STAND_IN_LATE", "1")
    monkeypatch.setenv("TENSOROPT_NCCL_LOG", str(late))
    assert _losses(case, started) == expected
    check_together(late, RANKS)
    for rank in range(RANKS):
        called = calls(late, rank)
        (side,) = {c["stream"] for c in called if c["call"] == "cudaStreamCreateWithFlags"}
        assert disorder(called, side) == ""
        assert not [call for call in called if call["call"] == "error"]
    if micro_batches == 1:
        assert difference(expected, case.one_device().losses) < TOLERANCE


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "interleaved"] if FULL else ["zb-h1"])
def test_stages_have_equal_losses_with_transfers_that_are_late(
    schedule: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("gpt2", tmp_path, STEPS)
    plain, started = (_staged(case, schedule, way) for way in ("off", "auto"))
    assert not [*_started(plain)]
    kinds = {"AllGather", "ReduceScatter"}
    assert kinds <= {name.removeprefix("Combined") for name in _started(started)}
    expected = _losses(case, plain)
    assert _losses(case, started) == expected
    late = log / "late"
    late.mkdir()
    monkeypatch.setenv("TENSOROPT_STAND_IN_LATE", "1")
    monkeypatch.setenv("TENSOROPT_NCCL_LOG", str(late))
    assert _losses(case, started) == expected
    for rank in range(STAGES * RANKS):
        called = calls(late, rank)
        (side,) = {c["stream"] for c in called if c["call"] == "cudaStreamCreateWithFlags"}
        assert disorder(called, side) == ""
        assert not [call for call in called if call["call"] == "error"]


def _staged(case: Case, schedule: str, overlap: str) -> Path:
    """Write the leanest plan of two stages, each of two ranks that split the batch."""
    train = to.Training(LOSS, case.recipe.optimizer, micro_batches=STAGES, recompute="none")
    frontier = to.load(case.path).frontier(
        STAGES * RANKS, stages=STAGES, schedule=schedule, device=EAGER, train=train,
        overlap=overlap, epsilon=1.0,
    )  # fmt: skip
    directory = case.folder / overlap
    frontier.pick("leanest").compile(directory)
    return directory


def _started(plan: Path) -> Iterator[str]:
    """Yield the kinds of the collectives that graphs of the first rank of a plan start."""
    for path in sorted(plan.glob("rank0*.onnx")):
        for node in onnx.load(path, load_external_data=False).graph.node:
            if node.op_type.endswith("Start"):
                yield node.op_type.removesuffix("Start")


def _plan(case: Case, micro_batches: int, overlap: str) -> Path:
    """Write the plan of ZeRO's third stage: the batch and all state are split."""
    spec = training_spec(case.recipe.optimizer, micro_batches=micro_batches)

    def step() -> driver.ir.Module:
        module = driver.load(case.path, {})
        driver.run_phase(module, "prepare")
        driver.train(module, BuildTrainingStepPass.from_spec(spec, "none"))
        return module

    request = replace(extremes(RANKS), device=EAGER, overlap=overlap)
    point = zero_point(step(), RANKS, 3, request.description)
    module, directory = step(), case.folder / overlap
    driver.settle(module, point, request, FrontierResult([point], None))
    driver.compile_plan(module, case.path, directory)
    return directory


def _losses(case: Case, plan: Path) -> list[float]:
    rate = case.recipe.learning_rate
    return run_plan(plan, case.data, STEPS, rate, threads=1, provider="cuda").losses


def _windows(plan: Path) -> Iterator[Window]:
    """Yield the collectives that the first graph of a step starts, in the order of its nodes."""
    nodes = onnx.load(plan / "rank0.onnx", load_external_data=False).graph.node
    waits = {node.input[0]: at for at, node in enumerate(nodes) if node.op_type.endswith("Wait")}
    for at, node in enumerate(nodes):
        if node.op_type.endswith("Start"):
            kind = node.op_type.removesuffix("Start").removeprefix("Combined")
            between = nodes[at + 1 : waits[node.output[1]]]
            products = tuple(own.name for own in between if own.op_type in PRODUCTS)
            yield Window(kind, tuple(node.input[1:]), products)


def _part(product: str) -> str:
    """Return the layer of a product, and whether it is in the forward or the backward pass."""
    return f"{product.split('/')[0]} {'backward' if '.grad.' in product else 'forward'}"
