"""Attribution of the times of nodes that ONNX Runtime ran to the nodes of the original graph.

ONNX Runtime fuses several nodes (a convolution, its normalisation, a sum and an activation) into
one, renames values that it stores in another layout, and adds copies between layouts. The time of a
node that ran belongs to the original nodes with the same results, and to the nodes before them
with results that no longer exist.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from tensoropt.compiler.calibrate.features import NodeFacts

__all__ = ["TracedNode", "attribute"]

_BLOCKED = re.compile(r"((.*?)(_bn|_mul)?)_nchwc(_token_\d+)?")  # a node for blocked images

_INTENSE = 4.0  # least FLOPs per element of the result for an op that gets the time of a group


@dataclass(frozen=True)
class TracedNode:
    """A node of a rank's graph and its time, 0 if it is fused into another node."""

    facts: NodeFacts
    time_s: float


def attribute(
    facts: Sequence[NodeFacts], ran: Path, nodes: Mapping[str, float]
) -> list[TracedNode]:
    """Return the traced time of each node of ``facts``.

    ``nodes`` has the times of the nodes that ran, by name in the optimised graph ``ran``.
    """
    proto = onnx.load(ran, load_external_data=False).graph
    times = _by_position(proto, nodes)
    claimed, rest = _claims(facts, proto, times)
    _hand_on(proto, rest, claimed)
    shares = _shares(facts, claimed)
    return [TracedNode(node, shares.get(node.name, 0.0)) for node in facts]


def _by_position(proto: onnx.GraphProto, nodes: Mapping[str, float]) -> list[float]:
    """Return the time of each node; traces call a node without a name by its kind and a number."""
    unnamed: dict[str, list[str]] = defaultdict(list)
    named = {node.name for node in proto.node}
    for name in sorted(nodes, key=_number):
        if name not in named:
            unnamed[name.rpartition("_")[0]].append(name)
    for names in unnamed.values():
        names.reverse()
    return [
        nodes.get(node.name, 0.0)
        if node.name
        else (nodes[unnamed[node.op_type].pop()] if unnamed[node.op_type] else 0.0)
        for node in proto.node
    ]


def _number(name: str) -> int:
    number = name.rpartition("_")[2]
    return int(number) if number.isdecimal() else -1


@dataclass
class _Ran:
    """A node that ran: its time, and the values of the original graph that it computes."""

    position: int
    time_s: float
    makes: list[str]


def _claims(
    facts: Sequence[NodeFacts], proto: onnx.GraphProto, times: Sequence[float]
) -> tuple[list[_Ran], list[_Ran]]:
    """Return the nodes that compute values of the original graph, and the other nodes."""
    known = {value for node in facts for value in node.results}
    by_name = {node.name: node.results for node in facts if node.name}
    claimed, rest, taken = list[_Ran](), list[_Ran](), set[str]()
    for position, (node, time_s) in enumerate(zip(proto.node, times, strict=True)):
        blocked = _BLOCKED.fullmatch(node.name)
        values = list(node.output)
        if blocked:
            values = [blocked[1] if blocked[1] in known else blocked[2]]
        makes = [value for value in values if value in known and value not in taken]
        if not makes:  # a Concat in another layout has a result of another name
            makes = [value for value in by_name.get(node.name, ()) if value not in taken]
        taken.update(makes)
        (claimed if makes else rest).append(_Ran(position, time_s, makes))
    return claimed, rest


def _hand_on(proto: onnx.GraphProto, rest: Iterable[_Ran], claimed: Iterable[_Ran]) -> None:
    """Add the time of extra nodes (copies between layouts) to the first reader of the result, or
    else to the producer of the operand."""
    places = {item.position: item for item in claimed}
    readers: dict[str, int] = {}
    makers: dict[str, int] = {}
    for position in sorted(places, reverse=True):
        readers.update((value, position) for value in proto.node[position].input)
        makers.update((value, position) for value in proto.node[position].output)
    for item in rest:
        node = proto.node[item.position]
        near = [readers[v] for v in node.output if v in readers]
        near += [makers[v] for v in node.input if v in makers]
        if near:
            places[near[0]].time_s += item.time_s


def _shares(facts: Sequence[NodeFacts], claimed: Sequence[_Ran]) -> dict[str, float]:
    """Return the time of each node that is not fused into another.

    Nodes with many FLOPs share the time of a group in proportion; without such nodes, the last node
    gets it all.
    """
    made_by = {value: node for node in facts for value in node.results}
    ends = {value for claim in claimed for value in claim.makes}
    seen: set[str] = set()
    shares: dict[str, float] = defaultdict(float)
    for claim in claimed:
        group = list(_group([made_by[v] for v in claim.makes], made_by, ends, seen))
        intense = [node for node in group if node.intensity > _INTENSE]
        total = sum(node.work.flops for node in intense)
        for node in intense:
            shares[node.name] += node.work.flops / total * claim.time_s
        if group and not intense:
            shares[group[0].name] += claim.time_s  # the node at the end of the group
    return shares


def _group(
    last: list[NodeFacts], made_by: Mapping[str, NodeFacts], ends: set[str], seen: set[str]
) -> Iterator[NodeFacts]:
    """Yield ``last`` and the nodes before them, up to the results of other nodes that ran."""
    pending = last
    while pending:
        node = pending.pop()
        if node.name in seen:
            continue
        seen.add(node.name)
        yield node
        pending += [made_by[v] for v in node.operands if v in made_by and v not in ends]
