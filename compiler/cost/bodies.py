"""Run time of the bodies of If, Loop, and Scan on one rank, which runs them whole."""

from __future__ import annotations

from tensoropt.compiler.cost.compute import op_time_s
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.sizes import mean_of
from tensoropt.compiler.sharding.rule.describe import describe
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.compiler.sharding.rule.registry import rule_for
from tensoropt.compiler.sharding.rule.strategies import strategy_of_roles
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["bodies_time_s", "open_turns", "turns", "whole_time_s"]

_ONE = Mesh((1,))
_SCAN_SINCE = 9  # before opset 9, the operands of Scan have a leading batch
_MOST_TURNS = 2**31  # a larger trip count means a Loop that its condition ends


def bodies_time_s(info: OpInfo, device: Device) -> float:
    """Return the time of the bodies of an op, including nested bodies; 0 without bodies.

    An If takes its slower branch. A loop takes its body times the number of iterations, or once if
    that is unknown. Linear in the ops of the bodies.
    """
    if not info.bodies:
        return 0.0
    known = turns(info)
    times = 1 if known is None else known
    return times * max(sum(whole_time_s(op, device) for op in body.ops) for body in info.bodies)


def whole_time_s(info: OpInfo, device: Device) -> float:
    """Return the time of an op that one rank runs whole, including its bodies."""
    rule = rule_for(info)
    whole = strategy_of_roles(rule, _ONE, (None,))
    assert whole is not None  # every rule offers this strategy
    return op_time_s(info, rule, whole, _ONE, device) + bodies_time_s(info, device)


def turns(info: OpInfo) -> int | None:
    """Return the number of times an op runs its body, ``None`` if the model does not determine it.

    A Loop determines it by a constant trip count, unless its body can end it earlier; a Scan by the
    length of the scanned operand. An If runs one of its branches once.
    """
    if info.name == "If":
        return 1
    if info.name == "Loop":
        return _loop_turns(info)
    return _scan_turns(info) if info.name == "Scan" else None


def open_turns(module: ir.Module) -> list[str]:
    """Return the nodes of ``@main``, nested nodes included, with unknown :func:`turns`.

    Linear in the operations.
    """
    versions = onnx.opsets(module)
    with_bodies = (op for op in onnx.walk(onnx.function(module)) if len(op.regions))
    return [
        onnx.node_name(op) or op.name.removeprefix("onnx.")
        for op in with_bodies
        if turns(describe(op, versions)) is None
    ]


def _loop_turns(info: OpInfo) -> int | None:
    count = info.literal_ints(0)
    first = info.literal(1) if len(info.literals) > 1 else None
    if first is not None and not first.all():
        return 0
    if not count or count[0] > _MOST_TURNS or not info.bodies[0].goes_on:
        return None
    return max(count[0], 0)


def _scan_turns(info: OpInfo) -> int | None:
    scanned = int(info.attribute("num_scan_inputs", 1))
    place = len(info.operands) - scanned
    tensor = info.operand(place)
    if tensor is None or info.version < _SCAN_SINCE:
        return None
    axis = (info.attribute("scan_input_axes") or (0,))[0]
    size = tensor.sizes[axis]
    return None if size is None else mean_of([size])
