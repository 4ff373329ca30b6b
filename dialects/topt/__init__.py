"""The `topt` dialect: what it declares, typed access to it, and what is checked of it."""

from tensoropt.dialects.topt.carrier import InvalidError
from tensoropt.dialects.topt.dialect import (
    AxisConstantOp,
    LayoutAttr,
    ReshardOp,
    StrategyAttr,
    Topt,
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
from tensoropt.dialects.topt.references import SEARCHED, forget_removed
from tensoropt.dialects.topt.verifier import verify

__all__ = [
    "MESH",
    "SEARCHED",
    "AxisConstantOp",
    "InvalidError",
    "LayoutAttr",
    "ReshardOp",
    "StrategyAttr",
    "Topt",
    "forget_removed",
    "layout_attr",
    "layout_of",
    "layouts_of_strategy",
    "mesh_of",
    "set_mesh",
    "strategy_attr",
    "verify",
]
