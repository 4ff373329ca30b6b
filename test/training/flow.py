"""Which layouts the gradients of a model can have without any communication, on two ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.vjp import Vjp

from tensoropt.compiler.pipeline.driver import new_context, parse_text
from tensoropt.compiler.sharding.rule.describe import describe
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.dialects import onnx
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["flow"]

_MESH = Mesh((2,))


def flow(vjp: Vjp, layouts: Mapping[str, str]) -> dict[str, set[str]]:
    """Return, by the name of a result, its layouts where inputs have ``layouts`` (``R`` if not).

    Only what the rules of the ops offer is used; a literal is cut wherever an op wants it so.
    """
    with new_context():
        module = parse_text(vjp.text)
        main = onnx.function(module)
        block = main.regions[0].blocks[0]
        names = [own["topt.name"].value for own in main.attributes["arg_attrs"]]
        held: dict[Any, set[str]] = {
            value: {layouts.get(name, "R")}
            for value, name in zip(block.arguments, names, strict=True)
        }
        for op in block:
            _visit(op.operation, held, onnx.opsets(module))
        end = block.operations[len(block.operations) - 1].operation
        given = [own["topt.name"].value for own in main.attributes["res_attrs"]]
        return {n: held.get(v, set()) for n, v in zip(given, end.operands, strict=True)}


def _visit(op: Any, held: dict[Any, set[str]], versions: dict[str, int]) -> None:
    if op.name in ("func.return", onnx.NO_VALUE, onnx.CONSTANT):
        return
    # What depends on literals alone is the same on all ranks: any part of it is at hand.
    if not any(operand in held for operand in op.operands):
        return
    for strategy in strategies(rule_for(describe(op, versions)), _MESH):
        wanted = zip(op.operands, strategy.operands, strict=True)
        if all(v not in held or ",".join(own.texts) in held[v] for v, own in wanted):
            for value, own in zip(op.results, strategy.results, strict=True):
                held.setdefault(value, set()).add(",".join(own.texts))
    for value in op.results:
        held.setdefault(value, set())
