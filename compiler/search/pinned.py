"""A plan that a person wrote or edited: its strategies, costed like those of a search."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.errors import UserError, did_you_mean
from tensoropt.compiler.layout.layout import Layout
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.search.evaluate import Evaluator
from tensoropt.compiler.search.frontier import FrontierResult, frontier_point
from tensoropt.compiler.search.graph import Node, read_graph
from tensoropt.compiler.search.tables import MeshTables
from tensoropt.compiler.sharding.rule import Strategy
from tensoropt.dialects.mlir import ir

__all__ = ["pinned_frontier"]

Layouts = tuple[tuple[Layout, ...], tuple[Layout, ...]]
"""Of the operands, and of the results."""


def pinned_frontier(
    module: ir.Module, document: Mapping[str, Any], device: Device
) -> FrontierResult:
    """Return the one point that ``document``, a plan.json, fixes for ``module``.

    Every op needs the strategy of its node, and it must be one that the op's rule offers.
    Parameters with one use follow that use. Linear in the operands, times the options of an op.
    """
    graph = read_graph(module)
    tables = MeshTables(graph, Mesh(tuple(document["mesh"]["shape"])), device)
    pins = _Pins(document)
    choice = [_number(tables, index, pins) for index in tables.variables]
    point = frontier_point(Evaluator(tables), np.array(choice, dtype=np.int32))
    if not graph.trains:
        _check_reachable(tables, choice)
    return FrontierResult([point], None)


class _Pins:
    """The layouts of a plan.json by the kind and name of the node."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.ops = {row["node"]: row for row in document["strategies"]}
        self.arguments = {
            row["name"]: row for key in ("inputs", "parameters") for row in document[key]
        }
        self.outputs: Sequence[Mapping[str, Any]] = document["outputs"]
        self.results = 0

    def of(self, node: Node) -> Layouts:
        """Return what is fixed for ``node``; results are asked for in their order."""
        if node.kind == "argument":
            return (), (
                Layout.parse(_row(self.arguments, node.name, "input or parameter")["layout"]),
            )
        if node.kind == "op":
            row = _row(self.ops, node.name, "node")
            return tuple(map(Layout.parse, row["operands"])), tuple(
                map(Layout.parse, row["results"])
            )
        self.results += 1
        if self.results > len(self.outputs):
            raise UserError("--strategies: the model has more outputs than the plan")
        return (Layout.parse(self.outputs[self.results - 1]["layout"]),), ()


def _row(rows: Mapping[str, Any], name: str, what: str) -> Mapping[str, Any]:
    if name not in rows:
        near = did_you_mean(name, rows)
        raise UserError(f"--strategies: the plan has no {what} '{name}', expected one{near}")
    row: Mapping[str, Any] = rows[name]
    return row


def _number(tables: MeshTables, index: int, pins: _Pins) -> int:
    """Return the number of the option that the plan fixes for a node."""
    node, options = tables.graph.nodes[index], tables.options[index]
    wanted = pins.of(node)
    for number, option in enumerate(options):
        if _same(wanted, option):
            return number
    raise _not_offered(tables, node, wanted, options)


def _same(wanted: Layouts, option: Strategy) -> bool:
    """Say whether an option has the wanted layouts; an empty one stands for no tensor."""
    return all(
        len(side) == len(held)
        and all(not a.placements or a == b for a, b in zip(side, held, strict=True))
        for side, held in zip(wanted, (option.operands, option.results), strict=True)
    )


def _not_offered(
    tables: MeshTables, node: Node, wanted: Layouts, options: Sequence[Strategy]
) -> UserError:
    texts = [_text((option.operands, option.results)) for option in options]
    near = difflib.get_close_matches(_text(wanted), texts, n=3, cutoff=0.0)
    why = _misfit(tables, node, wanted) or f"expected one of {len(texts)}"
    return UserError(
        f"--strategies: node '{node.name}': its sharding rule does not offer {_text(wanted)} on "
        f"mesh {tables.mesh}, {why}, such as {' or '.join(near)}"
    )


def _misfit(tables: MeshTables, node: Node, wanted: Layouts) -> str | None:
    """Return what keeps a layout from cutting its tensor, if that is why it is not offered."""
    layouts, values = [*wanted[0], *wanted[1]], [*node.operands, *node.results]
    if len(wanted[0]) != len(node.operands) or len(layouts) != len(values):
        return None
    for layout, value in zip(layouts, values, strict=True):
        info = None if value is None else tables.graph.values[value].info
        misfit = None if info is None else layout.misfit(info.shape, tables.mesh)
        if misfit is not None:
            return misfit
    return None


def _text(layouts: Layouts) -> str:
    operands, results = (" ".join(map(str, side)) for side in layouts)
    return f"{operands} -> {results}"


def _check_reachable(tables: MeshTables, choice: Sequence[int]) -> None:
    """Refuse a constant that would have to be communicated."""
    for edge in tables.problem.edges:
        if max(edge.a, edge.b) >= len(choice):  # a copy of a shared tensor: always reachable
            continue
        if not np.isfinite(edge.time_s[choice[edge.a], choice[edge.b]]):
            names = [tables.graph.nodes[tables.variables[end]].name for end in (edge.a, edge.b)]
            raise UserError(
                f"--strategies: '{names[1]}' wants the constant '{names[0]}' in a layout that "
                "cannot be cut from the one it is stored in, expected that layout or R"
            )
