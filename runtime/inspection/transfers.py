"""Validation of collectives that a graph starts: each has one wait, and no earlier readers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tensoropt.runtime.support.collectives import DOMAIN, STARTS, WAITS, reads_later

if TYPE_CHECKING:
    import onnx

__all__ = ["bad_transfers"]

Readers = Mapping[str, Sequence["onnx.NodeProto"]]


def bad_transfers(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the problems of the starts and waits of a rank's graph. Linear in its nodes.

    The results of a start are read only by its wait. The wait takes all of them, in order, and
    then the operands that the transfer still reads.
    """
    readers, outputs = _readers(graph), {value.name for value in graph.output}
    awaited: set[str] = set()
    for node in graph.node:
        if node.domain == DOMAIN and node.op_type in STARTS:
            yield from _bad_start(node, readers, outputs)
            awaited.update(_results(node))
    for node in graph.node:
        if node.domain == DOMAIN and node.op_type in WAITS:
            handle = node.input[0] if node.input else ""
            if handle not in awaited:
                start = WAITS[node.op_type]
                where = f"{node.op_type} '{node.name}'"
                yield f"{where}: expected the handle of a node {start}, got: {handle or 'none'}"


def _readers(graph: onnx.GraphProto) -> Readers:
    found: defaultdict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in dict.fromkeys(_read(node)):
            found[name].append(node)
    return found


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, in its bodies too."""
    yield from node.input
    for attribute in node.attribute:
        for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
            for inner in body.node:
                yield from _read(inner)
            yield from (value.name for value in body.output)


def _results(start: onnx.NodeProto) -> list[str]:
    """Return the results of a start without its token: the handle and all y."""
    return list(start.output[1:])


def _bad_start(node: onnx.NodeProto, readers: Readers, outputs: set[str]) -> Iterator[str]:
    where = f"{node.op_type} '{node.name}'"
    given = _results(node)
    if len(given) != len(node.input) or len(given) < 2 or not all(given):
        yield f"{where}: expected a token, a handle and a result for each operand"
        return
    waits = list({id(one): one for name in given for one in readers.get(name, ())}.values())
    strangers = [one for one in waits if WAITS.get(one.op_type) != node.op_type]
    if strangers:
        yield f"{where}: its results are read by '{strangers[0].name}', expected its wait alone"
    elif outputs.intersection(given):
        yield f"{where}: its results are results of the graph, expected its wait to read them"
    elif len(waits) != 1:
        yield f"{where}: expected one wait for it, got: {len(waits)}"
    else:
        yield from _bad_wait(node, waits[0])


def _bad_wait(start: onnx.NodeProto, wait: onnx.NodeProto) -> Iterator[str]:
    operands = start.input[1:] if reads_later(start.op_type) else []
    expected = [*_results(start), *operands]
    where = f"{wait.op_type} '{wait.name}'"
    if list(wait.input) != expected:
        listed = ", ".join(wait.input)
        yield f"{where}: expected the inputs {', '.join(expected)}, got: {listed or 'none'}"
    elif len(wait.output) != len(start.output) - 2:
        yield f"{where}: expected {len(start.output) - 2} results, got: {len(wait.output)}"
