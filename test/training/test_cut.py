"""A training step in two parts, between which gradients alone pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensoropt.compiler.training.cut import argument_names, cut_step, result_names
from tensoropt.dialects.context import context
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.onnx import function

HEADER = "module attributes {topt.opset = {ai.onnx = 20 : i64}} { shard.grid @mesh(shape = 2) "
SIGNATURE = """func.func @main(
    %x: tensor<4xf32> {topt.name = "x"},
    %w: tensor<4xf32> {topt.name = "w", topt.state = "parameter"},
    %rate: tensor<f32> {topt.name = "learning_rate", topt.hyper = "learning_rate"},
    %scale: tensor<f32> {topt.name = "loss_scale", topt.hyper = "loss_scale"}
) -> (tensor<4xf32> {topt.name = "LOSS"},
      tensor<4xf32> {topt.name = "w.new", topt.updates = "w"}) {"""
BACKWARD = """
    %two = "onnx.Constant"() {topt.phase = "backward", value = dense<2.0> : tensor<f32>}
        : () -> tensor<f32>
    %s = "onnx.Mul"(%scale, %two) {topt.phase = "backward"}
        : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %loss = "onnx.Mul"(%x, %w) {topt.phase = "forward"}
        : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %d = "onnx.Mul"(%x, %s) {topt.phase = "backward"}
        : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %r = shard.all_reduce %d on @mesh grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    %g = "onnx.Identity"(%r) {topt.phase = "backward", topt.gradient_of = "w"}
        : (tensor<4xf32>) -> tensor<4xf32>"""
UPDATE = """
    %c = "onnx.Div"(%g, {scale}) {{topt.phase = "update"}}
        : (tensor<4xf32>, {type}) -> tensor<4xf32>
    %m = "onnx.Mul"(%c, %rate) {{topt.phase = "update"}}
        : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %new = "onnx.Sub"(%w, %m) {{topt.phase = "update"}}
        : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %loss, %new : tensor<4xf32>, tensor<4xf32> }} }}"""


@pytest.fixture(autouse=True)
def mlir_context() -> Iterator[None]:
    with context():
        yield


def step(scale: str = "%s", kind: str = "tensor<f32>", loss: str = "loss") -> ir.Module:
    update = UPDATE.format(scale=scale, type=kind)
    return ir.Module.parse(HEADER + SIGNATURE.replace("LOSS", loss) + BACKWARD + update)


def gradients_and_update(module: ir.Module) -> tuple[ir.Module, ir.Module]:
    modules = cut_step(module).modules
    return modules["gradients"], modules["update"]


def ops(module: ir.Module) -> list[str]:
    return [op.operation.name for op in function(module).regions[0].blocks[0]]


def test_each_part_has_what_it_uses() -> None:
    module = step()
    before = str(module)
    parts = cut_step(module)
    assert str(module) == before
    assert dict(parts.names) == {"w": "w.grad"}
    assert argument_names(parts.modules["gradients"]) == ["x", "w", "loss_scale"]
    assert result_names(parts.modules["gradients"]) == ["loss", "w.grad"]
    assert argument_names(parts.modules["update"]) == ["w", "learning_rate", "loss_scale", "w.grad"]
    assert result_names(parts.modules["update"]) == ["w.new"]
    for part in parts.modules.values():
        part.operation.verify()


def test_scalars_are_computed_on_both_sides() -> None:
    gradients, update = gradients_and_update(step())
    shared = ["onnx.Constant", "onnx.Mul"]
    assert ops(gradients)[:2] == shared
    assert ops(update) == [*shared, "onnx.Div", "onnx.Mul", "onnx.Sub", "func.return"]


def test_what_is_needed_once_is_there_once() -> None:
    gradients, update = gradients_and_update(step("%rate"))
    assert ops(update) == ["onnx.Div", "onnx.Mul", "onnx.Sub", "func.return"]
    assert "shard.all_reduce" in ops(gradients)


def test_a_gradient_gets_a_name_of_its_own() -> None:
    parts = cut_step(step(loss="w.grad"))
    assert dict(parts.names) == {"w": "w.grad_1"}
    assert result_names(parts.modules["gradients"]) == ["w.grad", "w.grad_1"]


@pytest.mark.parametrize(("value", "name"), [("%loss", "onnx.Mul"), ("%r", "shard.all_reduce")])
def test_nothing_else_may_pass(value: str, name: str) -> None:
    message = f"the update part of a training step needs '{name}' of the other, expected gradients"
    with pytest.raises(RuntimeError, match=message):
        cut_step(step(value, "tensor<4xf32>"))
