"""Copy of the model with the plan of each node as metadata, which viewers such as Netron show.

The metadata are for people. For other tools there are ONNX's multi-device annotations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.compiler.program.graph import Argument, Op
from tensoropt.compiler.report.explain.splits import Words
from tensoropt.compiler.report.explanation import Explanation, TimelineEntry
from tensoropt.compiler.search.frontier.points import mesh_name
from tensoropt.compiler.search.frontier.search import FrontierPoint
from tensoropt.compiler.support.errors import UserError
from tensoropt.compiler.support.units import format_bytes, format_seconds
from tensoropt.runtime.layout.layout import REPLICATE, Layout
from tensoropt.runtime.layout.mesh import Mesh

if TYPE_CHECKING:
    import onnx

__all__ = ["check_netron_path", "write_netron"]

_PREFIX = "tensoropt."
_SINCE = 10  # the first IR version that has metadata on nodes


def check_netron_path(path: Path, model: Path) -> None:
    """Raise :class:`UserError` unless ``path`` can be written and is not the model itself."""
    if path.suffix != ".onnx":
        raise UserError(f"--netron: expected a file ending in .onnx, got: '{path}'")
    if not path.parent.is_dir():
        raise UserError(f"--netron {path}: expected an existing folder, got: '{path.parent}'")
    if path.exists() and (path.is_dir() or (model.exists() and path.samefile(model))):
        got = "a folder" if path.is_dir() else "the model itself"
        raise UserError(f"--netron {path}: expected a file of its own, got: {got}")


def write_netron(
    explanation: Explanation, point: FrontierPoint, model: Path, path: Path
) -> tuple[int, int]:
    """Write the ONNX model in the file ``model`` to ``path``, with ``explanation`` as metadata.

    Large weights are not copied: readers find them through ``model``, which must be in the folder
    of ``path``. Returns the number of nodes that the plan has, and of all nodes. The plan lacks the
    nodes of functions, and nodes that the compiler folds.
    """
    import onnx

    from tensoropt.compiler.importer.model_file import read_proto
    from tensoropt.compiler.support.files import replacing

    check_netron_path(path, model)
    proto = read_proto(model)
    _refer(proto, model, path)
    proto.ir_version = max(proto.ir_version, _SINCE)
    _set_metadata(proto, _of_plan(explanation))
    found = _annotate(proto, _Texts(explanation, point))
    with replacing(path) as aside:
        onnx.save(proto, aside)
    return found, len(proto.graph.node)


class _Texts:
    """Metadata of the nodes and tensors of a plan, by name."""

    def __init__(self, explanation: Explanation, point: FrontierPoint) -> None:
        self.explanation = explanation
        self.graph, self.strategies = point.tables.graph, point.strategies
        self.words = Words(self.graph, Mesh(point.mesh))
        self.ops = {entry.name: entry for entry in explanation.timeline if entry.kind == "op"}
        self.moves: dict[str, list[TimelineEntry]] = {}
        for entry in explanation.timeline:
            if entry.kind in ("collective", "copy"):
                self.moves.setdefault(entry.reader, []).append(entry)
        self.nodes = {n.name: i for i, n in enumerate(self.graph.nodes) if isinstance(n, Op)}
        self.tensors = dict(self._stored_tensors())

    def node(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the metadata of the node called ``name``; nothing if the plan has no such node."""
        entry, index = self.ops.get(name), self.nodes.get(name)
        if entry is None or index is None:
            return
        strategy = self.strategies[index]
        yield "split", entry.text
        node = self.graph.nodes[index]
        yield "reads", self._in_words(node.operands, strategy.operands)
        yield "leaves", self._in_words(node.results, strategy.results)
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

    def _in_words(self, values: Sequence[int | None], layouts: Sequence[Layout]) -> str:
        pairs = zip(values, layouts, strict=False)
        return "; ".join(self.words.describe(v, layout) for v, layout in pairs if v is not None)

    def tensor(self, name: str) -> Mapping[str, str]:
        """Return the metadata of the input or weight called ``name``."""
        return {"lies": self.tensors[name]} if name in self.tensors else {}

    def _stored_tensors(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the layout of each input and weight.

        A private parameter has the layout in which its only use reads it.
        """
        for index, node in enumerate(self.graph.nodes):
            strategy = self.strategies.get(index)
            if strategy is None:
                continue
            for value, layout in zip(node.operands, strategy.operands, strict=False):
                if value in self.graph.storage.private:
                    yield self.graph.producer(value).name, self._stored(value, layout)
            if isinstance(node, Argument):
                yield node.name, self._stored(node.results[0], strategy.results[0])

    def _stored(self, value: int, layout: Layout) -> str:
        """Return the stored layout of a value that is read in ``layout``: nothing is partial."""
        partial = [axis for axis, own in enumerate(layout.placements) if own.is_partial]
        return self.words.describe(value, layout.replace(partial, REPLICATE))


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
    """Set the metadata of nodes, inputs and weights; return the number of nodes that have some."""
    import onnx

    from tensoropt.compiler.importer.model_file import normalise

    named = onnx.GraphProto()
    named.CopyFrom(proto.graph)
    normalise(named)
    found = 0
    for node, own in zip(proto.graph.node, named.node, strict=True):
        metadata = dict(texts.node(own.name))
        _set_metadata(node, metadata)
        found += bool(metadata)
    for value in proto.graph.input:
        _set_metadata(value, texts.tensor(value.name))
    for tensor in proto.graph.initializer:
        _set_metadata(tensor, texts.tensor(tensor.name))
    return found


def _set_metadata(
    proto: onnx.ModelProto | onnx.NodeProto | onnx.ValueInfoProto | onnx.TensorProto,
    texts: Mapping[str, str],
) -> None:
    """Replace the metadata of an earlier plan by ``texts``."""
    others = [entry for entry in proto.metadata_props if not entry.key.startswith(_PREFIX)]
    kept = [(entry.key, entry.value) for entry in others]
    del proto.metadata_props[:]
    for key, value in (*kept, *((_PREFIX + key, value) for key, value in texts.items())):
        if value:
            proto.metadata_props.add(key=key, value=value)


def _refer(proto: onnx.ModelProto, model: Path, path: Path) -> None:
    """Point the weights that stay in the model's file, or next to it, to their place from ``path``.

    Readers of ONNX refuse external data in another folder.
    """
    from onnx.external_data_helper import uses_external_data

    from tensoropt.compiler.importer.wire import INLINE_KEY

    nodes = [node for function in proto.functions for node in function.node]
    for tensor in filter(uses_external_data, _tensors(proto.graph, nodes)):
        if model.resolve().parent != path.resolve().parent:
            raise UserError(
                f"--netron {path}: large weights stay in the folder of the model, "
                f"expected a file in {model.resolve().parent}"
            )
        entries = {e.key: e.value for e in tensor.external_data if e.key != INLINE_KEY}
        entries["location"] = entries["location"] or model.resolve().name
        del tensor.external_data[:]
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)


def _tensors(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto] = ()
) -> Iterator[onnx.TensorProto]:
    """Yield the initializers of a graph, and the tensors in attributes of it and of ``nodes``."""
    yield from graph.initializer
    for attribute in (a for node in (*graph.node, *nodes) for a in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)
