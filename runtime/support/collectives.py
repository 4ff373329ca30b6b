"""Collectives: their names in the compiler, the IR and the runtime, their traits, and their costs.

Every other table of collectives is derived from `COLLECTIVES`. The kernels are in `runtime/ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = [
    "ALONE",
    "ATTENTION_KERNELS",
    "BY_IR_NAME",
    "COLLECTIVES",
    "DOMAIN",
    "JOINED",
    "OPERATOR_ATTRIBUTES",
    "PLAIN",
    "STARTS",
    "WAITS",
    "CollectiveTraits",
    "Settings",
    "import_domain",
    "reads_later",
]

DOMAIN = "tensoropt"
"""The domain of the runtime's operators; its version is 1."""

ATTENTION_KERNELS = ("Attention", "AttentionGradient")
"""Operators of `DOMAIN` that compute attention within a rank."""

Settings = Mapping[str, int | str | Sequence[int]]
"""Attributes of an operator: dimensions, a reduction, or positions in the group."""

Algorithms = Sequence[tuple[float, float]]
"""Per algorithm, the messages in sequence and the bytes sent per byte of input."""


@dataclass(frozen=True)
class CollectiveTraits:
    """A collective: each rank of a group has an operand and gets a result.

    ``name`` is its name in the compiler, ``op_type`` its operator in the graphs of ranks, and
    ``ir_name`` its operation in the IR. ``attributes`` maps attributes of the operator to
    attributes of the operation. ``algorithms`` returns the known algorithms for a number of ranks.

    If ``attributes`` has ``reduction``, the operands are partial results of a tensor, which are
    combined. The tensor is then cut into one piece per rank along the dimension in the attribute
    ``cuts``, and pieces of all ranks are joined along the dimension in the attribute ``joins``. A
    collective that ``reshards`` is the step from one placement to another.

    A collective that ``has_rows`` has a second operand, int64 [ranks, 2]: the rows of its operand
    for each rank, and the rows of its result from that rank. They differ between ranks.

    A kind that is ``timed_as`` another is not measured, and takes the times of that kind.

    Several of a kind can run as one operator if it ``can_fuse``; their one dimension is then called
    ``dim``. If it ``can_overlap`` other operators, it has a start and a wait; a transfer that
    ``retains_operand`` reads its operand until the wait, any other works in its result.
    """

    name: str
    op_type: str
    ir_name: str
    algorithms: Callable[[int], Algorithms]
    attributes: Mapping[str, str] = field(default_factory=dict)
    cuts: str = ""
    joins: str = ""
    has_rows: bool = False
    timed_as: str = ""
    reshards: bool = False
    can_fuse: bool = False
    can_overlap: bool = False
    retains_operand: bool = False

    @property
    def reduces(self) -> bool:
        """True if the operands are partial results."""
        return "reduction" in self.attributes

    @property
    def placements(self) -> tuple[str, str]:
        """Placements of operand and result in a reshard: split (S), partial (P), replicated (R)."""
        return "P" if self.reduces else "S", "S" if self.cuts else "R"

    def result_scale(self, ranks: int) -> float:
        """Return the elements of the result per element of the operand, over ``ranks`` ranks."""
        return (float(ranks) if self.joins else 1.0) / (float(ranks) if self.cuts else 1.0)


def _rounds(p: int) -> int:
    """Return the rounds in which data reach ``p`` ranks: the ceiling of the binary logarithm."""
    return (p - 1).bit_length()


