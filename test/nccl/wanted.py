"""What the graphs of a plan ask of NCCL, read with nothing but the onnx package.

The oracle for recorded calls. `steps` gives the collectives of a rank's graph in the order of its
chain of tokens, and `disagreement` says where what a rank called parts from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

__all__ = ["Step", "communicators", "disagreement", "steps"]

# NCCL's name and the bytes of an element.
_TYPES = {
    TensorProto.FLOAT: ("float32", 4),
    TensorProto.UINT8: ("uint8", 1),
    TensorProto.INT8: ("int8", 1),
    TensorProto.INT32: ("int32", 4),
    TensorProto.INT64: ("int64", 8),
    TensorProto.BOOL: ("uint8", 1),  # NCCL has no bool
    TensorProto.FLOAT16: ("float16", 2),
    TensorProto.DOUBLE: ("float64", 8),
    TensorProto.BFLOAT16: ("bfloat16", 2),
}
_NAMES = {f"nccl{kind}" for kind in ("AllReduce", "AllGather", "ReduceScatter", "Send", "Recv")}
_COPIES = {"cudaMemcpyAsync", "cudaMemcpy2DAsync"}
_ON_DEVICE = 3  # cudaMemcpyDeviceToDevice
_TOKEN_BYTES = 8
_COLLECTIVES = {"AllReduce", "AllGather", "ReduceScatter", "AllToAll", "CollectivePermute"}
_COMBINED = {f"Combined{kind}" for kind in ("AllReduce", "AllGather", "ReduceScatter")}

Call = dict[str, Any]
Unit = list[Call]  # calls that NCCL takes as one: a group's, in no order, or one by itself


@dataclass(frozen=True)
class Step:
    """One collective of a graph; ``shape`` is that of this rank's input, empty where several are
    one, which are its ``members``.

    ``dim``: of an AllGather and a ReduceScatter; ``split_dim`` and ``concat_dim``: of an AllToAll;
    ``sources``: of a CollectivePermute.
    """

    name: str
    kind: str
    group: list[int]
    dtype: str
    item_bytes: int
    shape: list[int]
    op: str = ""
    dim: int = 0
    split_dim: int = 0
    concat_dim: int = 0
    sources: Sequence[int] = ()
    members: tuple[Step, ...] = ()

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """Return the rows in which parts of the ranks lie side by side."""
        return math.prod(self.shape[: self.dim])


def steps(path: Path) -> list[Step]:
    """Return the collectives of a graph in which the shapes of all their inputs stand."""
    graph = onnx.load(path, load_external_data=False).graph
    values = {v.name: v.type.tensor_type for v in (*graph.input, *graph.value_info, *graph.output)}
    shapes = {n: (t.elem_type, [d.dim_value for d in t.shape.dim]) for n, t in values.items()}
    shapes |= {t.name: (t.data_type, list(t.dims)) for t in graph.initializer}
    return [_step(node, shapes) for node in _chain(graph)]


def _chain(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the collectives, each behind the one whose token it takes."""
    after = {
        node.input[_place_of_token(node)]: node
        for node in graph.node
        if node.domain == "tensoropt" and node.op_type in _COLLECTIVES | _COMBINED
    }
    made = {_token(node) for node in after.values()}
    found: list[onnx.NodeProto] = []
    token = next((name for name in after if name not in made), "")
    while token in after:
        found.append(after[token])
        token = _token(found[-1])
    assert len(found) == len(after), "not one chain of tokens"
    return found


def _place_of_token(node: onnx.NodeProto) -> int:
    return 0 if node.op_type in _COMBINED else 1


def _token(node: onnx.NodeProto) -> str:
    """Return the token that a node gives, empty where nothing takes it."""
    place = _place_of_token(node)
    return str(node.output[place]) if len(node.output) > place else ""


def _step(node: onnx.NodeProto, shapes: dict[str, tuple[int, list[int]]]) -> Step:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type not in _COMBINED:
        return _one(node, node.op_type, attributes, *shapes[node.input[0]])
    kind, dims = node.op_type.removeprefix("Combined"), attributes.pop("dims", None)
    members = [
        _one(node, kind, {**attributes, **({"dim": dims[i]} if dims else {})}, *shapes[name])
        for i, name in enumerate(node.input[1:])
    ]
    return replace(members[0], shape=[], dim=0, members=tuple(members))


def _one(
    node: onnx.NodeProto, kind: str, attributes: dict[str, Any], dtype: int, shape: list[int]
) -> Step:
    attributes = dict(attributes)
    group, op = list(attributes.pop("group")), attributes.pop("reduction", b"").decode()
    if op == "sum" and dtype == TensorProto.BOOL:
        op = "max"  # "or"
    return Step(node.name, kind, group, *_TYPES[dtype], shape, op, **attributes)


def communicators(wanted: Sequence[Step]) -> list[list[int]]:
    """Return the groups that need a communicator, in the order of their first use."""
    groups = [tuple(step.group) for step in wanted if len(step.group) > 1]
    return [list(group) for group in dict.fromkeys(groups)]


def disagreement(wanted: Sequence[Step], called: Sequence[Call], rank: int) -> str:
    """Return where the calls of a rank part from the steps that it runs, empty if nowhere."""
    units, place = _units(called), 0
    for number, step in enumerate(wanted):
        ways = list(_ways(step, rank))
        fits = [way for way in ways if _matches(way, units[place : place + len(way)])]
        if not fits:
            found = units[place : place + len(ways[0])]
            return f"step {number}, {step}: expected one of {ways}, got: {found}"
        place = _after_token(units, place + len(fits[0]))
    return f"more than the {len(wanted)} steps: {units[place:]}" if units[place:] else ""


