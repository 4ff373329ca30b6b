"""`add-rules`: put the sharding rule on every operation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.layout.rule_text import name_factors
from tensoropt.compiler.sharding.rule.describe import Descriptions
from tensoropt.compiler.sharding.rule.files import user_rule
from tensoropt.compiler.sharding.rule.op_info import MisfitError, OpInfo
from tensoropt.compiler.sharding.rule.operand_checks import check_operands
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.training.alternatives import steps
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import RuleAttr, keys, rule_attr
from tensoropt.passes.base import Pass

__all__ = ["AddRulesPass"]


@dataclass(frozen=True)
class AddRulesPass(Pass):
    """Adds a sharding rule (`topt.rule`) to every `onnx` operation of a program.

    Existing rules are kept, so a user can write them by hand. Rules of `--rules` take precedence
    over built-in rules. Operations inside regions get no rule, as they run unsplit. Refuses
    operands that the operator's definition or ONNX Runtime does not accept. Linear in the
    operations.
    """

    name: ClassVar[str] = "add-rules"
    summary: ClassVar[str] = "Put the sharding rule on every operation."
    reaches: ClassVar[str | None] = "rules"

    def run(self, module: ir.Module) -> None:
        infos = Descriptions(onnx.opsets(module))
        known: dict[OpInfo, RuleAttr] = {}
        with module.context, ir.Location.unknown():
            for op in _without_rule(module):
                try:
                    info = infos.describe(op)
                    if info not in known:
                        check_operands(info)
                        known[info] = rule_attr(name_factors(user_rule(info) or rule_for(info)))
                except MisfitError as error:
                    raise self.fail(op, str(error)) from None
                op.attributes[keys.RULE.name] = known[info]


def _without_rule(module: ir.Module) -> Iterator[ir.Operation]:
    """Yield the operations that need a rule and have none."""
    for function in steps(module).values():
        for view in function.regions[0].blocks[0]:
            op = view.operation
            if onnx.is_onnx(op) and op.name != onnx.NO_VALUE and not keys.RULE.on(op.attributes):
                yield op
