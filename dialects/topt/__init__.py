"""The `topt` dialect and typed access to it. `dialects/verifier` checks it."""

from tensoropt.dialects.topt.dialect import (
    AXIS_CONSTANT,
    POINT,
    RESHARD,
    WAIT,
    AxisConstantOp,
    LayoutAttr,
    PointOp,
    ReshardOp,
    RuleAttr,
    StrategyAttr,
    Topt,
    WaitOp,
)
from tensoropt.dialects.topt.layouts import (
    MESH,
    layout_attr,
    layout_of,
    layouts_of_strategy,
    mesh_of,
    set_mesh,
    strategy_attr,
)
from tensoropt.dialects.topt.rules import rule_attr, rule_of_attr

__all__ = [
    "AXIS_CONSTANT",
    "MESH",
    "POINT",
    "RESHARD",
    "WAIT",
    "AxisConstantOp",
    "LayoutAttr",
    "PointOp",
    "ReshardOp",
    "RuleAttr",
    "StrategyAttr",
    "Topt",
    "WaitOp",
    "layout_attr",
    "layout_of",
    "layouts_of_strategy",
    "mesh_of",
    "rule_attr",
    "rule_of_attr",
    "set_mesh",
    "strategy_attr",
]
