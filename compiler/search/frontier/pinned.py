"""Points of a plan that a person wrote or edited, costed like the points of a search."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tensoropt.compiler.cost.device import Device
from tensoropt.compiler.layout.layouts import describe_misfit
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, Result
from tensoropt.compiler.program.options import stored
from tensoropt.compiler.search.frontier.search import FrontierResult, frontier_point, points_of
from tensoropt.compiler.search.problem.edge_tables import is_cut
from tensoropt.compiler.search.problem.tables import MeshTables
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.dialects.onnx import is_no_value, read_by, split_name
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["Layouts", "chosen_frontier", "number_of", "pinned_frontier"]

_T = TypeVar("_T")

Layouts = tuple[tuple[Layout, ...], tuple[Layout, ...]]
"""The layouts of the operands, and of the results."""


def pinned_frontier(graph: Graph, document: Mapping[str, Any], device: Device) -> FrontierResult:
    """Return the points (`points_of`) of ``graph`` with the layouts of ``document``, a plan.json.

    Every op needs the strategy of its node, and it must be one that the op's rule offers.
    Parameters with one use follow that use. Linear in the operands, times the options of an op.
    """
    pins = _Pins(document)
    tables = MeshTables(graph, Mesh(tuple(document["mesh"]["shape"])), device)
    pins.check_ends(graph)
    for index in tables.variables:  # before the ops: their names depend on --dim too
        if isinstance(graph.nodes[index], Argument):
            _pinned(tables, index, pins)
    pins.check_ops(graph)
    assignment = [_pinned(tables, index, pins) for index in tables.variables]
    _check_private(tables, assignment, pins)
    _flagged(lambda: _check_constants(tables, assignment))
    return FrontierResult(points_of(tables, np.array(assignment, dtype=np.int32)), None)


def _pinned(tables: MeshTables, index: int, pins: _Pins) -> int:
    wanted = pins.layouts_of(tables.graph.nodes[index])
    return _flagged(lambda: number_of(tables, index, wanted))


def _check_private(tables: MeshTables, assignment: Sequence[int], pins: _Pins) -> None:
    """Refuse another layout for a parameter than the layout of its only use."""
    graph, chosen = tables.graph, dict(zip(tables.variables, assignment, strict=True))
    for node in graph.nodes:
        for value in graph.storage.private.intersection(node.results):
            ((user, operand),) = graph.values[value].uses
            lies = stored(tables.options[user][chosen[user]].operands[operand])
            _, (wanted,) = pins.layouts_of(node)
            if lies != wanted:
                raise UserError(
                    f"--strategies: parameter '{node.name}' lies as node "
                    f"'{graph.nodes[user].name}' reads it, expected {lies}, or another operand "
                    f"{operand} of that node, got: {wanted}"
                )


def _flagged(action: Callable[[], _T]) -> _T:
    """Return ``action()``; its errors name the flag."""
    try:
        return action()
    except UserError as error:
        raise UserError(f"--strategies: {error}") from None


def chosen_frontier(tables: MeshTables, assignment: Sequence[int]) -> FrontierResult:
    """Return the point of an assignment: per choosing node, the number of its option.

    Raises UserError for a constant that would have to be communicated.
    """
    point = frontier_point(tables, np.array(assignment, dtype=np.int32))
    _check_constants(tables, assignment)
    return FrontierResult([point], None)


def _check_constants(tables: MeshTables, assignment: Sequence[int]) -> None:
    if not tables.graph.trains:
        _check_reachable(tables, assignment)


class _Pins:
    """The layouts of a plan.json by the kind and name of the node."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.ops = {row["node"]: row for row in document["strategies"]}
        self.arguments = {
            row["name"]: row for key in ("inputs", "parameters") for row in document[key]
        }
        self.outputs: Sequence[Mapping[str, Any]] = document["outputs"]
        self.results = 0

    def check_ends(self, graph: Graph) -> None:
        """Raise :class:`UserError` unless the plan has the inputs and outputs of ``graph``."""
        _check_names("input or parameter", _names(graph, Argument), self.arguments)
        results = len(_names(graph, Result))
        if len(self.outputs) != results:
            raise UserError(
                f"--strategies: expected the {results} outputs of the model, "
                f"got: {len(self.outputs)}"
            )

    def check_ops(self, graph: Graph) -> None:
        """Raise :class:`UserError` unless the plan is of the ops of ``graph``, each once."""
        _check_names("node", _names(graph, Op), self.ops)
        for node in graph.nodes:
            if isinstance(node, Op):
                _check_row(node, self.ops[node.name])

    def layouts_of(self, node: Node) -> Layouts:
        """Return the layouts that are fixed for ``node``; results are requested in their order."""
        if isinstance(node, Argument):
            return (), (Layout.parse(self.arguments[node.name]["layout"]),)
        if isinstance(node, Op):
            row = self.ops[node.name]
            operands, results = (map(Layout.parse, row[side]) for side in ("operands", "results"))
            return tuple(operands), tuple(results)
        self.results += 1
        return (Layout.parse(self.outputs[self.results - 1]["layout"]),), ()


def _names(graph: Graph, kind: type[Node]) -> list[str]:
    """Return the names of the nodes of one kind, in program order."""
    return [node.name for node in graph.nodes if isinstance(node, kind)]


