"""Predicted costs of a plan's nodes: costs.json, which is optional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensoropt.runtime.plan.document import read_json
from tensoropt.runtime.plan.plan import Plan
from tensoropt.runtime.support.errors import UserError, cause_of

__all__ = ["COSTS", "COSTS_SCHEMA", "NodeCost", "read_costs"]

COSTS = "costs.json"
COSTS_SCHEMA = 1


@dataclass(frozen=True)
class NodeCost:
    """Predicted compute and communication time of a node of the model, in seconds; its layer."""

    layer: str
    compute_s: float
    communication_s: float

    @property
    def time_s(self) -> float:
        return self.compute_s + self.communication_s


def read_costs(plan: Plan) -> Mapping[str, NodeCost] | None:
    """Return the costs by node, None if the plan has none; raises `UserError` if invalid."""
    if COSTS not in plan.files:
        return None
    path = plan.file_path(COSTS)
    try:
        document = read_json(path)
        if document["schema"] != COSTS_SCHEMA:
            raise ValueError(f"expected schema {COSTS_SCHEMA}, got: {document['schema']}")
        layers = document["layers"]
        return {
            name: NodeCost(str(layers[at]), float(compute_s), float(communication_s))
            for name, (at, compute_s, communication_s) in document["nodes"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise UserError(f"{path}: is no list of costs: {cause_of(error)}") from None
