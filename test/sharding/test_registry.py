"""The table of rules: families that exist, operators that exist, and what happens without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tensoropt.compiler.sharding.rule import registry
from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import registered, rule_for, sharding_rule
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.dialects.elements import ELEMENTS
from tensoropt.dialects.onnx import known_ops, split_name
from tensoropt.runtime.layout.mesh import Mesh

MATRIX = TensorInfo((4, 8), "float32", 4)


def test_families_are_sorted_and_each_registers_operators() -> None:
    assert list(registry._FAMILIES) == sorted(set(registry._FAMILIES))
    registered()
    homes = {maker.__module__.rpartition(".")[2] for maker in registry._MAKERS.values()}
    assert homes == set(registry._FAMILIES)


def test_every_module_with_rules_is_listed() -> None:
    folder = Path(registry.__file__).parents[1] / "ops"
    decorated = {p.stem for p in folder.glob("*.py") if "\n@sharding_rule(" in p.read_text()}
    assert decorated == set(registry._FAMILIES)


@pytest.mark.parametrize("name", registered())
def test_every_rule_is_for_an_operator_that_exists(name: str) -> None:
    domain, op_type = split_name(name)
    assert op_type in known_ops(domain)


def test_an_operator_has_one_rule() -> None:
    with pytest.raises(AssertionError, match="MatMul has a rule already"):
        sharding_rule("MatMul")(lambda info: None)


def test_an_operator_without_a_rule_runs_replicated() -> None:
    rule = rule_for(OpInfo("NoSuchOp", 20, (MATRIX, None), (MATRIX, None)))
    (only,) = strategies(rule, Mesh((2, 2)))
    assert [layout.texts for layout in (*only.operands, *only.results)] == [["R", "R"]] * 4
    assert rule.operands == ((None, None), ())
    assert rule.factors[0].size == 32


def test_an_operator_of_unknown_rank_runs_replicated() -> None:
    info = OpInfo("Relu", 20, (None,), (None,), unranked=True)
    assert len(strategies(rule_for(info), Mesh((2,)))) == 1


def test_equal_operations_share_their_rule() -> None:
    first, second = (OpInfo("MatMul", 20, (MATRIX, TensorInfo((8, 4), "float32", 4)),
                            (TensorInfo((4, 4), "float32", 4),)) for _ in range(2))  # fmt: skip
    assert rule_for(first) is rule_for(second)


def test_a_mesh_of_one_rank_offers_one_strategy() -> None:
    info = OpInfo("Softmax", 20, (MATRIX,), (MATRIX,))
    assert len(strategies(rule_for(info), Mesh((1,)))) == 1
    assert len(strategies(rule_for(info), Mesh((1, 2)))) == 3


def test_what_can_move_is_what_the_collectives_take() -> None:
    header = Path(__file__).parents[2] / "runtime" / "ops" / "element.hpp"
    taken = set(re.findall(r'\{Element::\w+,\s+"(\w+)"', header.read_text(encoding="utf-8")))
    names = {element.numpy for element in ELEMENTS}
    movable = {name for name in names if TensorInfo((2,), name, 1).is_movable}
    assert movable == taken
