"""`add-rules`: put the sharding rule on every operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tensoropt.compiler.layout.rule import Rule
from tensoropt.compiler.layout.rule_text import name_factors
from tensoropt.compiler.sharding.rule.blockings import find_blocks, groups_of, products_of
from tensoropt.compiler.sharding.rule.blocks import rule_in_blocks, without_group_blocks
from tensoropt.compiler.sharding.rule.describe import Descriptions
from tensoropt.compiler.sharding.rule.files import user_rule
from tensoropt.compiler.sharding.rule.groups import Use
from tensoropt.compiler.sharding.rule.merges import find_merges, rule_in_merges
from tensoropt.compiler.sharding.rule.op_info import MisfitError, OpInfo
from tensoropt.compiler.sharding.rule.operand_checks import check_operands
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.unit_counts import find_units
from tensoropt.compiler.sharding.rule.units import rule_in_units
from tensoropt.compiler.training.alternatives import steps
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import RuleAttr, keys, rule_attr
from tensoropt.passes.base import Pass

__all__ = ["AddRulesPass"]

_MATRIX = 2
"""The dimensions of a matrix."""


@dataclass(frozen=True)
class AddRulesPass(Pass):
    """Adds a sharding rule (`topt.rule`) to every `onnx` operation of a program.

    Rules of packed projections, as `[q | k | v]`, of joined channels and of groups have their
    blocks, and rules along heads that a Reshape merges have their number. Existing rules are kept,
    so a user can write them by hand. Rules of `--rules` take precedence over built-in rules.
    Operations inside regions get no rule, as they run unsplit. Refuses operands that the
    operator's definition or ONNX Runtime does not accept. Linear in the
    operations.
    """

    name: ClassVar[str] = "add-rules"
    summary: ClassVar[str] = "Put the sharding rule on every operation."
    reaches: ClassVar[str | None] = "rules"

    def run(self, module: ir.Module) -> None:
        infos = Descriptions(onnx.opsets(module))
        known: dict[OpInfo, Rule] = {}
        written: dict[Rule, RuleAttr] = {}
        with module.context, ir.Location.unknown():
            for function in steps(module).values():
                ops = list(_without_rule(function))
                rules = [self._rule(op, infos, known) for op in ops]
                for op, rule in zip(ops, _in_pieces(function, ops, rules), strict=True):
                    if rule not in written:
                        written[rule] = rule_attr(name_factors(rule))
                    op.attributes[keys.RULE.name] = written[rule]

    def _rule(
        self, op: ir.Operation, infos: Descriptions, known: dict[OpInfo, Rule]
    ) -> tuple[OpInfo, Rule]:
        try:
            info = infos.describe(op)
            if info not in known:
                check_operands(info)
                known[info] = user_rule(info) or rule_for(info)
        except MisfitError as error:
            raise self.fail(op, str(error)) from None
        return info, known[info]


def _without_rule(function: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the operations that need a rule and have none."""
    for view in function.regions[0].blocks[0]:
        op = view.operation
        if onnx.is_onnx(op) and op.name != onnx.NO_VALUE and not keys.RULE.on(op.attributes):
            yield op


def _in_pieces(
    function: ir.Operation, ops: Sequence[ir.Operation], rules: Sequence[tuple[OpInfo, Rule]]
) -> list[Rule]:
    """Return the rules with the blocks of packed projections and joined rows, and with units.

    A training step has no blocks of groups or of weights that change their form, as its gradients
    and moments would need them too, and no units in blocks: most gradients sum over them.
    """
    numbers: dict[ir.Value, int] = {}
    held = onnx.arguments(function)
    trains = any(keys.STATE.on(own) for _, own in held)
    uses = [
        Use(
            info,
            without_group_blocks(rule) if trains else rule,
            tuple(_number(v, numbers) for v in (*op.operands, *op.results)),
        )
        for op, (info, rule) in zip(ops, rules, strict=True)
    ]
    parameters = {
        numbers[argument]
        for argument, own in held
        if argument in numbers and (keys.PARAM.on(own) or keys.STATE.get(own) == "parameter")
    }
    makers = (use for use in uses if not (use.operands or trains))
    literals = {value for use in makers for value in use.results}
    for use in uses:  # made of parameters and literals, or matrices that a router picks from them
        own = parameters.intersection(use.operands)
        is_stored = own and (own | literals).issuperset(use.operands)
        if is_stored or (_picks_matrices(use.info) and use.operands[0] in own):
            parameters.update(use.results)
    groups = groups_of(uses)
    products = products_of(uses, groups, parameters)
    blocks, merges = find_blocks(uses, groups, products), find_merges(uses, groups, products)
    uses = [
        replace(use, rule=rule_in_merges(use.info, rule_in_blocks(use.info, use.rule, own), merged))
        if own or merged
        else use
        for use, own, merged in zip(uses, blocks, merges, strict=True)
    ]
    return [
        rule_in_units(use.info, use.rule, units) if units else use.rule
        for use, units in zip(uses, find_units(uses, in_blocks=not trains), strict=True)
    ]


def _picks_matrices(info: OpInfo) -> bool:
    """Return whether an op picks matrices from a stack: the weights of experts."""
    return info.name in ("Gather", "GatherND") and info.rank(0) > _MATRIX


def _number(value: ir.Value, numbers: dict[ir.Value, int]) -> int | None:
    """Return the number of a value, ``None`` for an omitted one."""
    if isinstance(value.type, ir.NoneType):
        return None
    return numbers.setdefault(value, len(numbers))
