"""Names of the graphs of a training step."""

from __future__ import annotations

import re
from typing import NamedTuple

from tensoropt.runtime.stages.schedule import Work

__all__ = ["GRADIENTS", "UPDATE", "WORK_NAMES", "ChunkGraph", "chunk_graph", "graph_name"]

GRADIENTS, UPDATE = "gradients", "update"
"""The graphs of a step without stages, in execution order."""

WORK_NAMES: dict[str, Work] = {"forward": "F", "backward": "B", "weights": "W"}
"""The works of a schedule by the names of their graphs."""

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
    if match is None or match[1] not in (*WORK_NAMES, UPDATE):
        return None
    return ChunkGraph(match[1], int(match[2]))
