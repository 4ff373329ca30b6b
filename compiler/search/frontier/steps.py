"""The graphs of one search: a model, or the alternatives of a training step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.program.recompute import Recomputation
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.training.alternatives import (
    INFERENCE,
    Alternative,
    policies_of,
    recompute_of,
    steps,
)
from tensoropt.compiler.training.cut import argument_names, updated_names
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys

__all__ = ["Graphs", "check_state", "read_graphs"]

Graphs = Mapping[Alternative, Graph]
"""The graphs to search, by alternative of a step; for inference by ``INFERENCE``."""


def read_graphs(module: ir.Module) -> Graphs:
    """Return the graphs of ``module``: one, or one per alternative of a training step.

    Of policies with equal programs, only the first has a graph.
    """
    if not keys.TRAINING.on(module.operation.attributes):
        return {INFERENCE: read_graph(module)}
    graphs: dict[Alternative, Graph] = {}
    for micro_batches, step in steps(module).items():
        graph, policies = read_graph(module, step), policies_of(step)
        if not policies:
            graphs[Alternative(recompute_of(module), micro_batches)] = graph
            continue
        recomputation, distinct = Recomputation(graph), list[Graph]()
        for policy in policies:
            derived = recomputation.derive(policy)
            if not any(_is_same_program(derived, other) for other in distinct):
                distinct.append(derived)
                graphs[Alternative(policy, micro_batches)] = derived
    return graphs


def _is_same_program(graph: Graph, other: Graph) -> bool:
    """Return whether two graphs, derived from the same step, have the same nodes."""
    ours, theirs = (
        [(node.name, node.operands, isinstance(node, Op) and node.awaits) for node in own.nodes]
        for own in (graph, other)
    )
    return ours == theirs


def check_state(step: Graph, planned: Mapping[str, Any]) -> None:
    """Raise UserError unless ``step`` keeps what the entry ``training`` of a plan lists."""
    kept, wanted = updated_names(step.module), [row["name"] for row in planned["state"]]
    sums = [row["accumulator"] for row in planned["gradients"] if row["accumulator"] is not None]
    given = set(argument_names(step.module))
    if kept != wanted or not given.issuperset(sums):
        odd = sorted({*kept} ^ {*wanted} or {*sums} - given)
        raise UserError(
            f"--strategies: the plan is of another step, expected its --optimizer "
            f"{planned['optimizer']['name']}, --micro-batches {planned['micro_batches']} and "
            f"--freeze, got: {'no ' if odd[0] in wanted + sums else ''}{odd[0]}"
        )
