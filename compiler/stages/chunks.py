"""The chunks of a searched training step: the operations that belong to each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tensoropt.compiler.program.costs import tensor_bytes
from tensoropt.compiler.program.graph import Argument, Graph, Op, Result
from tensoropt.compiler.program.timeline import Timeline
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.stages.cuts import cut_evenly
from tensoropt.compiler.support.errors import UserError
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["chunk_numbers"]


def chunk_numbers(point: FrontierPoint, timeline: Timeline, count: int) -> list[int | None]:
    """Return the chunk of each node, with ``count`` chunks of about equal time by ``timeline``.

    A chunk begins with an operation that reads a parameter first, so each has parameters. Backward
    operations belong to the chunks of their forward operations. Nodes of the update have no chunk,
    nor nodes that depend on no input or on parameters alone: each chunk computes these for itself.
    Linear in the operands of the program. Raises :class:`UserError` for more chunks than there are
    beginnings.
    """
    graph = point.tables.graph
    times_s = _node_times_s(graph, timeline)
    derived = _derived(graph)
    forward = [i for i in range(len(graph.nodes)) if graph.runs_forward(i) and i not in derived]
    starts = _starts(graph, forward, derived)
    if len(starts) < count:
        raise UserError(
            f"--stages: expected at most {len(starts)} chunks, one for each operation that reads a "
            f"parameter first, got: {count}"
        )
    own_s, passing = _with_followers_s(graph, times_s), _passing_bytes(point, forward)
    ends = [*starts[1:], len(forward)]
    unit_s = [sum(own_s[i] for i in forward[a:b]) for a, b in zip(starts, ends, strict=True)]
    units = cut_evenly(unit_s, [passing[start] for start in starts], count)
    return _numbers(graph, forward, [starts[unit] for unit in units])


def _derived(graph: Graph) -> set[int]:
    """Return the parameters, and the forward nodes that depend on nothing else, such as casts."""
    found: set[int] = set()
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Argument):
            is_derived = node.state == "parameter"
        else:
            made = _producers(graph, index)
            is_derived = (
                graph.runs_forward(index)
                and not graph.op(index).is_random
                and any(p in found for p in made)
                and all(p in found or graph.nodes[p].constant for p in made)
            )
        if is_derived:
            found.add(index)
    return found


def _starts(graph: Graph, forward: Sequence[int], derived: set[int]) -> list[int]:
    """Return the positions in ``forward`` at which a parameter is read first; the first is 0."""
    roots: dict[int, set[int]] = {}  # the parameters that a derived node depends on
    for index in sorted(derived):
        made = [roots[p] for p in _producers(graph, index) if p in derived]
        roots[index] = {index} if isinstance(graph.nodes[index], Argument) else set().union(*made)
    seen: set[int] = set()
    found: list[int] = []
    for position, index in enumerate(forward):
        read = {root for p in _producers(graph, index) if p in derived for root in roots[p]}
        if read - seen:
            found.append(position)
        seen |= read
    return [0, *found[1:]]


def _is_backward(graph: Graph, index: int) -> bool:
    node = graph.nodes[index]
    return isinstance(node, Op) and node.phase == "backward"


def _producers(graph: Graph, index: int) -> list[int]:
    """Return the nodes that make the operands of a node."""
    return [graph.values[v].producer for v in graph.nodes[index].operands if v is not None]


def _node_times_s(graph: Graph, timeline: Timeline) -> list[float]:
    """Return the time of each node for one micro-batch, with the reshards of its operands."""
    found = [0.0] * len(graph.nodes)
    for step in timeline.steps:
        if step.node is not None:
            found[step.node] += step.time_s / graph.times(graph.nodes[step.node])
    return found


def _leader(graph: Graph, index: int) -> int | None:
    """Return the node that decides the chunk of a backward or recomputed node."""
    node = graph.nodes[index]
    repeated = node.repeats if isinstance(node, Op) else None
    return node.follows if repeated is None else repeated


def _with_followers_s(graph: Graph, times_s: Sequence[float]) -> list[float]:
    """Return the time of each forward node with all nodes that follow it."""
    found, leads = [0.0] * len(graph.nodes), list(range(len(graph.nodes)))
    for index, node in enumerate(graph.nodes):
        leader = _leader(graph, index)
        if leader is not None and leader < index and not graph.updates(node):
            leads[index] = leads[leader]
        if not graph.updates(node):
            found[leads[index]] += times_s[index]
    return found


def _passing_bytes(point: FrontierPoint, forward: Sequence[int]) -> list[int]:
    """Return the bytes on one rank that pass each position among the forward nodes."""
    graph, mesh = point.tables.graph, Mesh(point.mesh)
    place = {index: at for at, index in enumerate(forward)}
    change = [0] * (len(forward) + 1)
    for index, at in place.items():
        results = zip(graph.nodes[index].results, point.strategies[index].results, strict=True)
        for value, layout in results:
            readers = [place[r] for r, _ in graph.values[value].uses if r in place]
            if readers:
                size = tensor_bytes(graph.values[value].info, layout, mesh)
                change[at + 1] += size
                change[max(readers) + 1] -= size
    found, now = [], 0
    for own in change:
        now += own
        found.append(now)
    return found


def _numbers(graph: Graph, forward: Sequence[int], cuts: Sequence[int]) -> list[int | None]:
    """Return the chunk of each node.

    A recomputed node has the chunk of the original. A backward node has the chunk of its leader, or
    an earlier one if it reads a gradient of that.
    """
    numbers: list[int | None] = [None] * len(graph.nodes)
    for at, index in enumerate(forward):
        numbers[index] = bisect_right(cuts, at)
    _keep_buffers_together(graph, numbers)
    for index, node in enumerate(graph.nodes):
        if not isinstance(node, Op) or node.is_forward or node.constant or graph.updates(node):
            continue
        leader = _leader(graph, index)
        wanted = [] if leader is None else [numbers[leader]]
        producers = _producers(graph, index)
        later = [numbers[p] for p in producers if _is_backward(graph, p)]
        known = [n for n in (*wanted, *later) if n is not None]
        given = [n for n in (numbers[p] for p in producers) if n is not None]
        numbers[index] = min(known) if known else max(given, default=len(cuts))
        if node.phase == "recompute" and wanted != [None]:
            numbers[index] = wanted[0]
    return numbers


def _keep_buffers_together(graph: Graph, numbers: list[int | None]) -> None:
    """Move the operations that only update a running statistic to one chunk.

    That is the first in which they can all run: it alone has the statistic.
    """
    inside: set[int] = set()  # nodes with results that go to buffers alone
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        readers = [reader for value in node.results for reader, _ in graph.values[value].uses]
        is_end = isinstance(node, Result) and node.updates is not None
        if (is_end and not graph.updates(node)) or (
            graph.runs_forward(index) and readers and inside.issuperset(readers)
        ):
            inside.add(index)
    for end in inside:
        if isinstance(graph.nodes[end], Result):
            own = _made_for(graph, end, inside)
            given = [numbers[i] for node in own for i in _producers(graph, node) if i not in own]
            latest = max((number for number in given if number is not None), default=0)
            for index in own - {end}:
                numbers[index] = latest


def _made_for(graph: Graph, end: int, inside: set[int]) -> set[int]:
    """Return the nodes ``inside`` that the node ``end`` depends on, and itself."""
    found, left = {end}, [end]
    while left:
        new = {*_producers(graph, left.pop())} & inside - found
        found |= new
        left.extend(new)
    return found
