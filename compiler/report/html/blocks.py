"""The graph of a report: layers folded into blocks, and the operations inside them.

Adjacent equal layers form one block, with the operations of the first layer. A layer of very many
operations is split into several blocks. Past a bound, operations are counted, not listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tensoropt.compiler.program.graph import Graph, Op
from tensoropt.compiler.report.explain.splits import Words
from tensoropt.compiler.report.explanation import Explanation, TimelineEntry
from tensoropt.compiler.report.html.layouts import Layouts
from tensoropt.compiler.report.html.strings import Strings, rounded
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.runtime.layout.layout import Layout
from tensoropt.runtime.layout.mesh import Mesh

__all__ = ["graph_data"]

_PIECE = 150  # operations of one drawing
_LISTED = 6000  # operations of a report
_STRIP = 48
_NAMES = 4

_Key = tuple[str, str, int]
"""Phase, layer, and the number of the piece of the layer."""


@dataclass
class _Block:
    """Operations (by node) of one piece of a layer, and the keys of the equal pieces after it."""

    key: _Key
    nodes: list[int]
    members: list[_Key] = field(default_factory=list)


def graph_data(explanation: Explanation, point: FrontierPoint, strings: Strings) -> dict[str, Any]:
    """Return the blocks of the plan that ``explanation`` explains; linear in the operations."""
    return _Drawer(explanation, point, strings).data()


class _Drawer:
    def __init__(self, explanation: Explanation, point: FrontierPoint, strings: Strings) -> None:
        self.explanation, self.point, self.strings = explanation, point, strings
        self.graph: Graph = point.tables.graph
        self.words = Words(self.graph, Mesh(point.mesh))
        self.layouts = Layouts(explanation.axes, explanation.mesh)
        self.entries = {e.name: e for e in explanation.timeline if e.kind == "op"}
        self.moves = _moves(explanation.timeline)
        self.kept = {m.name: m.static_bytes for own in explanation.layers for m in own.members}
        self.key: dict[int, _Key] = {}
        self.first: dict[str, _Key] = {}  # of each layer
        self.cut: set[tuple[str, str]] = set()  # layers of several pieces
        self.left = _LISTED

    def data(self) -> dict[str, Any]:
        """Return the data of the drawing."""
        blocks = self._blocks()
        place = {key: number for number, block in enumerate(blocks) for key in block.members}
        rows = [self._row(block, number, place) for number, block in enumerate(blocks)]
        layers = len({layer for _, layer, _ in place})
        about = f"{len(self.key):,} operations in {layers:,} layer{'' if layers == 1 else 's'}"
        folded = sum(len(block.members) for block in blocks) - len(blocks)
        if folded:
            about += f"; {folded:,} identical to the layer before are folded into it"
        return {"layouts": self.layouts.entries(), "blocks": rows, "about": about}

    def _blocks(self) -> list[_Block]:
        """Return the blocks of the operations that run, in program order."""
        pieces: dict[_Key, _Block] = {}
        sizes: dict[tuple[str, str], int] = {}
        for index, node in enumerate(self.graph.nodes):
            entry = self.entries.get(node.name) if isinstance(node, Op) else None
            if entry is None or node.constant:
                continue
            layer = (entry.phase, entry.layer)
            count = sizes[layer] = sizes.get(layer, -1) + 1
            key = self.key[index] = (*layer, count // _PIECE)
            self.first.setdefault(entry.layer, key)
            if count >= _PIECE:
                self.cut.add(layer)
            pieces.setdefault(key, _Block(key, [])).nodes.append(index)
        return list(self._folded(list(pieces.values())))

    def _folded(self, blocks: Sequence[_Block]) -> Iterator[_Block]:
        """Yield the first of each run of equal blocks, with the keys of the whole run."""
        titles = self.explanation.layer_titles()

        def key_of(block: _Block) -> tuple[str, str, int, tuple[str, ...]]:
            phase, layer, piece = block.key
            ops = tuple(self.entries[self.graph.nodes[i].name].op for i in block.nodes)
            return phase, titles.get(layer, layer), piece, ops

        for _, group in groupby(blocks, key=key_of):
            own = list(group)
            own[0].members = [block.key for block in own]
            yield own[0]

    def _row(self, block: _Block, number: int, place: Mapping[_Key, int]) -> dict[str, Any]:
        phase, layer, piece = block.key
        entries = [self.entries[self.graph.nodes[index].name] for index in block.nodes]
        moved_s = sum(move.time_s for index in block.nodes for move in self._moves_into(index))
        compute_s = sum(entry.time_s for entry in entries)
        strip = self._strip(block.nodes, entries)
        listed = block.nodes[: self.left]
        self.left -= len(listed)
        local = {index: at for at, index in enumerate(listed)}
        # The static memory of a layer counts in its first block.
        first = [key for key in block.members if self.first[key[1]] == key]
        made = {place[self.key[maker]] for index in block.nodes for maker in self._inputs(index)}
        return {
            "name": f"{layer}, part {piece + 1}" if (phase, layer) in self.cut else layer,
            "members": _join_names([key[1] for key in block.members]),
            "count": len(block.members),
            "phase": phase,
            "ops": len(block.nodes),
            "time_s": rounded(compute_s + moved_s),
            "communication_s": rounded(moved_s),
            "static_bytes": sum(self.kept.get(key[1], 0) for key in first),
            "strip": strip,
            "reads": sorted(made - {number}),
            "nodes": [self._node(index, local, number, place) for index in listed],
            "moves": [move for index in listed for move in self._move_rows(index, local)],
            "left_out": len(block.nodes) - len(listed),
        }

    def _strip(self, nodes: Sequence[int], entries: Sequence[TimelineEntry]) -> list[list[float]]:
        """Return (layout of the result, fraction of the time) of operations, equal runs joined."""
        weights = [entry.time_s for entry in entries]
        total = sum(weights) or 1.0
        runs: list[list[float]] = []
        for index, weight in zip(nodes, weights, strict=True):
            layout = self._layout(index, weight)
            if runs and (runs[-1][0] == layout or len(runs) >= _STRIP):
                runs[-1][1] += weight / total
            else:
                runs.append([layout, weight / total])
        return [[layout, round(part, 4)] for layout, part in runs]

    def _layout(self, index: int, weight: float = 0.0) -> int:
        results = self.point.strategies[index].results
        return self.layouts.number(results[0].texts if results else (), weight)

    def _inputs(self, index: int) -> list[int]:
        """Return the producers of a node's operands that run."""
        values = (v for v in self.graph.nodes[index].operands if v is not None)
        makers = (self.graph.values[value].producer for value in values)
        return [maker for maker in makers if maker in self.key]

    def _node(
        self, index: int, local: Mapping[int, int], number: int, place: Mapping[_Key, int]
    ) -> list[Any]:
        node = self.graph.nodes[index]
        entry, strings = self.entries[node.name], self.strings
        inputs = [
            local[maker] if maker in local else -1 - place[self.key[maker]]
            for maker in self._inputs(index)
        ]
        read = (value for value in node.operands if value is not None)
        weights = (self.graph.producer(v).name for v in read if v in self.graph.storage.weights)
        return [
            strings(node.name),
            strings(entry.op),
            self._layout(index),
            rounded(entry.time_s),
            strings(entry.text),
            strings(", ".join(weights)),
            strings(self._in_words(node.operands, self.point.strategies[index].operands)),
            inputs,
            strings(self._in_words(node.results, self.point.strategies[index].results)),
        ]

    def _in_words(self, values: Sequence[int | None], layouts: Sequence[Layout]) -> str:
        """Return the layouts of tensors in words."""
        pairs = zip(values, layouts, strict=False)
        return "; ".join(self.words.describe(v, layout) for v, layout in pairs if v is not None)

    def _moves_into(self, index: int) -> Iterable[TimelineEntry]:
        return self.moves.get(self.graph.nodes[index].name, ())

    def _move_rows(self, index: int, local: Mapping[int, int]) -> Iterator[list[Any]]:
        """Yield the reshards for a node: producer, reader, kinds, axes, bytes, time and cause."""
        makers = {self.graph.nodes[maker].name: maker for maker in self._inputs(index)}
        by_maker = groupby(self._moves_into(index), key=lambda entry: entry.name)
        for name, group in by_maker:
            steps = list(group)
            maker = makers.get(name)
            yield [
                -1 if maker is None else local.get(maker, -1),
                local[index],
                self.strings(" + ".join(step.op for step in steps)),
                self.strings(",".join(dict.fromkeys(a for step in steps for a in step.axes))),
                max(step.bytes for step in steps),
                rounded(sum(step.time_s for step in steps)),
                self.strings(steps[0].text),
            ]


def _moves(timeline: Iterable[TimelineEntry]) -> dict[str, list[TimelineEntry]]:
    """Return collectives and copies by the node that first reads their result."""
    found: dict[str, list[TimelineEntry]] = {}
    for entry in timeline:
        if entry.kind in ("collective", "copy"):
            found.setdefault(entry.reader, []).append(entry)
    return found


def _join_names(names: Sequence[str]) -> str:
    if len(names) <= _NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMES - 1])} to {names[-1]}"