_ALL = (
    CollectiveTraits(
        "all_reduce",
        "AllReduce",
        "shard.all_reduce",
        # Recursive doubling; a reduce-scatter and an all-gather.
        lambda p: ((_rounds(p), _rounds(p)), (2 * _rounds(p), 2 * ((p - 1) / p))),
        {"reduction": "reduction"},
        reshards=True,
        can_fuse=True,
        can_overlap=True,
    ),
    CollectiveTraits(
        "all_gather",
        "AllGather",
        "shard.all_gather",
        lambda p: ((_rounds(p), p - 1),),  # recursive doubling
        {"dim": "gather_axis"},
        joins="dim",
        reshards=True,
        can_fuse=True,
        can_overlap=True,
        retains_operand=True,
    ),
    CollectiveTraits(
        "reduce_scatter",
        "ReduceScatter",
        "shard.reduce_scatter",
        lambda p: ((_rounds(p), (p - 1) / p),),  # recursive halving
        {"dim": "scatter_dim", "reduction": "reduction"},
        cuts="dim",
        reshards=True,
        can_fuse=True,
        can_overlap=True,
        retains_operand=True,
    ),
    CollectiveTraits(
        "all_to_all",
        "AllToAll",
        "shard.all_to_all",
        # Bruck; pairwise exchange.
        lambda p: ((_rounds(p), _rounds(p) / 2), (p - 1, (p - 1) / p)),
        {"split_dim": "split_axis", "concat_dim": "concat_axis"},
        cuts="split_dim",
        joins="concat_dim",
        reshards=True,
        can_overlap=True,
        retains_operand=True,
    ),
    CollectiveTraits(
        "all_to_all_rows",
        "AllToAllRows",
        "topt.all_to_all_rows",
        lambda p: ((p - 1, (p - 1) / p),),  # pairwise, of equal loads
        has_rows=True,
        timed_as="all_to_all",
    ),
    CollectiveTraits(
        "collective_permute",
        "CollectivePermute",
        "topt.collective_permute",
        lambda p: ((1, 1.0),),  # each to one other
        {"sources": "sources"},
        can_overlap=True,
        retains_operand=True,
    ),
)

COLLECTIVES: Mapping[str, CollectiveTraits] = {own.name: own for own in _ALL}
"""The collectives that a plan may use, by their names in the compiler."""

BY_IR_NAME: Mapping[str, CollectiveTraits] = {own.ir_name: own for own in _ALL}
"""The same by their operations in the IR."""

PLAIN = tuple(own.op_type for own in COLLECTIVES.values() if own.can_overlap)
"""Operators with a start and a wait: (x, token) to (y, token)."""

ALONE = tuple(own.op_type for own in COLLECTIVES.values() if not own.can_overlap)
"""Operators of the same form without a start and a wait."""

JOINED: Mapping[str, str] = {
    f"Combined{own.op_type}": own.op_type for own in COLLECTIVES.values() if own.can_fuse
}
"""Fused operators, and their kind: (token, x1, x2, ...) to (token, y1, y2, ...)."""

STARTS: Mapping[str, str] = {f"{kind}Start": kind for kind in (*PLAIN, *JOINED)}
"""Starts, and their kind: (token, x1, ...) to (token, handle, y1, ...)."""

WAITS: Mapping[str, str] = {f"{kind}Wait": f"{kind}Start" for kind in (*PLAIN, *JOINED)}
"""Waits, and their start: (handle, y1, ...) and perhaps x1, ... to (z1, ...)."""

_ATTRIBUTES: Mapping[str, frozenset[str]] = {
    **{own.op_type: frozenset(own.attributes) for own in COLLECTIVES.values()},
    "Broadcast": frozenset({"root"}),
    "Send": frozenset(),
    "Recv": frozenset({"shape", "dtype"}),
}
_FUSED_ATTRIBUTES = {
    fused: frozenset("dims" if name == "dim" else name for name in _ATTRIBUTES[kind])
    for fused, kind in JOINED.items()
}

OPERATOR_ATTRIBUTES: Mapping[str, frozenset[str]] = {
    **_ATTRIBUTES,
    **_FUSED_ATTRIBUTES,
    **{start: {**_ATTRIBUTES, **_FUSED_ATTRIBUTES}[kind] for start, kind in STARTS.items()},
}
"""The attributes of each operator that communicates, other than its group or its peer."""

_RETAIN = {own.op_type for own in COLLECTIVES.values() if own.retains_operand}


def reads_later(start: str) -> bool:
    """Return whether a transfer reads its operand until its wait, which then takes it as well."""
    kind = STARTS[start]
    return JOINED.get(kind, kind) in _RETAIN


def import_domain(model: onnx.ModelProto) -> None:
    """Let ``model`` have operators of `DOMAIN`."""
    if all(entry.domain != DOMAIN for entry in model.opset_import):
        model.opset_import.add(domain=DOMAIN, version=1)
