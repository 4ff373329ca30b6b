"""What waits: the first operand decides, the second may lie in any layout."""

from __future__ import annotations

import pytest

from tensoropt.compiler.sharding.rule.op_info import OpInfo, TensorInfo
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.strategies import strategies
from tensoropt.runtime.layout.mesh import Mesh


@pytest.mark.parametrize(
    ("x", "after", "offered"),
    [
        ((4, 6), (4, 6), {"R R -> R", "S(0) R -> S(0)", "S(1) R -> S(1)"}),
        (
            (4, 6, 8),
            (4, 10),
            {"R R -> R", "S(0) R -> S(0)", "S(1) R -> S(1)", "S(2) R -> S(2)"},
        ),
    ],
)
def test_a_barrier_splits_every_dimension(
    x: tuple[int, ...], after: tuple[int, ...], offered: set[str]
) -> None:
    held, waited = TensorInfo(x, "float32", 4), TensorInfo(after, "float32", 4)
    rule = rule_for(OpInfo("tensoropt.Barrier", 1, (held, waited), (held,)))
    found = {
        f"{' '.join(layout.texts[0] for layout in one.operands)} -> {one.results[0].texts[0]}"
        for one in strategies(rule, Mesh((2,)))
    }
    assert found == offered | {"P(sum) R -> P(sum)"}
