"""Cutting of a rank's graph at its collectives: graphs between them, and one for each collective.

Plans run like this in systems without collectives in graphs: a program runs the pieces in turn, and
passes values from one to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import helper

from gpu.blocking import make_blocking
from tensoropt.runtime.support.collectives import ALONE, DOMAIN, JOINED, PLAIN

__all__ = ["Piece", "cut"]

_TOKEN = "token of a piece"


@dataclass
class Piece:
    """A run of nodes of a graph, or a single ``collective``.

    ``reads`` and ``writes`` are the values that cross the piece's border. ``model`` is runnable; it
    refers to the external data of the whole graph.
    """

    nodes: list[onnx.NodeProto]
    collective: bool = False
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    model: onnx.ModelProto | None = None


def cut(whole: onnx.ModelProto) -> list[Piece]:
    """Return the pieces of a graph in the order of the file; linear in its nodes.

    Raises ValueError if a value that crosses a border has no type: ONNX graphs need types of inputs
    and outputs.
    """
    pieces = _pieces(whole.graph)
    held = {tensor.name for tensor in whole.graph.initializer} | {_TOKEN}
    _borders(pieces, held, [value.name for value in whole.graph.output])
    types = _types(whole.graph)
    for piece in pieces:
        piece.model = _model(whole, piece, types)
    return [piece for piece in pieces if piece.writes]


def _pieces(graph: onnx.GraphProto) -> list[Piece]:
    pieces = [Piece([])]
    for node in make_blocking(graph.node):
        if node.domain == DOMAIN and node.op_type in (*PLAIN, *ALONE, *JOINED):
            alone = onnx.NodeProto()
            alone.CopyFrom(node)
            # Pieces run in a fixed order, so any token does.
            if node.op_type in JOINED:  # their token comes first
                alone.input[0] = _TOKEN
            else:
                alone.input[1] = _TOKEN
                del alone.output[1:]
            pieces += [Piece([alone], collective=True), Piece([])]
        else:
            pieces[-1].nodes.append(node)
    return pieces


def _borders(pieces: Sequence[Piece], held: set[str], outputs: Sequence[str]) -> None:
    """Set the reads and writes of every piece; ``held`` values, as initializers, do not cross."""
    wanted = set(outputs)
    for piece in reversed(pieces):
        made = {name for node in piece.nodes for name in node.output if name}
        read = {name: None for node in piece.nodes for name in _names_read(node)}
        piece.reads = [name for name in read if name not in made and name not in held]
        piece.writes = sorted(made & wanted)
        wanted |= set(piece.reads)


def _names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, including outer values that its bodies read."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for body in [attribute.g, *attribute.graphs]:
            made = {name for inner in body.node for name in inner.output}
            made |= {value.name for value in body.input} | {t.name for t in body.initializer}
            inside = (name for inner in body.node for name in _names_read(inner))
            outside = (value.name for value in body.output)
            yield from (name for name in (*inside, *outside) if name not in made)


def _types(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    return {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}


def _model(
    whole: onnx.ModelProto, piece: Piece, types: dict[str, onnx.ValueInfoProto]
) -> onnx.ModelProto:
    unknown = [name for name in (*piece.reads, *piece.writes) if name not in types]
    if unknown:
        raise ValueError(f"value '{unknown[0]}' has no type, expected it in value_info")
    read = {name for node in piece.nodes for name in _names_read(node)}
    initializers = [tensor for tensor in whole.graph.initializer if tensor.name in read]
    if piece.collective:
        initializers.append(helper.make_tensor(_TOKEN, onnx.TensorProto.INT64, [1], [0]))
    reads, writes = ([types[name] for name in names] for names in (piece.reads, piece.writes))
    graph = helper.make_graph(piece.nodes, whole.graph.name, reads, writes, initializers)
    model = helper.make_model(graph, opset_imports=whole.opset_import)
    model.ir_version = whole.ir_version
    return model
