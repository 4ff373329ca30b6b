"""Predicted cost of each node of a plan: costs.json, which a run compares with its own times."""

from __future__ import annotations

from typing import Any

from tensoropt.compiler.program.evaluate import Evaluator
from tensoropt.compiler.program.graph import Result
from tensoropt.compiler.program.timeline import timeline_of
from tensoropt.compiler.report.explain.layers import layers_of
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import mesh_of
from tensoropt.passes.check_strategies import read_choice
from tensoropt.passes.strategies import device_of
from tensoropt.runtime.plan.costs import COSTS_SCHEMA

__all__ = ["node_costs"]


def node_costs(module: ir.Module, whole: ir.Module) -> dict[str, Any]:
    """Return the predicted times of the nodes of ``whole``, the program before partitioning.

    The entry of a node, by name, has its layer, its own seconds, and the seconds of its
    communication: reshards of its operands, collectives inside it, and reshards of its returned
    results. The rest of the plan's time is the overhead of a run. Fused collectives count for the
    node of the first, which they are named after. ``whole`` gets the attributes of ``module``.
    """
    for name, attribute in module.operation.attributes.items():
        whole.operation.attributes[name] = attribute
    tables, choice = read_choice(whole, mesh_of(module.operation), device_of(module))
    graph = tables.graph
    layers, names = layers_of(graph), dict[str, int]()
    nodes: dict[str, list[float]] = {}
    steps = timeline_of(Evaluator(tables), choice).steps
    for step in steps:
        at = step.node if step.group is None else steps[step.group].node
        if at is None:
            continue
        if isinstance(graph.nodes[at], Result):  # its producer is charged
            value = graph.nodes[at].operands[0]
            at = at if value is None else graph.values[value].producer
        layer = names.setdefault(layers[at], len(names))
        row = nodes.setdefault(graph.nodes[at].name, [layer, 0.0, 0.0])
        row[1 if step.kind == "op" else 2] += step.time_s
    return {"schema": COSTS_SCHEMA, "layers": list(names), "nodes": nodes}
