"""`add-rules`: put the sharding rule on every operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.layout.rule_text import named
from tensoropt.compiler.sharding.rule.describe import TypeInfos, describe
from tensoropt.compiler.sharding.rule.op_info import MisfitError
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import RuleAttr, keys, rule_attr
from tensoropt.passes.base import Pass

__all__ = ["AddRulesPass"]


@dataclass(frozen=True)
class AddRulesPass(Pass):
    """Puts `topt.rule` on every `onnx` operation of `@main`: how it may be split.

    A rule that is there stays: a person may write one. Operations in the regions of others have
    none, as they run whole. Refuses operands that are not those of the operator's definition.
    Linear in the operations.
    """

    name: ClassVar[str] = "add-rules"
    summary: ClassVar[str] = "Put the sharding rule on every operation."

    def run(self, module: ir.Module) -> None:
        versions, infos = onnx.opsets(module), TypeInfos()
        known: dict[Rule, RuleAttr] = {}
        with module.context, ir.Location.unknown():
            for view in onnx.function(module).regions[0].blocks[0]:
                op = view.operation
                if not onnx.is_onnx(op) or op.name == onnx.NO_VALUE or keys.RULE.on(op.attributes):
                    continue
                rule = self._rule(op, versions, infos)
                if rule not in known:
                    known[rule] = rule_attr(named(rule))
                op.attributes[keys.RULE.name] = known[rule]

    def _rule(self, op: ir.Operation, versions: dict[str, int], infos: TypeInfos) -> Rule:
        try:
            return rule_for(describe(op, versions, infos))
        except MisfitError as error:
            raise self.fail(op, str(error)) from None
