"""The entries of plan.json, in their order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tensoropt.compiler.cost.memory import RankMemory
from tensoropt.compiler.exporter.plan.writer import sha256
from tensoropt.compiler.pipeline.request import Chosen
from tensoropt.compiler.search.frontier.points import FIELDS, Point, listed
from tensoropt.compiler.support.version import TOOL
from tensoropt.compiler.training.memory import StaticParts

__all__ = ["SCHEMA", "plan_document"]

SCHEMA = 1


def plan_document(
    chosen: Chosen,
    described: Mapping[str, Any],
    memory: RankMemory,
    parts: StaticParts | None = None,
) -> dict[str, Any]:
    """Return plan.json without ``files`` and ``sha256``.

    ``described`` comes from :func:`describe_module`, for a training step with the entry
    ``training``; ``memory`` comes from the partitioned module, and ``parts`` from that of a step.
    """
    request, point = chosen.request, chosen.point
    return {
        "schema": SCHEMA,
        "tool": TOOL,
        "model": {"name": chosen.source.name, "sha256": sha256(chosen.source)},
        "device": request.device.name,
        "mesh": {"shape": list(point.mesh)},
        "ranks": math.prod(point.mesh),
        "search": {"name": request.search, "seed": request.seed, "epsilon": chosen.result.epsilon},
        "frontier": listed(chosen.result.points),
        "chosen": point.index,
        "predicted": _predicted(point, memory, parts),
        **described,
    }


def _predicted(point: Point, memory: RankMemory, parts: StaticParts | None) -> dict[str, Any]:
    """Return the cost of the chosen point, its memory as the emitted graphs have it.

    The frontier cannot know the temporaries of an op that takes several on one rank.
    """
    return {
        **{name: getattr(point, name) for name in FIELDS},
        "memory_bytes": memory.static_bytes + memory.transient_bytes,
        "static_bytes": memory.static_bytes,
        "transient_bytes": memory.transient_bytes,
        **({} if parts is None else {"static_parts": vars(parts)}),
    }