def _check_names(what: str, names: Sequence[str], rows: Mapping[str, Any]) -> None:
    """Refuse names without a row and rows without a name; an op is found only by its name."""
    known = set(names)
    if len(known) < len(names):
        double = next(name for name, count in Counter(names).items() if count > 1)
        raise UserError(
            f"--strategies: expected a name of its own for each {what}, got: '{double}'"
        )
    for name in names:
        if name not in rows:
            near = did_you_mean(name, rows)
            raise UserError(f"--strategies: the plan has no {what} '{name}', expected one{near}")
    for name in rows:
        if name not in known:
            near = did_you_mean(name, names)
            raise UserError(f"--strategies: the model has no {what} '{name}'{near}")


def _check_row(node: Op, row: Mapping[str, Any]) -> None:
    """Refuse a row of another operator, or with layouts for more or fewer tensors."""
    where, op = f"--strategies: node '{node.name}'", split_name(node.info.name)[1]
    if row["op"] != op:
        raise UserError(f"{where}: expected op {op}, got: {row['op']}")
    for side, omitted in _omitted(node).items():
        if len(row[side]) != len(omitted):
            raise UserError(
                f"{where}: expected {len(omitted)} layouts in {side}, got: {len(row[side])}"
            )
        for number, (is_omitted, layout) in enumerate(zip(omitted, row[side], strict=True)):
            if is_omitted == bool(layout):
                wanted = "[], as it is omitted" if layout else "a layout"
                raise UserError(
                    f"{where}: {side[:-1]} {number}: expected {wanted}, got: [{', '.join(layout)}]"
                )


def _omitted(node: Op) -> dict[str, list[bool]]:
    """Return for each operand and result of ``node`` whether it is omitted."""
    if node.source is None:  # a barrier between two values
        return {"operands": [False, False], "results": [False]}
    return {
        "operands": [is_no_value(value) for value in read_by(node.source)],
        "results": [is_no_value(value) for value in node.source.results],
    }


def number_of(tables: MeshTables, index: int, wanted: Layouts) -> int:
    """Return the number of the option of a node that has these layouts.

    Raises UserError for layouts that are not offered.
    """
    node, options = tables.graph.nodes[index], tables.options[index]
    for number, option in enumerate(options):
        if _same(wanted, option):
            return number
    raise _not_offered(tables, node, wanted, options)


def _same(wanted: Layouts, option: Strategy) -> bool:
    """Return whether an option has the wanted layouts; an empty layout stands for no tensor."""
    return all(
        len(side) == len(layouts)
        and all(not a.placements or a == b for a, b in zip(side, layouts, strict=True))
        for side, layouts in zip(wanted, (option.operands, option.results), strict=True)
    )


def _not_offered(
    tables: MeshTables, node: Node, wanted: Layouts, options: Sequence[Strategy]
) -> UserError:
    texts = [_text((option.operands, option.results)) for option in options]
    near = difflib.get_close_matches(_text(wanted), texts, n=3, cutoff=0.0)
    misfit = _misfit(tables, node, wanted)
    why = f"{misfit};" if misfit else f"expected one of {len(texts)},"
    if isinstance(node, Op):
        what = f"node '{node.name}': its sharding rule does not offer"
    else:
        name = node.returned_as if isinstance(node, Result) else node.name
        what = f"'{name}' cannot lie as"
    return UserError(
        f"{what} {_text(wanted)} on mesh {tables.mesh}, {why} such as {' or '.join(near)}"
    )


def _misfit(tables: MeshTables, node: Node, wanted: Layouts) -> str | None:
    """Return the reason why a layout cannot split its tensor, if that is the mistake."""
    layouts, values = [*wanted[0], *wanted[1]], [*node.operands, *node.results]
    for layout, value in zip(layouts, values, strict=True):
        info = None if value is None else tables.graph.values[value].info
        misfit = None if info is None else describe_misfit(layout, info.sizes, tables.mesh)
        if misfit is not None:
            return misfit
    return None


def _text(layouts: Layouts) -> str:
    operands, results = (" ".join(map(str, side)) for side in layouts)
    return f"{operands} -> {results}" if operands and results else operands or results


def _check_reachable(tables: MeshTables, assignment: Sequence[int]) -> None:
    """Refuse a communicated constant, and a reshard of a tensor with a fixed layout."""
    graph, picked = tables.graph, dict(zip(tables.variables, assignment, strict=True))
    for value, index, operand in graph.edges():
        held, wanted = graph.values[value], tables.options[index][picked[index]].operands[operand]
        made = tables.options[held.producer][picked[held.producer]].results[held.index]
        names = f"'{graph.nodes[index].name}'", f"'{graph.producer(value).name}'"
        if value in graph.storage.constants and not is_cut(made, wanted):
            raise UserError(
                f"{names[0]} wants the constant {names[1]} in a layout that "
                "cannot be cut from the one it is stored in, expected that layout or R"
            )
        fixed = held.info is not None and not held.info.is_movable
        stays = graph.is_passed_on(value, index) or (fixed and value not in graph.storage.constants)
        if stays and made != wanted:
            raise UserError(
                f"{names[0]} wants {names[1]}, which cannot be moved: expected {made}, "
                f"got: {wanted}"
            )
    for index, node in enumerate(graph.nodes):
        if not isinstance(node, Result) or node.takes_over is None:
            continue
        cache = tables.options[node.takes_over][picked[node.takes_over]].results[0]
        if cache != tables.options[index][picked[index]].operands[0]:
            raise UserError(
                f"--strategies: '{node.returned_as}' takes the place of "
                f"'{graph.nodes[node.takes_over].name}' in the next step, expected the same "
                "layout for both"
            )
