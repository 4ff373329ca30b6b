"""The `topt` dialect: layouts with partial sums, rules, strategies, reshards, axis constants.

No `from __future__ import annotations` here: the bindings read the field annotations as types.
`dialects/verifier` checks the constraints that the bindings cannot express.
"""

from collections.abc import Sequence
from typing import Any

from tensoropt.dialects.mlir import ext, ir

__all__ = [
    "AXIS_CONSTANT",
    "POINT",
    "RESHARD",
    "WAIT",
    "AxisConstantOp",
    "CollectivePermuteOp",
    "LayoutAttr",
    "PointOp",
    "ReshardOp",
    "RuleAttr",
    "SizesAttr",
    "StrategyAttr",
    "Topt",
    "WaitOp",
]

RESHARD, AXIS_CONSTANT, POINT = "topt.reshard", "topt.axis_constant", "topt.point"
WAIT = "topt.wait"


class Topt(ext.Dialect, name="topt"):
    """Layouts, strategies and reshards on top of upstream's `shard` dialect."""


class LayoutAttr(Topt.Attribute, name="layout"):
    """`#topt.layout<@mesh, ["S(0)", "R"]>`: one placement per axis of the mesh."""

    mesh: ir.FlatSymbolRefAttr
    placements: ir.ArrayAttr


class RuleAttr(Topt.Attribute, name="rule"):
    """`#topt.rule<"(i, k), (k, j) -> (i, j)", ["i=4", "j=8", "k=6 sum"], {flops = 2.0 : f64}>`.

    The factor of each dimension of operands and results, the factors, and the other fields of a
    rule: `linear`, `joint`, `reduced`, `growing`, `additive`, `inner`, `flops`.
    """

    map: ir.StringAttr
    factors: ir.ArrayAttr
    extras: ir.DictAttr


class SizesAttr(Topt.Attribute, name="sizes"):
    """`#topt.sizes<["batch mean=4 end=8 step=2", ""]>`: the ranges of a type's open dimensions."""

    sizes: ir.ArrayAttr


class StrategyAttr(Topt.Attribute, name="strategy"):
    """`#topt.strategy<[layouts of operands], [layouts of results]>`."""

    operands: ir.ArrayAttr
    results: ir.ArrayAttr


class ReshardOp(Topt.Operation, name="reshard", traits=[ext.Pure]):
    """Changes the layout of a tensor; operand and result have the global shape."""

    input: ext.Operand[Any]
    src: LayoutAttr
    dst: LayoutAttr
    output: ext.Result[Any]


class AxisConstantOp(Topt.Operation, name="axis_constant", traits=[ext.Pure]):
    """A constant that differs along mesh axes: its value at position c is `values[c]`."""

    values: Any
    axes: Any
    output: ext.Result[Any]


class CollectivePermuteOp(Topt.Operation, name="collective_permute", traits=[ext.Pure]):
    """A permutation of parts among ranks, for which upstream's dialect has no collective.

    Position c of a group over the mesh axes `grid_axes` receives the part of position `sources[c]`.
    """

    input: ext.Operand[Any]
    grid_axes: Any
    sources: Any
    output: ext.Result[Any]


class AllToAllRowsOp(Topt.Operation, name="all_to_all_rows", traits=[ext.Pure]):
    """An all-to-all of unequal parts, for which upstream's dialect has no collective.

    `rows`, of n x 2 for a group of n positions over the mesh axes `grid_axes`, has the number of
    consecutive rows of the part for each position, and of the rows that come from that position.
    They are known at run time, and the first size of `output` is symbolic.
    """

    input: ext.Operand[Any]
    rows: ext.Operand[Any]
    grid_axes: Any
    output: ext.Result[Any]


class WaitOp(Topt.Operation, name="wait", traits=[ext.Pure]):
    """The result of a collective with `topt.start`, once the collective has ended.

    It shares the buffer of `input`. `held` is the operand of the collective, which must live until
    then, unless the collective works in its result.
    """

    input: ext.Operand[Any]
    held: Sequence[ext.Operand[Any]]
    output: ext.Result[Any]


class PointOp(Topt.Operation, name="point"):
    """A point of the frontier; the point that the strategies implement is `chosen`.

    Predicted seconds per step and bytes per device. For a training step, `recompute` is its choice
    of recomputation and `micro_batches` the number of micro-batches. `process_bytes` is the process
    memory, if the device description has the memory besides tensors. `hidden_s` is the
    communication that overlaps operators. A point with `above_capacity` takes more memory than the
    device has, and the search had no other limit.
    """

    mesh: Any
    compute_s: ir.FloatAttr
    communication_s: ir.FloatAttr
    static_bytes: ir.IntegerAttr
    transient_bytes: ir.IntegerAttr
