"""Every strategy of a small model: through the passes to one graph per rank."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tensoropt.compiler.exporter.plan_weights import PlanWeights
from tensoropt.compiler.exporter.rank import export_model, export_rank
from tensoropt.compiler.exporter.weights import ParameterSource
from tensoropt.compiler.importer.importer import import_model
from tensoropt.compiler.layout.rule import Strategy
from tensoropt.compiler.layout.sizes import Sizes, pads_little
from tensoropt.compiler.pipeline import driver
from tensoropt.compiler.program.constants import whole_nodes
from tensoropt.compiler.program.graph import Argument, Graph, Node, Op, Result
from tensoropt.compiler.program.options import node_options, stored
from tensoropt.compiler.program.reader import read_graph
from tensoropt.compiler.sharding.rule.op_info import OpInfo
from tensoropt.dialects import onnx
from tensoropt.dialects.mlir import ir
from tensoropt.dialects.topt import keys, set_mesh, strategy_attr
from tensoropt.passes.pipeline import Pipeline, parse_pipeline
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh
from tensoropt.runtime.layout.mesh_layout import MeshLayout

__all__ = ["Model", "Plan", "key_of", "part_of"]


@dataclass(frozen=True)
class Plan:
    """One choice of strategies.

    ``picks`` are positions among the options of each op; ``strategies`` tells the same as text:
    (operator, layouts), and ``keys`` name them as `key_of` does. ``inputs`` and ``outputs`` say
    how the tensors lie.
    """

    mesh: Mesh
    picks: tuple[int, ...]
    strategies: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    inputs: dict[str, Layout]
    outputs: tuple[Layout, ...]

    def __str__(self) -> str:
        """The mesh and what is split: `2x2 MatMul S(0),R R,R -> S(0),R`."""
        told = [f"{name} {text}" for name, text in self.strategies if set(text) & set("SP")]
        return f"{self.mesh} {'; '.join(told) or 'whole'}"


def key_of(mesh: Mesh, info: OpInfo | None, strategy: Strategy) -> str:
    """Name a strategy of an op: its operator, types, shapes, attributes and constants."""
    text = repr((mesh.shape, info, _text(strategy)))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


# The phases after search, but for the check of what a person may write: here inputs lie in ways
# that no plan offers.
_LOWERING = "insert-reshards,optimize-reshards,partition,dce"


@cache
def _context() -> ir.Context:
    """Return the context of all models: to make one takes longer than to cut most of them."""
    return driver.new_context()


class Model:
    """An ONNX model, imported and prepared once, to be cut again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = ParameterSource(path)
        with _context():
            module = import_model(path)
        driver.advance(module, "rules")
        self.text = str(module.operation.get_asm(enable_debug_info=True))
        self.graph = read_graph(module)
        self._strategies: dict[Mesh, list[tuple[Strategy, ...]]] = {}

    @property
    def ops(self) -> list[Op]:
        """The nodes that are operators, in program order."""
        return _ops(self.graph)

    def export(self, target: Path) -> None:
        """Write the model as it is after preparation, on one device."""
        export_model(self._copy(), target, self.source)

    def options(self, mesh: Mesh) -> list[tuple[Strategy, ...]]:
        """Return the strategies of every op, in program order, with little padding: sizes here are
        so small that most have some, which `test/sharding` proves in any amount."""
        if mesh not in self._strategies:
            whole = whole_nodes(self.graph)
            self._strategies[mesh] = [
                tuple(
                    own
                    for own in node_options(self.graph, node, mesh, whole=index in whole)
                    if _pads_little(self.graph, node, own, mesh)
                )
                for index, node in enumerate(self.graph.nodes)
                if isinstance(node, Op)
            ]
        return self._strategies[mesh]

    def plans(self, mesh: Mesh, tried: set[str]) -> Iterator[Plan]:
        """Yield plans that together hold every strategy of every op that is not in ``tried``.

        Each takes for every op the first strategy that is left. An op whose operands cannot get
        there (no collective takes their type) takes the next that can. At least one plan comes.
        """
        options, given_up = self.options(mesh), set[tuple[int, int]]()
        for number in itertools.count():
            left = self._left(mesh, tried, given_up)
            if number and not any(left):
                return
            chosen = _Choice(self.graph, mesh, options, [min(own, default=0) for own in left])
            for position, own in enumerate(left):
                given_up.update((position, pick) for pick in (*own[:1], chosen.picks[position]))
            yield chosen.plan()
            tried.update(chosen.keys)

    def _left(self, mesh: Mesh, tried: set[str], given_up: set[tuple[int, int]]) -> list[list[int]]:
        """Return the positions of the strategies that each op has not been tried with."""
        rows = enumerate(zip(_ops(self.graph), self.options(mesh), strict=True))
        return [
            [
                pick
                for pick, strategy in enumerate(offered)
                if (position, pick) not in given_up
                and key_of(mesh, node.info, strategy) not in tried
            ]
            for position, (node, offered) in rows
        ]

    def compile(self, plan: Plan, folder: Path) -> None:
        """Write ``rank<r>.onnx`` of every rank into ``folder``, which is made."""
        mesh, module = plan.mesh, self._copy()
        chosen = _Choice(read_graph(module), mesh, self.options(mesh), plan.picks)
        _annotate(module, chosen)
        Pipeline(parse_pipeline(_LOWERING, module.context)).run(module)
        folder.mkdir()
        with PlanWeights(folder, mesh, self.source) as weights:
            for rank in range(mesh.size):
                export_rank(module, rank, weights)

    def _copy(self) -> ir.Module:
        with _context():
            return driver.parse_text(self.text)


