"""The strategies of a plan fed back in: what the second compilation makes of them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tensoropt.compiler.exporter.plan.writer import PLAN_FILE
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.planning.request import Request

__all__ = ["changed_entries"]

_OWN = ("search", "frontier", "chosen", "sha256")
"""What says how a plan was found, and the hash over that."""


def changed_entries(
    path: Path, module: driver.ir.Module, plan: Path, request: Request
) -> list[str]:
    """Return the entries of plan.json, the hashes of all graphs among them, that are not as before.

    ``module`` is the prepared model of ``path``, or its step, and is spent;
    ``request`` is what ``plan``, a folder, was searched for. Raises what the compiler refuses.
    """
    own = Request(device=request.device, strategies=str(plan))
    result = driver.frontier(module, own)
    with tempfile.TemporaryDirectory(prefix="tensoropt-fed-back-") as folder:
        again = Path(folder) / "plan"
        driver.settle(module, result.points[0], own, result)
        driver.compile_plan(module, path, again)
        first, second = _document(plan), _document(again)
    return [key for key in first if key not in _OWN and first[key] != second.get(key)]


def _document(plan: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((plan / PLAN_FILE).read_text(encoding="utf-8"))
    return found
