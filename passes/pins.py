"""Pins of a search and their cost, stored in a module."""

from __future__ import annotations

from pathlib import Path

from tensoropt.compiler.planning.pinned_search import PinsCost
from tensoropt.compiler.planning.request import Request
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt.keys import PINS, PINS_COST
from tensoropt.runtime.plan.entries import PinsEntry

__all__ = ["pins_entry", "read_pins", "write_pins"]


def pins_entry(request: Request, cost: PinsCost | None) -> PinsEntry | None:
    """Return the plan.json entry of the pins of ``request`` and their ``cost``, or ``None``."""
    if not (request.pins or request.forbid or request.annotations):
        return None
    return {
        "pin": list(request.pins),
        "forbid": list(request.forbid),
        "annotations": None if request.annotations is None else Path(request.annotations).name,
        "cost": None if cost is None else {"time": cost.time, "memory": cost.memory},
    }


def write_pins(module: ir.Module, pins: PinsEntry | None) -> None:
    """Write ``pins`` into ``module``, replacing existing pins."""
    attributes = module.operation.attributes
    PINS.remove(attributes)
    PINS_COST.remove(attributes)
    if pins is None:
        return
    annotations = [] if pins["annotations"] is None else [pins["annotations"]]
    lists = {"pin": pins["pin"], "forbid": pins["forbid"], "annotations": annotations}
    PINS.set(attributes, {name: own for name, own in lists.items() if own})
    cost = pins["cost"]
    if cost is not None:
        PINS_COST.set(attributes, {"time": cost["time"], "memory": cost["memory"]})


def read_pins(module: ir.Module) -> PinsEntry | None:
    """Return the pins of the search that found the strategies of ``module``, or ``None``."""
    attributes = module.operation.attributes
    lists, cost = PINS.get(attributes), PINS_COST.get(attributes)
    if lists is None:
        return None
    return {
        "pin": lists.get("pin", []),
        "forbid": lists.get("forbid", []),
        "annotations": next(iter(lists.get("annotations", ())), None),
        "cost": None
        if cost is None
        else {"time": float(cost["time"]), "memory": float(cost["memory"])},
    }
