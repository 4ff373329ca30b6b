"""Validation of the collectives of all ranks: they are matched as the ranks would run them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensoropt.runtime.inspection.graphs import Collective, RankGraph
from tensoropt.runtime.inspection.transfers import bad_transfers
from tensoropt.runtime.layout.layout import REDUCTIONS
from tensoropt.runtime.support.collectives import OPERATOR_ATTRIBUTES

__all__ = ["mismatches"]


def mismatches(graphs: Sequence[Sequence[RankGraph]]) -> Iterator[tuple[RankGraph, str]]:
    """Yield (graph, problem) for the graphs of all ranks, in the order of ranks.

    ``graphs`` has the graphs that each rank runs, in sequence.

    Each collective must be well formed. Then the ranks step through their collectives in program
    order: a collective completes when all ranks of its group have reached it, with the same kind,
    type, shape and attributes. If no rank can proceed, yields the collective that each rank is
    stuck in. Linear in the number of collectives.
    """
    broken = False
    for graph in (graph for own in graphs for graph in own):
        for text in _malformed(graph, len(graphs)):
            broken = True
            yield graph, text
    if not broken:
        yield from _stalls([[(g, one) for g in own for one in g.collectives] for own in graphs])


def _malformed(graph: RankGraph, ranks: int) -> Iterator[str]:
    for one in graph.collectives:
        where = f"{one.kind} '{one.node}'"
        if one.kind not in OPERATOR_ATTRIBUTES:
            known = ", ".join(OPERATOR_ATTRIBUTES)
            yield f"node '{one.node}': no such collective, expected one of {known}, got: {one.kind}"
            continue
        given = {name for name, _ in one.settings}
        if given != OPERATOR_ATTRIBUTES[one.kind]:
            expected = ", ".join(sorted(OPERATOR_ATTRIBUTES[one.kind])) or "none"
            yield f"{where}: expected attributes {expected}, got: {', '.join(sorted(given))}"
        reduction = dict(one.settings).get("reduction")
        if reduction is not None and reduction not in REDUCTIONS:
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


_Run = Sequence[tuple[RankGraph, Collective]]
"""The collectives of a rank in their order, each with its graph."""


def _stalls(runs: Sequence[_Run]) -> Iterator[tuple[RankGraph, str]]:
    """Simulate the ranks until all have finished or none can proceed."""
    at = [0] * len(runs)
    ready = list(range(len(runs)))
    while ready:
        rank = ready.pop()
        here = _next(runs, at, rank)
        if here is None:
            continue
        group = (rank, here.peer) if here.peer is not None else here.group
        others = [_next(runs, at, other) for other in group]
        if all(other is not None and _fits(here, other, rank, group) for other in others):
            for other in group:
                at[other] += 1
            ready.extend(group)
    yield from _waiting(runs, at)


def _next(runs: Sequence[_Run], at: Sequence[int], rank: int) -> Collective | None:
    return runs[rank][at[rank]][1] if at[rank] < len(runs[rank]) else None


def _fits(here: Collective, other: Collective, rank: int, group: Sequence[int]) -> bool:
    """Return whether two ranks that meet run the same collective."""
    if here is other:
        return True
    if here.peer is None:
        return _signature(here) == _signature(other)
    pair = {here.kind, other.kind} == {"Send", "Recv"} and other.peer == rank
    return pair and (here.dtype, here.shape) == (other.dtype, other.shape)


def _signature(one: Collective) -> tuple[object, ...]:
    return one.kind, one.group, one.dtype, one.shape, one.others, one.settings


def _waiting(runs: Sequence[_Run], at: Sequence[int]) -> Iterator[tuple[RankGraph, str]]:
    for rank, own in enumerate(runs):
        here = _next(runs, at, rank)
        if here is None:
            continue
        group = (here.peer,) if here.peer is not None else here.group
        for other in group:
            there = _next(runs, at, other)
            if other != rank and (there is None or not _fits(here, there, rank, group)):
                yield (
                    own[at[rank]][0],
                    (
                        f"{_text(here)} never ends, rank {other} "
                        f"{'has no more' if there is None else 'comes to ' + _text(there)}"
                    ),
                )
                break


def _text(one: Collective) -> str:
    """Return the text of a collective, with the values that its ranks must agree on."""
    shapes = (one.shape, *one.others)
    shape = ", ".join("any shape" if s is None else "x".join(map(str, s)) for s in shapes)
    ranks = ", ".join(map(str, one.group))
    ranks_text = f"with rank {ranks}" if one.peer is not None else f"of ranks {ranks}"
    own = "".join(f", {name} {value}" for name, value in one.settings if one.peer is None)
    return f"{one.kind} '{one.node}' {ranks_text} ({one.dtype} {shape or 'scalar'}{own})"