def _pads_little(graph: Graph, node: Node, strategy: Strategy, mesh: Mesh) -> bool:
    """Say whether all that the op reads and makes has little padding, or none."""
    values = (*node.operands, *node.results)
    held = zip(values, (*strategy.operands, *strategy.results), strict=True)
    infos = ((None if v is None else graph.values[v].info, layout) for v, layout in held)
    return all(info is None or _is_little(info.sizes, layout, mesh) for info, layout in infos)


def _is_little(sizes: Sizes, layout: Layout, mesh: Mesh) -> bool:
    padded = ((sizes[dim], layout.pieces(dim, mesh)) for dim in layout.padded_dims(sizes, mesh))
    return all(isinstance(n, int) and pads_little(n, pieces) for n, pieces in padded)


def _ops(graph: Graph) -> list[Op]:
    return [node for node in graph.nodes if isinstance(node, Op)]


class _Choice:
    """A strategy for every op, and how arguments and results lie to suit them."""

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        options: Sequence[Sequence[Strategy]],
        starts: Sequence[int],
    ) -> None:
        self.graph, self.mesh, self.whole = graph, mesh, Layout.replicated(mesh)
        self.layouts: dict[int, Layout] = {}  # of values, arguments excepted
        self.picks: list[int] = []
        self.strategies: list[Strategy] = []
        for node, offered, start in zip(_ops(graph), options, starts, strict=True):
            turns = (*range(start, len(offered)), *range(start))
            self.picks.append(next(i for i in turns if self._fits(node, offered[i])))
            self.strategies.append(offered[self.picks[-1]])
            self.layouts.update(zip(node.results, self.strategies[-1].results, strict=True))
        chosen = zip(_ops(graph), self.strategies, strict=True)
        self.keys = tuple(key_of(mesh, node.info, strategy) for node, strategy in chosen)
        self.wanted = self._wanted()
        for node in graph.nodes:
            if isinstance(node, Argument):
                self.layouts[node.results[0]] = self._argument(node)

    def _fits(self, node: Node, strategy: Strategy) -> bool:
        """Say whether the operands can get there, and what is made can be used by any op."""
        read = zip(node.operands, strategy.operands, strict=True)
        made = zip(node.results, strategy.results, strict=True)
        return all(self._reaches(value, layout) for value, layout in read) and all(
            layout == self.whole or self._moves(value) or not self._feeds(value)
            for value, layout in made
        )

    def _reaches(self, value: int | None, layout: Layout) -> bool:
        own = None if value is None else self.layouts.get(value)
        return own is None or own in (layout, self.whole) or self._moves(value)

    def _moves(self, value: int | None) -> bool:
        info = None if value is None else self.graph.values[value].info
        return info is not None and info.is_movable

    def _feeds(self, value: int) -> bool:
        """Say whether an op reads ``value``."""
        return any(isinstance(self.graph.nodes[n], Op) for n, _ in self.graph.values[value].uses)

    def _wanted(self) -> dict[int, set[Layout]]:
        """Return the layouts in which the ops want each value; results want it whole."""
        wanted: dict[int, set[Layout]] = {}
        for node, strategy in zip(_ops(self.graph), self.strategies, strict=True):
            for value, layout in zip(node.operands, strategy.operands, strict=True):
                if value is not None:
                    wanted.setdefault(value, set()).add(layout)
        for node in self.graph.nodes:
            if isinstance(node, Result) and node.operands[0] is not None:
                wanted.setdefault(node.operands[0], set()).add(self.whole)
        return wanted

    def _argument(self, node: Node) -> Layout:
        """Return the one layout that all uses want, otherwise whole; weights are not partial."""
        layouts = self.wanted.get(node.results[0], set())
        layout = next(iter(layouts)) if len(layouts) == 1 else self.whole
        return stored(layout) if node.constant else layout

    def _result(self, node: Node) -> Layout:
        """Return whole where the tensor can be moved; otherwise it stays as it was made."""
        value = node.operands[0]
        if value is None or self._moves(value):
            return self.whole
        return self.layouts[value]

    def inputs(self) -> dict[str, Layout]:
        """Return the layout of each argument that is not a parameter, by name."""
        given = [n for n in self.graph.nodes if isinstance(n, Argument) and not n.constant]
        return {node.name: self.layouts[node.results[0]] for node in given}

    def arguments(self) -> list[Layout]:
        """Return the layout of every argument."""
        given = [node for node in self.graph.nodes if isinstance(node, Argument)]
        return [self.layouts[node.results[0]] for node in given]

    def outputs(self) -> tuple[Layout, ...]:
        """Return the layout of every result."""
        return tuple(self._result(node) for node in self.graph.nodes if isinstance(node, Result))

    def plan(self) -> Plan:
        """Return what was chosen, without the graph."""
        picks, inputs, outputs = tuple(self.picks), self.inputs(), self.outputs()
        return Plan(self.mesh, picks, self.texts(), self.keys, inputs, outputs)

    def texts(self) -> tuple[tuple[str, str], ...]:
        """Return (operator, layouts) of each op."""
        names = [node.info.name for node in _ops(self.graph)]
        return tuple(zip(names, map(_text, self.strategies), strict=True))


