"""Collectives: their names in the compiler, the IR and the runtime, and their traits.

Every other table of collectives is derived from `COLLECTIVES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "ALONE",
    "COLLECTIVES",
    "DOMAIN",
    "JOINED",
    "OPERATOR_ATTRIBUTES",
    "PLAIN",
    "STARTS",
    "WAITS",
    "CollectiveTraits",
    "reads_later",
]

DOMAIN = "tensoropt"
"""The domain of the runtime's operators."""

_Extent = Literal["whole", "part"]


@dataclass(frozen=True)
class CollectiveTraits:
    """A collective.

    ``op_type`` is its operator in the graphs of ranks, ``ir_name`` its operation in the IR, and
    ``attributes`` maps attributes of the operator to attributes of the operation. ``operand`` and
    ``result`` say whether a rank has the whole tensor, or the part of one rank. Several of a kind
    can run as one operator if it ``can_fuse``. If it ``can_overlap`` other operators, it has a
    start and a wait; a transfer that ``retains_operand`` reads its operand until the wait, any
    other works in its result.
    """

    op_type: str
    ir_name: str
    operand: _Extent
    result: _Extent
    attributes: Mapping[str, str] = field(default_factory=dict)
    can_fuse: bool = False
    can_overlap: bool = False
    retains_operand: bool = False

    def result_scale(self, ranks: int) -> float:
        """Return the elements of the result per element of the operand, over ``ranks`` ranks."""
        sizes = {"whole": float(ranks), "part": 1.0}
        return sizes[self.result] / sizes[self.operand]


COLLECTIVES: Mapping[str, CollectiveTraits] = {
    "all_reduce": CollectiveTraits(
        "AllReduce",
        "shard.all_reduce",
        "whole",
        "whole",
        {"reduction": "reduction"},
        can_fuse=True,
        can_overlap=True,
    ),
    "all_gather": CollectiveTraits(
        "AllGather",
        "shard.all_gather",
        "part",
        "whole",
        {"dim": "gather_axis"},
        can_fuse=True,
        can_overlap=True,
        retains_operand=True,
    ),
    "reduce_scatter": CollectiveTraits(
        "ReduceScatter",
        "shard.reduce_scatter",
        "whole",
        "part",
        {"dim": "scatter_dim", "reduction": "reduction"},
        can_fuse=True,
        can_overlap=True,
        retains_operand=True,
    ),
    "all_to_all": CollectiveTraits(
        "AllToAll",
        "shard.all_to_all",
        "part",
        "part",
        {"split_dim": "split_axis", "concat_dim": "concat_axis"},
        can_overlap=True,
        retains_operand=True,
    ),
    "collective_permute": CollectiveTraits(
        "CollectivePermute", "topt.collective_permute", "part", "part", {"sources": "sources"}
    ),
}
"""The collectives that a reshard may use, by their names in the compiler."""

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
