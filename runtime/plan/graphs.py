"""Names of the graphs of a training step."""

from __future__ import annotations

import re
from typing import NamedTuple

from tensoropt.runtime.stages.schedule import Task, Work

__all__ = [
    "GRADIENTS",
    "UPDATE",
    "ChunkGraph",
    "chunk_graph",
    "graph_name",
    "graph_task",
    "work_graph",
]

GRADIENTS, UPDATE = "gradients", "update"
"""The graphs of a step without stages, in execution order."""

_KINDS: dict[Work, str] = {"F": "forward", "B": "backward", "W": "weights"}
"""The kind of graph for each work of a schedule."""

_NUMBERED = re.compile(r"([a-z]+)(0|[1-9][0-9]*)")


class ChunkGraph(NamedTuple):
    """A graph of a step with stages: forward, backward or weights of a chunk, update of a stage."""

    kind: str
    number: int


def graph_name(kind: str, number: int) -> str:
    """Return the name of a graph of a chunk, or of the update of a stage, such as ``forward0``."""
    return f"{kind}{number}"


def chunk_graph(name: str) -> ChunkGraph | None:
    """Return the parts of a :func:`graph_name`; None for another name."""
    match = _NUMBERED.fullmatch(name)
    if match is None or match[1] not in (*_KINDS.values(), UPDATE):
        return None
    return ChunkGraph(match[1], int(match[2]))


def work_graph(work: Work, chunk: int) -> str:
    """Return the name of the graph that does the work of a chunk."""
    return graph_name(_KINDS[work], chunk)


def graph_task(name: str, micro_batch: int) -> Task:
    """Return the task that runs a graph of a chunk, inverse of :func:`work_graph`."""
    graph = chunk_graph(name)
    assert graph is not None
    (work,) = (work for work, kind in _KINDS.items() if kind == graph.kind)
    return Task(work, micro_batch, graph.number)
