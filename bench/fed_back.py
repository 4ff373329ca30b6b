"""The strategies of a plan fed back in: what the second compilation makes of them."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensoropt.compiler.exporter.plan.reader import read_pins
from tensoropt.compiler.exporter.plan.writer import PLAN_FILE
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.pipeline.request import Chosen, Request

__all__ = ["changed_entries"]

_OWN = ("search", "frontier", "chosen", "sha256")
"""What says how a plan was found, and the hash over that."""


def changed_entries(
    path: Path, module: driver.ir.Module, plan: Path, request: Request
) -> list[str]:
    """Return the entries of plan.json, the hashes of all graphs among them, that are not as before.

    ``module`` is the prepared model of ``path``, and is spent; ``request`` is what ``plan``, a
    folder, was searched for. Raises what the compiler refuses.
    """
    pins = read_pins(plan)
    shape = tuple(pins["mesh"]["shape"])
    ways = [s for s in request.training if s.recompute == pins["training"]["recompute"]]
    settled = {"devices": math.prod(shape), "mesh": Mesh(shape), "search": "pinned", "seed": None}
    own = replace(request, **settled, pins=pins, training=ways)
    result = driver.frontier(module, own)
    with tempfile.TemporaryDirectory(prefix="tensoropt-fed-back-") as folder:
        again = Path(folder) / "plan"
        chosen = Chosen(path, own, result, result.points[0])
        driver.compile_plan(module, chosen, again, lambda text: None)
        first, second = _document(plan), _document(again)
    return [key for key in first if key not in _OWN and first[key] != second.get(key)]


def _document(plan: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((plan / PLAN_FILE).read_text(encoding="utf-8"))
    return found
