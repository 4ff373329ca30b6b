"""A training step cut into the graphs of two chunks on two stages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.cut import Parts, argument_names, cut_step, result_names
from tensoropt.dialects.context import context
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import function

T = "tensor<4xf32>"
STEP = """
module attributes {topt.opset = {ai.onnx = 20 : i64}, topt.places = array<i64: 0, 1>,
                   topt.schedule = ["SCHEDULE", "LAST"]} {
  shard.grid @mesh(shape = 2)
  func.func @main(
    %x: T {topt.name = "x"},
    %w: T {topt.name = "w", topt.state = "parameter"},
    %v: T {topt.name = "v", topt.state = "parameter"},
    %mean: T {topt.name = "mean", topt.state = "buffer"}
  ) -> (T {topt.name = "loss"}, T {topt.name = "w.new", topt.updates = "w"},
        T {topt.name = "v.new", topt.updates = "v"},
        T {topt.name = "mean.new", topt.updates = "mean"}) {
    %0 = "onnx.Neg"(%w) {topt.phase = "forward"} : (T) -> T
    %a = "onnx.Mul"(%x, %0) {topt.phase = "forward", topt.chunk = 0 : i64} : (T, T) -> T
    %b = "onnx.Relu"(%a) {topt.phase = "forward", topt.chunk = 0 : i64} : (T) -> T
    %m = "onnx.Add"(%mean, MEAN) {topt.phase = "forward", topt.chunk = 0 : i64} : (T, T) -> T
    %loss = "onnx.Mul"(%b, %v) {topt.phase = "forward", topt.chunk = 1 : i64} : (T, T) -> T
    %r = shard.all_reduce %loss on @mesh grid_axes = [0] : T -> T
    %db = "onnx.Mul"(%r, %v) {topt.phase = "backward", topt.chunk = 1 : i64} : (T, T) -> T
    %dv = "onnx.Mul"(%r, %b) {topt.phase = "backward", topt.chunk = 1 : i64} : (T, T) -> T
    %gv = "onnx.Identity"(%dv) {topt.phase = "backward", topt.gradient_of = "v"} : (T) -> T
    %da = "onnx.Mul"(%db, %a) {topt.phase = "backward", topt.chunk = 0 : i64} : (T, T) -> T
    %gw = "onnx.Mul"(%da, %x) {topt.phase = "backward", topt.chunk = 0 : i64,
                               topt.gradient_of = "w"} : (T, T) -> T
    %qw = "onnx.Mul"(%gw, %gw) {topt.phase = "update"} : (T, T) -> T
    %qv = "onnx.Mul"(%gv, %gv) {topt.phase = "update"} : (T, T) -> T
    %n = "onnx.Sum"(%qw, %qv) {topt.phase = "update", topt.norm} : (T, T) -> T
    %nw = "onnx.Sub"(%w, %n) {topt.phase = "update"} : (T, T) -> T
    %nv = "onnx.Sub"(%v, %n) {topt.phase = "update"} : (T, T) -> T
    return %r, %nw, %nv, %m : T, T, T, T
  }
}
"""
SPLIT, WHOLE = "F0 B0 W0", "F0 B0"


@pytest.fixture(autouse=True)
def mlir_context() -> Iterator[None]:
    with context():
        yield


def last(schedule: str) -> str:
    """Return the tasks of chunk 1 instead of chunk 0."""
    return " ".join(f"{task}.1" for task in schedule.split())


def cut(schedule: str = WHOLE, mean: str = "%a") -> Parts:
    text = (
        STEP.replace("SCHEDULE", schedule)
        .replace("LAST", last(schedule))
        .replace("MEAN", mean)
        .replace("T ", f"{T} ")
    )
    for end in ",)\n":
        text = text.replace(f"T{end}", f"{T}{end}")
    parts = cut_step(ir.Module.parse(text))
    for part in parts.modules.values():
        part.operation.verify()
    return parts


def ops(part: ir.Module) -> list[str]:
    return [op.operation.name for op in function(part).regions[0].blocks[0]]


def test_each_graph_has_its_operations() -> None:
    parts = cut()
    names = ["forward0", "forward1", "backward1", "backward0", "update0", "update1"]
    assert list(parts.modules) == names
    assert ops(parts.modules["forward0"])[:-1] == ["onnx.Neg", "onnx.Mul", "onnx.Relu", "onnx.Add"]
    assert ops(parts.modules["forward1"])[:-1] == ["onnx.Mul", "shard.all_reduce"]
    assert parts.stages == dict(zip(names, (0, 1, 1, 0, 0, 1), strict=True))
    assert result_names(parts.modules["forward0"])[0] == "mean.new"
    assert argument_names(parts.modules["update1"]) == ["v", "v.grad"]


def test_values_that_pass() -> None:
    passed = [(own.graph, own.read_by) for own in cut().passed]
    assert passed == [
        ("forward0", ("forward1", "backward1")),  # %b
        ("forward1", ("backward1",)),  # %r
        ("backward1", ("backward0",)),  # %db
        ("forward0", ("backward0",)),  # %a
    ]


def test_gradients_of_weights_are_graphs_of_their_own() -> None:
    parts = cut(SPLIT)
    assert ops(parts.modules["backward1"]) == ["onnx.Mul", "func.return"]
    assert ops(parts.modules["weights1"]) == ["onnx.Mul", "onnx.Identity", "func.return"]
    assert "backward0" not in parts.modules  # no chunk is before it
    assert ops(parts.modules["weights0"]) == ["onnx.Mul", "onnx.Mul", "func.return"]


def test_the_norm_is_summed_over_stages() -> None:
    update = cut().modules["update0"]
    assert ops(update)[:-1] == ["onnx.Mul", "onnx.Sum", "shard.all_reduce", "onnx.Sub"]
    assert "topt.stages" in str(update)
    assert argument_names(update) == ["w", "w.grad"]


@pytest.mark.parametrize("schedule", ["B0 F0", "F0", "F0 F0 B0", "F0 B1"])
def test_an_edited_schedule(schedule: str) -> None:
    with pytest.raises(UserError, match="schedule: stage 0"):
        cut(schedule)


def test_a_statistic_of_two_chunks() -> None:
    message = "the running statistic 'mean' is read in another chunk than the one that changes it"
    with pytest.raises(UserError, match=message):
        text = (
            STEP.replace("SCHEDULE", WHOLE)
            .replace("LAST", last(WHOLE))
            .replace("MEAN", "%a")
            .replace("%b, %v) {", "%b, %mean) {")
        )
        for end in " ,)\n":
            text = text.replace(f"T{end}", f"{T}{end}")
        cut_step(ir.Module.parse(text))
