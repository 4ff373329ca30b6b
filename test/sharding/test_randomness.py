"""Random numbers: replicated, and every rank draws the same."""

from __future__ import annotations

import pytest

from tensoropt.compiler.sharding.rule.describe import describe
from tensoropt.compiler.sharding.rule.local_op import LocalOp
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.dialects.context import context
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh

RESULT = "-> tensor<4x6xf32>"
TYPES = "(tensor<4x6xf32>, tensor<f32>, tensor<i1>)"
NORMAL = f'"onnx.RandomNormal"() {{shape = array<i64: 4, 6>}} : () {RESULT}'
SEEDED = f'"onnx.RandomNormal"() {{seed = 7.0 : f32}} : () {RESULT}'
TRAINING = f'"onnx.Dropout"(%x, %ratio, %mode) : {TYPES} {RESULT}'


def seed_of(op: str, name: str = "node") -> str:
    """Return the seed that the op of one rank has by the only strategy there is."""
    text = (
        "func.func @main(%x: tensor<4x6xf32>, %ratio: tensor<f32>, %mode: tensor<i1>) {"
        f'  %0 = {op} loc("{name}") \n return }}'
    )
    with context() as ctx, ir.Location.unknown():
        module = ir.Module.parse(text, ctx)
        block = module.body.operations[0].regions[0].blocks[0]
        held = block.operations[0].operation
        info = describe(held, {"": 20})
        rule, mesh = rule_for(info), Mesh((2,))
        (only,) = strategies(rule, mesh)
        types = [value.type for value in held.results]
        with ir.InsertionPoint(block.operations[1]):
            local = LocalOp(held, info, rule, only, mesh, list(held.operands), types)
            [value] = local.build()
        return str(value.owner.attributes["seed"])


@pytest.mark.parametrize(("op", "kind"), [(NORMAL, "f32"), (TRAINING, "i64")])
def test_a_missing_seed_is_given(op: str, kind: str) -> None:
    assert seed_of(op) == seed_of(op)
    assert seed_of(op).endswith(f" : {kind}")


def test_nodes_draw_different_numbers() -> None:
    assert seed_of(NORMAL, "a") != seed_of(NORMAL, "b")


def test_the_models_seed_is_kept() -> None:
    assert seed_of(SEEDED) == "7.000000e+00 : f32"