def _text(strategy: Strategy) -> str:
    sides = (strategy.operands, strategy.results)
    return " -> ".join(" ".join(",".join(x.texts) for x in side) for side in sides)


def _annotate(module: ir.Module, chosen: _Choice) -> None:
    """Write what the search would write: the mesh, strategies, layouts of the signature."""
    with module.context, ir.Location.unknown():
        set_mesh(module, chosen.mesh)
        keys.DEVICE.set(module.operation.attributes, "cpu")
        for node, strategy in zip(_ops(chosen.graph), chosen.strategies, strict=True):
            assert node.source is not None
            held = strategy_attr(strategy.operands, strategy.results)
            node.source.attributes[keys.STRATEGY.name] = held
        _sign(module, "arg_attrs", chosen.arguments())
        _sign(module, "res_attrs", chosen.outputs())


def _sign(module: ir.Module, key: str, layouts: Sequence[Layout]) -> None:
    main = onnx.function(module)
    held = list(main.attributes[key]) if key in main.attributes else []
    rows = [
        {**{item.name: item.attr for item in own}, **keys.LAYOUT.item(layout)}
        for own, layout in zip(held, layouts, strict=True)
    ]
    main.attributes[key] = ir.ArrayAttr.get([ir.DictAttr.get(row) for row in rows])


def part_of(value: Any, layout: Layout, mesh: Mesh, rank: int) -> Any:
    """Return what ``rank`` holds of an input or output.

    The parts of a partial sum are exact multiples 2, -1, 1, -1, ... of the value, in another order
    for each element, so that they add up without rounding but fool no operator that is not linear.
    """
    if not isinstance(value, np.ndarray) or layout.is_replicated:
        return value
    whole = MeshLayout(mesh, layout).for_shape(value.shape)
    part = whole.read_part(value, value.shape, rank) if value.ndim else value
    for axis, placement in enumerate(layout.placements):
        if placement.is_partial and placement.reduction == "sum":
            part = _share(part, mesh.shape[axis], mesh.coordinates(rank)[axis])
    return np.ascontiguousarray(part).reshape(part.shape)


def _share(part: Any, ranks: int, rank: int) -> Any:
    turn = (np.arange(part.size).reshape(part.shape) + rank) % ranks
    factors = np.array([2, *([-1, 1] * ranks)])[: ranks - ranks % 2][turn]
    if part.dtype.kind not in "fVi":
        factors = turn == 0
    with np.errstate(all="ignore"):
        doubled = part + part
        shared = (part * factors.astype(part.dtype)).astype(part.dtype)
        if part.dtype.kind == "i":
            return shared
        safe = np.isfinite(doubled.astype(np.float64))
    return np.where(safe, shared, np.where(turn == 0, part, np.zeros_like(part)))
