"""Cost of a model's node on one rank, including every operation that it expands into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

from tensoropt.compiler.cost.bodies import bodies_time_s
from tensoropt.compiler.cost.communication import collective_time_s, copy_line
from tensoropt.compiler.cost.compute import moved_bytes, op_time_s
from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.cost.overlap import shown_share
from tensoropt.compiler.layout.rule import InnerKind, Rule, Strategy
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["apart_s", "inner_steps", "node_time_s"]

_MESSAGE = "collective_permute"


def node_time_s(info: OpInfo, rule: Rule, strategy: Strategy, mesh: Mesh, device: Device) -> float:
    """Return the seconds that one rank computes, including bodies and waits for other ranks."""
    own = op_time_s(info, rule, strategy, mesh, device) + bodies_time_s(info, device)
    return (1.0 + device.waits(mesh.size).operators) * own


def apart_s(
    info: OpInfo, rule: Rule, strategy: Strategy, mesh: Mesh, device: Device
) -> list[tuple[int, float]]:
    """Return the operands overwritten by results, and the extra time of the op if they are not.

    If such an operand cannot be overwritten, the result is written whole to its own memory.
    """
    found, in_place_s = [], node_time_s(info, rule, strategy, mesh, device)
    for pair in info.in_place:
        rest = tuple(other for other in info.in_place if other != pair)
        alone = replace(info, in_place=rest)
        found.append((pair[1], node_time_s(alone, rule, strategy, mesh, device) - in_place_s))
    return found


def inner_steps(
    info: OpInfo,
    rule: Rule,
    strategy: Strategy,
    mesh: Mesh,
    device: Device,
    folded: Callable[[int], bool],
) -> list[tuple[InnerKind, tuple[int, ...], int, float]]:
    """Return (kind, mesh axes, input bytes per rank, time in seconds) of each inner step.

    Inner steps are collectives, copies for them, and copies of operands to fill their padding.
    Equal copies in sequence are one entry. Messages of a ring take the time that its turns do not
    hide, if collectives can overlap operators. ``folded`` returns whether an operand is filled at
    load, which takes no time.
    """
    steps = list(rule.inner_steps(strategy, mesh))
    for operand, _, factor in rule.filled(strategy, mesh):
        tensor = info.operand(operand)
        if tensor is not None and not folded(operand):
            size = moved_bytes(tensor, strategy.operands[operand], mesh)
            steps.append(("copy", strategy.axes_of(factor), size))
    travelling = Counter(rule.ring_messages(strategy, mesh))
    shown = _ring_share(info, rule, strategy, mesh, device) if travelling else 1.0
    timed = []
    for (kind, axes, size), equal in groupby(steps):
        times = len(list(equal))
        if kind == "copy":
            time_s = copy_line(2.0, device).time_s(size)
            timed.append((kind, axes, times * size, times * time_s))
        else:
            time_s = collective_time_s(kind, size, axes, mesh, device)
            passed = travelling[axes, size] if kind == _MESSAGE else 0
            timed += [(kind, axes, size, shown * time_s)] * min(passed, times)
            timed += [(kind, axes, size, time_s)] * max(times - passed, 0)
            travelling[axes, size] -= min(passed, times)
    return timed


def _ring_share(info: OpInfo, rule: Rule, strategy: Strategy, mesh: Mesh, device: Device) -> float:
    """Return the share of the time of a ring's messages that its turns do not hide."""
    if device.overlap is None:
        return 1.0
    messages = rule.ring_messages(strategy, mesh)
    times = [collective_time_s(_MESSAGE, size, axes, mesh, device) for axes, size in messages]
    compute_s = node_time_s(info, rule, strategy, mesh, device)
    ranks = mesh.extent(strategy.joint_axes)
    return shown_share(sum(times), len(times), compute_s, ranks, device.overlap)
