"""Whether the collectives of all ranks match: run without data, as the ranks would run them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tensoropt.runtime.inspection.graphs import Collective, RankGraph
from tensoropt.runtime.inspection.transfers import bad_transfers
from tensoropt.runtime.support.collectives import JOINED, STARTS

__all__ = ["mismatches"]

_OF_ONE: Mapping[str, frozenset[str]] = {
    "AllReduce": frozenset({"reduction"}),
    "AllGather": frozenset({"dim"}),
    "ReduceScatter": frozenset({"dim", "reduction"}),
    "AllToAll": frozenset({"split_dim", "concat_dim"}),
    "CollectivePermute": frozenset({"sources"}),
    "Broadcast": frozenset({"root"}),
    "Send": frozenset(),
    "Recv": frozenset({"shape", "dtype"}),
}
_RUN: Mapping[str, frozenset[str]] = {
    **_OF_ONE,
    **{
        joined: frozenset("dims" if name == "dim" else name for name in _OF_ONE[kind])
        for joined, kind in JOINED.items()
    },
}
KINDS: Mapping[str, frozenset[str]] = {
    **_RUN,
    **{start: _RUN[kind] for start, kind in STARTS.items()},
}
"""The collectives that there are, and their attributes beside the group or the peer."""

_REDUCTIONS = ("sum", "max", "min")


def mismatches(graphs: Sequence[RankGraph]) -> Iterator[tuple[RankGraph, str]]:
    """Yield (graph, problem) of one graph per rank, in the order of ranks.

    Each collective must be well formed. Then ranks go through theirs in program order: one is done
    when all ranks of its group have come to it, with the same kind, type, shape and attributes.
    Where no rank can go on, what each of them waits for is said. Linear in the collectives.
    """
    broken = False
    for graph in graphs:
        for text in _malformed(graph, len(graphs)):
            broken = True
            yield graph, text
    if not broken:
        yield from _stalls(graphs)


def _malformed(graph: RankGraph, ranks: int) -> Iterator[str]:
    for one in graph.collectives:
        where = f"{one.kind} '{one.node}'"
        if one.kind not in KINDS:
            known = ", ".join(KINDS)
            yield f"node '{one.node}': no such collective, expected one of {known}, got: {one.kind}"
            continue
        given = {name for name, _ in one.settings}
        if given != KINDS[one.kind]:
            expected = ", ".join(sorted(KINDS[one.kind])) or "none"
            yield f"{where}: expected attributes {expected}, got: {', '.join(sorted(given))}"
        reduction = dict(one.settings).get("reduction")
        if reduction is not None and reduction not in _REDUCTIONS:
            yield f"{where}: expected reduction sum, max or min, got: {reduction}"
        yield from _bad_group(one, where, graph.rank, ranks)
        sources = dict(one.settings).get("sources")
        places = set(range(len(one.group)))
        if sources is not None and (not isinstance(sources, tuple) or {*sources} != places):
            yield f"{where}: expected each place of its group once as sources, got: {sources}"
    yield from bad_transfers(graph.model.graph)
    for node in graph.nested_collectives:
        yield f"node '{node}': a collective inside a body of control flow, expected none there"


def _bad_group(one: Collective, where: str, rank: int, ranks: int) -> Iterator[str]:
    odd = [other for other in one.group if not 0 <= other < ranks]
    if odd:
        yield f"{where}: expected ranks below {ranks}, got: {odd[0]}"
    elif one.peer is not None:
        if one.peer == rank:
            yield f"{where}: expected another rank as its peer, got: itself"
    elif len(set(one.group)) != len(one.group) or rank not in one.group:
        listed = ", ".join(map(str, one.group))
        yield f"{where}: expected a group of different ranks, {rank} among them, got: {listed}"


def _stalls(graphs: Sequence[RankGraph]) -> Iterator[tuple[RankGraph, str]]:
    """Let the ranks run until all are done or none can go on."""
    at = [0] * len(graphs)
    ready = list(range(len(graphs)))
    while ready:
        rank = ready.pop()
        here = _next(graphs, at, rank)
        if here is None:
            continue
        group = (rank, here.peer) if here.peer is not None else here.group
        others = [_next(graphs, at, other) for other in group]
        if all(other is not None and _fits(here, other, rank, group) for other in others):
            for other in group:
                at[other] += 1
            ready.extend(group)
    yield from _waiting(graphs, at)


def _next(graphs: Sequence[RankGraph], at: Sequence[int], rank: int) -> Collective | None:
    found = graphs[rank].collectives
    return found[at[rank]] if at[rank] < len(found) else None


def _fits(here: Collective, other: Collective, rank: int, group: Sequence[int]) -> bool:
    """Say whether two ranks that meet do the same."""
    if here is other:
        return True
    if here.peer is None:
        return _what(here) == _what(other)
    pair = {here.kind, other.kind} == {"Send", "Recv"} and other.peer == rank
    return pair and (here.dtype, here.shape) == (other.dtype, other.shape)


def _what(one: Collective) -> tuple[object, ...]:
    return one.kind, one.group, one.dtype, one.shape, one.others, one.settings


def _waiting(graphs: Sequence[RankGraph], at: Sequence[int]) -> Iterator[tuple[RankGraph, str]]:
    for rank, graph in enumerate(graphs):
        here = _next(graphs, at, rank)
        if here is None:
            continue
        group = (here.peer,) if here.peer is not None else here.group
        for other in group:
            there = _next(graphs, at, other)
            if other != rank and (there is None or not _fits(here, there, rank, group)):
                yield (
                    graph,
                    (
                        f"{_said(here)} never ends, rank {other} "
                        f"{'has no more' if there is None else 'comes to ' + _said(there)}"
                    ),
                )
                break


def _said(one: Collective) -> str:
    """Return a collective with what its ranks must agree on."""
    shapes = (one.shape, *one.others)
    shape = ", ".join("any shape" if s is None else "x".join(map(str, s)) for s in shapes)
    ranks = ", ".join(map(str, one.group))
    who = f"with rank {ranks}" if one.peer is not None else f"of ranks {ranks}"
    own = "".join(f", {name} {value}" for name, value in one.settings if one.peer is None)
    return f"{one.kind} '{one.node}' {who} ({one.dtype} {shape or 'scalar'}{own})"
