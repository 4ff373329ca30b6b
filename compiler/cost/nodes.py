"""What a node of the model takes on one rank, however many operations it is made of there."""

from __future__ import annotations

from tensoropt.compiler.cost.bodies import bodies_time_s
from tensoropt.compiler.cost.communication import collective_time_s, copy_line
from tensoropt.compiler.cost.compute import op_time_s
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.layout.rule import InnerKind, Rule, Strategy
from tensoropt.compiler.sharding.rule.op_info import OpInfo

__all__ = ["inner_steps", "node_time_s"]


def node_time_s(info: OpInfo, rule: Rule, strategy: Strategy, mesh: Mesh, device: Device) -> float:
    """Return the seconds that one rank computes, bodies and waits for other ranks included."""
    own = op_time_s(info, rule, strategy, mesh, device) + bodies_time_s(info, device)
    return (1.0 + device.waits(mesh.size).operators) * own


def inner_steps(
    rule: Rule, strategy: Strategy, mesh: Mesh, device: Device
) -> list[tuple[InnerKind, tuple[int, ...], int, float]]:
    """Return (kind, mesh axes, bytes put in per rank, time in seconds) of each collective inside,
    and of copies for them."""
    return [
        (kind, axes, size, _inner_time_s(kind, axes, size, mesh, device))
        for kind, axes, size in rule.inner_steps(strategy, mesh)
    ]


def _inner_time_s(
    kind: InnerKind, axes: tuple[int, ...], size: int, mesh: Mesh, device: Device
) -> float:
    if kind == "copy":
        return copy_line(2.0, device).at(size)
    return collective_time_s(kind, size, axes, mesh, device)