def _units(called: Sequence[Call]) -> list[Unit]:
    """Return communication and copies on the device, what stands in one group together."""
    units: list[Unit] = []
    depth = 0
    for call in called:
        name = call["call"]
        if name in ("ncclGroupStart", "ncclGroupEnd"):
            depth += 1 if name == "ncclGroupStart" else -1
            if depth == 1 and name == "ncclGroupStart":
                units.append([])
        elif name in _NAMES or (name in _COPIES and call["kind"] == _ON_DEVICE):
            if depth > 0:
                units[-1].append(call)
            else:
                units.append([call])
    return units


def _after_token(units: list[Unit], place: int) -> int:
    """Pass over the copy of a token, made where ONNX Runtime gave its output another place."""
    token = {"call": "cudaMemcpyAsync", "bytes": _TOKEN_BYTES}
    return place + _matches([[token]], units[place : place + 1])


def _matches(wanted: Sequence[Unit], found: Sequence[Unit]) -> bool:
    return len(wanted) == len(found) and all(map(_same, wanted, found))


def _same(wanted: Unit, found: Unit) -> bool:
    if len(wanted) != len(found):
        return False
    key = "call", "peer"
    first, second = (sorted(u, key=lambda c: [str(c.get(k)) for k in key]) for u in (wanted, found))
    pairs = zip(first, second, strict=True)
    return all(call.get(key) == value for some, call in pairs for key, value in some.items())


def _ways(step: Step, rank: int) -> Iterator[list[Unit]]:
    """Yield the ways in which a step may be run: packed first, or row by row in one group."""
    ranks = len(step.group)
    if step.members:
        yield from _joined(step.members, rank)
    elif step.count == 0:
        yield []
    elif ranks == 1:
        yield [[{"call": "cudaMemcpyAsync", "bytes": step.count * step.item_bytes}]]
    elif step.kind == "AllReduce":
        yield [[_call(step, rank, step.count)]]
    elif step.kind == "CollectivePermute":
        yield [_swap(step, rank)]
    elif step.kind == "AllToAll":
        yield _exchange(step, rank)
    else:
        yield from _gather_or_scatter(step, rank)


def _joined(members: Sequence[Step], rank: int) -> Iterator[list[Unit]]:
    """Yield one group of what need not be packed, by how many rows are too many, and the others.

    The group may be of nothing.
    """
    members = [member for member in members if member.count > 0]
    if members and len(members[0].group) == 1:
        yield [unit for member in members for unit in next(_ways(member, rank))]
        return
    for most in sorted({0, *(_rows_apart(member) for member in members)}):
        ready = [member for member in members if _rows_apart(member) <= most]
        launch = [call for member in ready for unit in next(_ways(member, rank)) for call in unit]
        packed = [list(_ways(m, rank))[-1] for m in members if _rows_apart(m) > most]
        yield [launch, *(unit for units in packed for unit in units)]


def _rows_apart(step: Step) -> int:
    return 1 if step.kind == "AllReduce" else step.rows


def _gather_or_scatter(step: Step, rank: int) -> Iterator[list[Unit]]:
    """Yield one call between copies, where there is more than one row, and a call a row."""
    rows, gathers = step.rows, step.kind == "AllGather"
    count = step.count if gathers else step.count // len(step.group)
    yield [[_call(step, rank, count // rows)] * rows]
    if rows > 1:
        copies = _copies(step, rows, count // rows, to_pieces=not gathers)
        whole = [[_call(step, rank, count)]]
        yield [*whole, *copies] if gathers else [*copies, *whole]


def _swap(step: Step, rank: int) -> Unit:
    place = step.group.index(rank)
    peers = {"ncclSend": step.sources.index(place), "ncclRecv": step.sources[place]}
    call = _call(step, rank, step.count)
    return [{**call, "call": name, "peer": peer} for name, peer in peers.items()]


def _exchange(step: Step, rank: int) -> list[Unit]:
    ranks = len(step.group)
    piece = list(step.shape)
    piece[step.split_dim] //= ranks
    count = math.prod(piece)
    messages = [
        {**_call(step, rank, count), "call": name, "peer": peer}
        for peer in range(ranks)
        for name in ("ncclSend", "ncclRecv")
    ]
    before, after = (math.prod(piece[:dim]) for dim in (step.split_dim, step.concat_dim))
    packed = _copies(step, before, count // before, to_pieces=True) if before > 1 else []
    unpacked = _copies(step, after, count // after, to_pieces=False) if after > 1 else []
    return [*packed, messages, *unpacked]


def _call(step: Step, rank: int, count: int) -> Call:
    """Return a call without its peer; of those that reduce nothing, nothing is said of how."""
    call: Call = {"call": f"nccl{step.kind}", "count": count, "type": step.dtype}
    if step.op:
        call["op"] = step.op
    return {**call, "world": step.group, "rank": step.group.index(rank)}


def _copies(step: Step, rows: int, count: int, *, to_pieces: bool) -> list[Unit]:
    """Return the copies between pieces that lie apart and the tensor in whose rows they lie."""
    ranks, width = len(step.group), count * step.item_bytes
    pitches = (width, ranks * width) if to_pieces else (ranks * width, width)
    copy = {"call": "cudaMemcpy2DAsync", "width": width, "height": rows}
    return [[{**copy, "to_pitch": pitches[0], "from_pitch": pitches[1]}]] * ranks
