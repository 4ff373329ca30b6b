"""A rank's graph, read without running it: its collectives, its tensors and its files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tensoropt.runtime.support.collectives import ATTENTION_KERNELS, DOMAIN, JOINED, STARTS, WAITS
from tensoropt.runtime.support.dtypes import dtype_of, dtype_of_code, name_of
from tensoropt.runtime.support.errors import UserError, cause_of
from tensoropt.runtime.support.files import PROTOBUF_BYTES

if TYPE_CHECKING:
    import onnx

__all__ = ["Collective", "RankGraph", "Shape", "leads_out", "read_graph"]

_LOCAL = frozenset({"Barrier", *ATTENTION_KERNELS, *WAITS})
"""Operators of the same domain that only compute, or order work, within a rank."""
_TOKEN_FIRST = frozenset({*JOINED, *STARTS})

Shape = tuple[int | str, ...]
"""Sizes; a symbolic size is its name, or ? if it has none."""

Setting = int | float | str | tuple[int | float | str, ...]

_POINT_TO_POINT = ("Send", "Recv")


@dataclass(frozen=True)
class Collective:
    """A collective of a rank: ``group`` lists its ranks, in order.

    ``dtype`` and ``shape`` describe this rank's operand (of a Recv, its result). ``bytes`` is None
    if a size is symbolic. ``settings`` are the other attributes. For a fused collective, ``shape``
    is the shape of the first tensor, ``others`` are the shapes of the other tensors, and ``bytes``
    is the total.
    """

    kind: str
    node: str
    group: tuple[int, ...]
    dtype: str
    shape: Shape | None
    settings: tuple[tuple[str, Setting], ...]
    bytes: int | None
    others: tuple[Shape | None, ...] = ()

    @property
    def peer(self) -> int | None:
        """The other rank of a Send or Recv."""
        return self.group[0] if self.kind in _POINT_TO_POINT and self.group else None


@dataclass(frozen=True)
class RankGraph:
    """One graph of one rank: the ONNX model, without the bytes of its external data."""

    path: Path
    rank: int
    model: onnx.ModelProto

    @cached_property
    def types(self) -> dict[str, tuple[str, Shape | None]]:
        """The type and shape of every tensor for which the graph has them."""
        graph = self.model.graph
        values = (*graph.input, *graph.output, *graph.value_info)
        found: dict[str, tuple[str, Shape | None]] = {}
        for value in values:
            tensor_type, shape = value.type.tensor_type, None
            if tensor_type.HasField("shape"):
                dims = tensor_type.shape.dim
                shape = tuple(
                    dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?"
                    for dim in dims
                )
            found[value.name] = (_dtype(tensor_type.elem_type), shape)
        for tensor in graph.initializer:
            found[tensor.name] = (_dtype(tensor.data_type), tuple(tensor.dims))
        return found

    @cached_property
    def collectives(self) -> list[Collective]:
        """The collectives in program order."""
        return [self._collective(node) for node in self.model.graph.node if _is_collective(node)]

    @property
    def nested_collectives(self) -> list[str]:
        """The names of collectives inside the bodies of control flow, which are not allowed."""
        bodies = [_bodies(node) for node in self.model.graph.node]
        return [
            node.name
            for found in bodies
            for graph in found
            for node in graph.node
            if _is_collective(node)
        ]

    def external(self) -> Iterator[tuple[str, str, int, int | None]]:
        """Yield (tensor, location, offset, length) of each initializer with external data."""
        for tensor in self.model.graph.initializer:
            if len(tensor.external_data):
                entries = {entry.key: entry.value for entry in tensor.external_data}
                offset, length = _number(entries.get("offset")), _number(entries.get("length"))
                yield tensor.name, entries.get("location", ""), offset or 0, length

    def _collective(self, node: onnx.NodeProto) -> Collective:
        from onnx.helper import get_attribute_value

        own = {one.name: _plain(get_attribute_value(one)) for one in node.attribute}
        given = node.output[0] if node.op_type == "Recv" and node.output else None
        has_token = node.op_type in _TOKEN_FIRST
        names = [given] if given else [*node.input][has_token : None if has_token else 1]
        types = [self.types.get(name, ("?", None)) for name in names] or [("?", None)]
        (dtype, shape), others = types[0], tuple(shape for _, shape in types[1:])
        group = own.pop("group", ()) or own.pop("peer", ())
        listed = group if isinstance(group, tuple) else (group,)
        ranks = tuple(one for one in listed if isinstance(one, int))
        settings = tuple(sorted(own.items()))
        sizes = [_bytes(own_type, own_shape) for own_type, own_shape in types]
        size = None if None in sizes else sum(own for own in sizes if own is not None)
        return Collective(node.op_type, node.name, ranks, dtype, shape, settings, size, others)


def read_graph(path: Path, rank: int) -> RankGraph:
    """Return the graph in a file; raises `UserError` if ONNX cannot read it."""
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise UserError(f"{path.name}: expected a file, got: none")
    if path.stat().st_size >= PROTOBUF_BYTES:
        raise UserError(f"{path.name}: expected a graph of less than 2 GiB")
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except (DecodeError, ValueError, OSError) as error:
        raise UserError(f"{path.name}: is no ONNX graph: {cause_of(error)}") from None
    if not model.HasField("graph"):
        raise UserError(f"{path.name}: is no ONNX graph: it is empty")
    if not all(isinstance(text, str) for text in _texts(model.graph)):
        # protobuf does not check the encoding
        raise UserError(f"{path.name}: is no ONNX graph: a name is not UTF-8")
    found = RankGraph(path, rank, model)
    try:
        _ = found.types, found.collectives
    except (TypeError, ValueError) as error:  # attributes of invalid types
        raise UserError(f"{path.name}: is no ONNX graph: {cause_of(error)}") from None
    return found


def _texts(graph: onnx.GraphProto) -> Iterator[object]:
    """Yield all names in a graph that this module reads."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
        for body in _bodies(node):
            yield from (text for own in body.node for text in (own.name, own.op_type, own.domain))


def leads_out(folder: Path, name: str) -> bool:
    """Return whether the path of a file in a plan leads out of the folder of the plan."""
    relative = PurePosixPath(name)
    if not name or "\0" in name or relative.is_absolute() or ".." in relative.parts:
        return True
    return not (folder / name).resolve().is_relative_to(folder.resolve())


def _dtype(code: int) -> str:
    try:
        return name_of(dtype_of_code(code))
    except UserError:
        return f"ONNX type {code}"


def _bytes(dtype: str, shape: Shape | None) -> int | None:
    if shape is None or any(isinstance(size, str) for size in shape):
        return None
    try:
        return dtype_of(dtype).itemsize * math.prod(int(size) for size in shape)
    except UserError:
        return None


def _is_collective(node: onnx.NodeProto) -> bool:
    return node.domain == DOMAIN and node.op_type not in _LOCAL


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs inside a node, recursively."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
            for child in attribute.g.node:
                yield from _bodies(child)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _plain(value: object) -> Setting:
    """Return an attribute of a collective as a Python value, as text for any other type."""
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Iterable):
        return tuple(one if isinstance(one, (int, float)) else str(one) for one in value)
    return type(value).__name__
