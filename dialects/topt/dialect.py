"""The `topt` dialect: layouts with partial sums, rules, strategies, reshards, axis constants.

No `from __future__ import annotations` here: the bindings read the field annotations as types.
What the bindings cannot say of an attribute or an operation is checked in `dialects/verifier`.
"""

from collections.abc import Sequence
from typing import Any

from tensoropt.dialects.mlir import ext, ir

__all__ = [
    "AXIS_CONSTANT",
    "COLLECTIVE_PERMUTE",
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
COLLECTIVE_PERMUTE = "topt.collective_permute"
WAIT = "topt.wait"


class Topt(ext.Dialect, name="topt"):
    """Layouts, strategies and reshards on top of upstream's `shard` dialect."""


class LayoutAttr(Topt.Attribute, name="layout"):
    """`#topt.layout<@mesh, ["S(0)", "R"]>`: one placement per axis of the mesh."""

    mesh: ir.FlatSymbolRefAttr
    placements: ir.ArrayAttr


class RuleAttr(Topt.Attribute, name="rule"):
    """`#topt.rule<"(i, k), (k, j) -> (i, j)", ["i=4", "j=8", "k=6 sum"], {flops = 2.0 : f64}>`.

    The factor along each dimension of operands and results, the factors, and what else a rule says:
    `linear`, `additive`, `inner`, `flops`.
    """

    map: ir.StringAttr
    factors: ir.ArrayAttr
    extras: ir.DictAttr


class SizesAttr(Topt.Attribute, name="sizes"):
    """`#topt.sizes<["batch mean=4 end=8 step=2", ""]>`: what a tensor type assumes of its open
    dimensions."""

    sizes: ir.ArrayAttr


class StrategyAttr(Topt.Attribute, name="strategy"):
    """`#topt.strategy<[layouts of operands], [layouts of results]>`."""

    operands: ir.ArrayAttr
    results: ir.ArrayAttr


class ReshardOp(Topt.Operation, name="reshard", traits=[ext.Pure]):
    """Moves a tensor from one layout to another; the shape is the global one on both sides."""

    input: ext.Operand[Any]
    src: LayoutAttr
    dst: LayoutAttr
    output: ext.Result[Any]


class AxisConstantOp(Topt.Operation, name="axis_constant", traits=[ext.Pure]):
    """A constant that differs along mesh axes: position c of the axes gets `values[c]`."""

    values: Any
    axes: Any
    output: ext.Result[Any]


class CollectivePermuteOp(Topt.Operation, name="collective_permute", traits=[ext.Pure]):
    """What upstream's dialect has no collective for: parts change their places among ranks.

    Position c of a group over the mesh axes `grid_axes` gets the part of position `sources[c]`.
    """

    input: ext.Operand[Any]
    grid_axes: Any
    sources: Any
    output: ext.Result[Any]


class WaitOp(Topt.Operation, name="wait", traits=[ext.Pure]):
    """What a collective with `topt.start` makes, once that has ended; it lies where `input` does.

    `held` is what the collective reads until then, where it does not work in its result.
    """

    input: ext.Operand[Any]
    held: Sequence[ext.Operand[Any]]
    output: ext.Result[Any]


class PointOp(Topt.Operation, name="point"):
    """A point of the frontier that the search found; the one that the strategies are is `chosen`.

    Seconds of a step and bytes of a device, predicted. In a training step `recompute` says what
    the backward pass of this point computes anew, and `micro_batches` in how many parts the step
    takes its samples; `process_bytes` is what the process of a device
    takes, where the device description says what that is beside tensors; `hidden_s` what of the
    communication goes on while operators run.
    """

    mesh: Any
    compute_s: ir.FloatAttr
    communication_s: ir.FloatAttr
    static_bytes: ir.IntegerAttr
    transient_bytes: ir.IntegerAttr
