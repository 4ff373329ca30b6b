"""Reordering of the nodes of a serialized ONNX model, without the package onnx.

That package would take 6 MiB of each rank's memory. A protobuf message is a sequence of fields,
each a number and its bytes; see protobuf.dev/programming-guides/encoding. Everything except the
nodes is copied unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap

__all__ = ["Node", "nodes_of", "with_nodes"]

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
# Fields of ONNX's messages (onnx.proto).
_GRAPH, _NODE, _OUTPUT = 7, 1, 12  # of a model; of a graph
_READS, _MAKES, _NAME, _OPERATOR, _ATTRIBUTE = 1, 2, 3, 4, 5  # of a node
_BODIES = 6, 11  # of an attribute
_VALUE_NAME = 1


@dataclass(frozen=True)
class Node:
    """A node: its name, the names it reads (including its bodies) and makes, and its message.

    An operator without its domain. Names that it reads are empty for omitted operands.
    """

    name: str
    reads: Sequence[str]
    makes: Sequence[str]
    message: bytes
    operator: str = ""


def nodes_of(model: bytes | mmap) -> list[Node]:
    """Return the nodes of the main graph of a serialized model. Linear in its bytes."""
    fields = _fields(memoryview(model))
    graph = next((value for number, value, _ in fields if number == _GRAPH), b"")
    return [_node(value) for number, value, _ in _fields(memoryview(graph)) if number == _NODE]


def with_nodes(model: bytes, nodes: Sequence[Node]) -> bytes:
    """Return a serialized model with these nodes in its main graph. Linear in its bytes."""

    def graph(given: memoryview) -> bytes:
        kept = [bytes(whole) for number, _, whole in _fields(given) if number != _NODE]
        return b"".join([*(_field(_NODE, node.message) for node in nodes), *kept])

    return _replace(memoryview(model), _GRAPH, graph)


def _replace(message: memoryview, wanted: int, change: Callable[[memoryview], bytes]) -> bytes:
    parts = [
        _field(number, change(value)) if number == wanted else bytes(whole)
        for number, value, whole in _fields(message)
    ]
    return b"".join(parts)


def _node(message: memoryview) -> Node:
    fields = [(number, value) for number, value, _ in _fields(message)]
    reads, makes = (_texts(message, number) for number in (_READS, _MAKES))
    attributes = [value for number, value in fields if number == _ATTRIBUTE]
    inner = [text for attribute in attributes for text in _inner_reads(attribute)]
    name, operator = ("".join(_texts(message, number)) for number in (_NAME, _OPERATOR))
    return Node(name, [*reads, *inner], makes, bytes(message), operator)


def _inner_reads(attribute: memoryview) -> Iterator[str]:
    """Yield the names that the bodies of an attribute read and return."""
    for number, body, _ in _fields(attribute):
        for inner, value, _ in _fields(body) if number in _BODIES else ():
            if inner == _NODE:
                yield from _node(value).reads
            elif inner == _OUTPUT:
                yield from _texts(value, _VALUE_NAME)


def _texts(message: memoryview, wanted: int) -> list[str]:
    return [str(value, "utf-8") for number, value, _ in _fields(message) if number == wanted]


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Yield the number of each field, the bytes of its value, and all of its bytes."""
    at = 0
    while at < len(message):
        start = at
        key, at = _number(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, (_, at) = at, _number(message, at)
        elif kind == _BYTES:
            size, value = _number(message, at)
            at = value + size
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            value, at = at, at + (8 if kind == _EIGHT_BYTES else 4)
        else:
            raise ValueError(f"a field of protobuf, expected kind 0, 1, 2 or 5, got: {kind}")
        yield key >> 3, message[value:at], message[start:at]


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """Return a varint (seven bits per byte) and the index after it."""
    found = shift = 0
    while True:
        byte = message[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
