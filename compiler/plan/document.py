"""The entries of plan.json, in their order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tensoropt.compiler.plan.writer import sha256
from tensoropt.compiler.report.points import FIELDS, as_dict
from tensoropt.compiler.request import Chosen
from tensoropt.compiler.version import TOOL

__all__ = ["SCHEMA", "plan_document"]

SCHEMA = 1


def plan_document(chosen: Chosen, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return plan.json without ``files``; ``described`` comes from :func:`describe_module`."""
    request, point = chosen.request, chosen.point
    return {
        "schema": SCHEMA,
        "tool": TOOL,
        "model": {"name": chosen.source.name, "sha256": sha256(chosen.source)},
        "device": request.device.name,
        "mesh": {"shape": list(point.mesh)},
        "ranks": math.prod(point.mesh),
        "search": {"name": request.search, "seed": request.seed, "epsilon": _epsilon(chosen)},
        "frontier": [as_dict(one) for one in chosen.result.points],
        "chosen": point.index,
        "predicted": {name: getattr(point, name) for name in FIELDS},
        **{key: described[key] for key in ("inputs", "outputs", "parameters", "strategies")},
    }


def _epsilon(chosen: Chosen) -> float | None:
    # A random search bounds nothing, and JSON has no infinity.
    epsilon = chosen.result.epsilon
    return epsilon if math.isfinite(epsilon) else None
