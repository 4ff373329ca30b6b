"""The original model with what a plan does to each node, as metadata that viewers show.

It is for reading alone; what other tools are to act on are ONNX's multi-device annotations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.layout.layout import REPLICATE, Layout
from tensoropt.compiler.layout.mesh import Mesh
from tensoropt.compiler.report.explain.splits import Words
from tensoropt.compiler.report.explanation import Explanation, TimelineEntry
from tensoropt.compiler.search.frontier.points import mesh_name
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import onnx

__all__ = ["check_netron_path", "write_netron"]

_PREFIX = "tensoropt."
_SINCE = 10  # the version of the IR in which nodes have metadata


def check_netron_path(path: Path, model: Path) -> None:
    """Raise :class:`UserError` unless ``path`` can be written and is not the model itself."""
    if path.suffix != ".onnx":
        raise UserError(f"--netron: expected a file ending in .onnx, got: '{path}'")
    if not path.parent.is_dir():
        raise UserError(f"--netron {path}: expected an existing folder, got: '{path.parent}'")
    if path.exists() and (path.is_dir() or (model.exists() and path.samefile(model))):
        what = "a folder" if path.is_dir() else "the model itself"
        raise UserError(f"--netron {path}: expected a file of its own, got: {what}")


def write_netron(
    explanation: Explanation, point: FrontierPoint, model: Path, path: Path
) -> tuple[int, int]:
    """Write the ONNX model in the file ``model`` to ``path`` with what ``explanation`` says.

    Large weights are not copied: they are read from ``model``, which has to lie beside ``path``.
    Returns how many nodes were found in the plan, of how many. Nodes of functions, and what the
    compiler folds, are not in it.
    """
    import onnx

    from tensoropt.compiler.importer.model_file import read_proto
    from tensoropt.compiler.support.files import replacing

    check_netron_path(path, model)
    proto = read_proto(model)
    _refer(proto, model, path)
    proto.ir_version = max(proto.ir_version, _SINCE)
    _say(proto, _of_plan(explanation))
    found = _annotate(proto, _Texts(explanation, point))
    with replacing(path) as aside:
        onnx.save(proto, aside)
    return found, len(proto.graph.node)


class _Texts:
    """What is said of the nodes and tensors of a plan, by name."""

    def __init__(self, explanation: Explanation, point: FrontierPoint) -> None:
        self.explanation = explanation
        self.graph, self.strategies = point.tables.graph, point.strategies
        self.words = Words(self.graph, Mesh(point.mesh))
        self.ops = {entry.name: entry for entry in explanation.timeline if entry.kind == "op"}
        self.moves: dict[str, list[TimelineEntry]] = {}
        for entry in explanation.timeline:
            if entry.kind in ("collective", "copy"):
                self.moves.setdefault(entry.reader, []).append(entry)
        self.nodes = {n.name: i for i, n in enumerate(self.graph.nodes) if n.kind == "op"}
        self.tensors = dict(self._stored_tensors())

    def node(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield what to say of the node called ``name``; nothing if the plan has none."""
        entry, index = self.ops.get(name), self.nodes.get(name)
        if entry is None or index is None:
            return
        strategy = self.strategies[index]
        yield "split", entry.text
        node = self.graph.nodes[index]
        yield "reads", self._lying(node.operands, strategy.operands)
        yield "leaves", self._lying(node.results, strategy.results)
        share = entry.time_s / self.explanation.time_s if self.explanation.time_s else 0.0
        yield "time", f"{format_seconds(entry.time_s)} ({share:.1%} of the step)"
        yield "result", f"{format_bytes(entry.bytes)} on each device"
        yield "layer", entry.layer
        for number, move in enumerate(self.moves.get(name, ())):
            over = f" over {','.join(move.axes)}" if move.axes else ""
            yield (
                f"before.{number}",
                f"{move.op} of {format_bytes(move.bytes)}{over}, {format_seconds(move.time_s)}: "
                f"{move.text}",
            )

    def _lying(self, values: Sequence[int | None], layouts: Sequence[Layout]) -> str:
        pairs = zip(values, layouts, strict=False)
        return "; ".join(self.words.lies(v, layout) for v, layout in pairs if v is not None)

    def tensor(self, name: str) -> Mapping[str, str]:
        """Return what to say of the input or weight called ``name``."""
        return {"lies": self.tensors[name]} if name in self.tensors else {}

    def _stored_tensors(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each input and weight, and how it lies: as its only use wants it."""
        for index, node in enumerate(self.graph.nodes):
            for value, layout in self._read(index):
                maker = self.graph.producer(value)
                if maker.kind == "argument" and maker.private:
                    yield maker.name, self._stored(value, layout)
            if node.kind == "argument" and index in self.strategies:
                yield node.name, self._stored(node.results[0], self.strategies[index].results[0])

    def _read(self, index: int) -> Iterator[tuple[int, Layout]]:
        if index in self.strategies:
            values, layouts = self.graph.nodes[index].operands, self.strategies[index].operands
            for value, layout in zip(values, layouts, strict=False):
                if value is not None:
                    yield value, layout

    def _stored(self, value: int, layout: Layout) -> str:
        """Return how what is read in ``layout`` is stored: never as a partial sum."""
        partial = [axis for axis, own in enumerate(layout.placements) if own.is_partial]
        return self.words.lies(value, layout.replace(partial, REPLICATE))


def _of_plan(explanation: Explanation) -> Mapping[str, str]:
    return {
        "plan": f"point {explanation.index} of {explanation.points} on "
        f"{explanation.devices} x {explanation.device}",
        "mesh": mesh_name(explanation.mesh),
        "time": format_seconds(explanation.time_s),
        "communication": format_seconds(explanation.communication_s),
        **({"hidden": format_seconds(explanation.hidden_s)} if explanation.hidden_s else {}),
        "memory": f"{format_bytes(explanation.process_bytes)} on each device",
    }


def _annotate(proto: onnx.ModelProto, texts: _Texts) -> int:
    """Say of nodes, inputs and weights what is known; return how many nodes there was one of."""
    import onnx

    from tensoropt.compiler.importer.model_file import normalise

    named = onnx.GraphProto()
    named.CopyFrom(proto.graph)
    normalise(named)
    found = 0
    for node, own in zip(proto.graph.node, named.node, strict=True):
        said = dict(texts.node(own.name))
        _say(node, said)
        found += bool(said)
    for value in proto.graph.input:
        _say(value, texts.tensor(value.name))
    for tensor in proto.graph.initializer:
        _say(tensor, texts.tensor(tensor.name))
    return found


def _say(
    what: onnx.ModelProto | onnx.NodeProto | onnx.ValueInfoProto | onnx.TensorProto,
    texts: Mapping[str, str],
) -> None:
    """Put ``texts`` in place of what an earlier plan said."""
    others = [entry for entry in what.metadata_props if not entry.key.startswith(_PREFIX)]
    kept = [(entry.key, entry.value) for entry in others]
    del what.metadata_props[:]
    for key, value in (*kept, *((_PREFIX + key, value) for key, value in texts.items())):
        if value:
            what.metadata_props.add(key=key, value=value)


def _refer(proto: onnx.ModelProto, model: Path, path: Path) -> None:
    """Have weights that stay in the model's file, or beside it, be found from ``path``.

    What lies in another folder is found by no reader.
    """
    from tensoropt.compiler.importer.wire import INLINE_KEY

    for tensor in _outside(proto):
        if model.resolve().parent != path.resolve().parent:
            raise UserError(
                f"--netron {path}: large weights are read from where they are, "
                f"expected a name in {model.resolve().parent}"
            )
        entries = {e.key: e.value for e in tensor.external_data if e.key != INLINE_KEY}
        entries["location"] = entries["location"] or model.resolve().name
        del tensor.external_data[:]
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)


def _outside(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors whose bytes lie elsewhere."""
    from onnx.external_data_helper import uses_external_data

    nodes = [node for function in proto.functions for node in function.node]
    yield from filter(uses_external_data, _tensors(proto.graph, nodes))


def _tensors(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto] = ()
) -> Iterator[onnx.TensorProto]:
    """Yield the tensors of a graph and of ``nodes``, and what their attributes hold."""
    yield from graph.initializer
    for attribute in (a for node in (*graph.node, *nodes) for a in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)
