"""Checks of a graph before import; each error is one line that names the node."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import onnx

from tensoropt.compiler.protos.attribute_checks import (
    KINDS,
    Uses,
    kind_problem,
    value_problem,
)
from tensoropt.compiler.support.errors import UserError, did_you_mean
from tensoropt.dialects.elements import ELEMENTS, element_of
from tensoropt.dialects.onnx import known_domains, known_ops, schema

__all__ = ["check_graph", "node_error", "node_problem"]

Attribute = onnx.AttributeProto
_SPARSE = (Attribute.SPARSE_TENSOR, Attribute.SPARSE_TENSORS)
_CONSTANTS = {
    "value": Attribute.TENSOR,
    "value_float": Attribute.FLOAT,
    "value_floats": Attribute.FLOATS,
    "value_int": Attribute.INT,
    "value_ints": Attribute.INTS,
    "value_string": Attribute.STRING,
    "value_strings": Attribute.STRINGS,
}
"""The attributes of Constant, with their types; it has exactly one."""

_PLAIN = (Attribute.FLOAT, Attribute.INT, Attribute.STRING, Attribute.FLOATS, Attribute.INTS)
_RULES = ", expected sharding rules for it: --rules FILE.toml"
"""The remedy for operators that neither ONNX nor ONNX Runtime has."""

_UNSUPPORTED = {Attribute.GRAPHS: "several graphs", Attribute.UNDEFINED: "no type"}


def node_error(path: Path, node: onnx.NodeProto, text: str) -> UserError:
    """Return the error ``text`` about ``node``."""
    return UserError(f"{path}: {node_problem(node, text)}")


def node_problem(node: onnx.NodeProto, text: str) -> str:
    """Return ``text`` with the name of ``node``, but without the file."""
    return f"node '{node.name}' ({node.op_type}): {text}"


def check_graph(path: Path, proto: onnx.ModelProto) -> None:
    """Check the graph of ``proto`` and sort its nodes so that values precede their uses."""
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    _Checker(path, versions).graph(proto.graph, frozenset())


class _Checker:
    def __init__(self, path: Path, versions: dict[str, int]) -> None:
        self.path = path
        self.versions = {("" if d == "ai.onnx" else d): v for d, v in versions.items()}

    def fail(self, text: str) -> NoReturn:
        raise UserError(f"{self.path}: {text}")

    def graph(self, graph: onnx.GraphProto, outer: frozenset[str]) -> None:
        """Check one graph; its nodes may use the names in ``outer``."""
        stored = self._unique("initializer", (t.name for t in graph.initializer))
        inputs = self._unique("input", (value.name for value in graph.input))
        for tensor in graph.initializer:
            self._element(f"initializer '{tensor.name}'", tensor.data_type)
            if any(size < 0 for size in tensor.dims):
                shape = "x".join(map(str, tensor.dims))
                self.fail(f"initializer '{tensor.name}' has a negative size, got: {shape}")
        for what, values in (("input", graph.input), ("output", graph.output)):
            for value in values:
                if value.type.tensor_type.elem_type:  # a missing type is inferred later
                    self._element(f"{what} '{value.name}'", value.type.tensor_type.elem_type)
        if not outer:
            for value in graph.input:
                self._value(value)
            self._unique("output", (value.name for value in graph.output))
        self._nodes(graph, frozenset(stored | inputs), outer)

    def _nodes(self, graph: onnx.GraphProto, given: frozenset[str], outer: frozenset[str]) -> None:
        produced = self._producers(graph, given)
        for node in graph.node:
            self._operator(node)
            self._attributes(node)
        visible = outer | given | produced.keys()
        for node in graph.node:
            for name in node.input:
                if name and name not in visible:
                    near = did_you_mean(name, visible)
                    raise self._error(node, f"input '{name}' is not defined{near}")
        self._sort(graph)
        for value in graph.output:
            if value.name not in visible:
                near = did_you_mean(value.name, visible)
                self.fail(f"output '{value.name}' is not computed by any node{near}")
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    self.graph(attribute.g, visible)

    def _unique(self, what: str, names: Iterable[str]) -> set[str]:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                self.fail(f"{what} '{name}' is defined twice, expected unique names")
            seen.add(name)
        return seen

    def _producers(
        self, graph: onnx.GraphProto, given: frozenset[str]
    ) -> dict[str, onnx.NodeProto]:
        """Return the node that computes each value."""
        produced: dict[str, onnx.NodeProto] = {}
        for node in graph.node:
            for name in filter(None, node.output):
                if name in produced or name in given:
                    raise self._error(node, f"output '{name}' is defined twice")
                produced[name] = node
        return produced

    def _error(self, node: onnx.NodeProto, text: str) -> UserError:
        return node_error(self.path, node, text)

    def _value(self, value: onnx.ValueInfoProto) -> None:
        """Check that an input of the model has an element type and a shape."""
        kind = value.type.WhichOneof("value")
        if kind is None:
            self.fail(f"input '{value.name}' has no type, expected a tensor type with a shape")
        if kind in ("sparse_tensor_type", "map_type", "opaque_type"):
            self.fail(f"input '{value.name}' is not a tensor, expected a tensor, got: {kind}")
        if kind != "tensor_type":
            return
        self._element(f"input '{value.name}'", value.type.tensor_type.elem_type)
        if not value.type.tensor_type.HasField("shape"):
            self.fail(f"input '{value.name}' has no shape, expected sizes or symbolic dimensions")

    def _element(self, what: str, number: int) -> None:
        if element_of(number) is None:
            last = ELEMENTS[-1].number
            self.fail(f"{what} has an unknown element type, expected 1 to {last}, got: {number}")

    def _operator(self, node: onnx.NodeProto) -> None:
        """Check that the operator exists in the imported version of its domain."""
        version = self.versions.get(node.domain)
        if version is not None and schema(node.domain, node.op_type, version) is not None:
            if node.op_type == "ZipMap":
                raise self._error(
                    node,
                    "returns a sequence of maps, expected tensors: export with zipmap=False "
                    "(options={'zipmap': False} of skl2onnx)",
                )
            return
        ops, domain = known_ops(node.domain), node.domain or "ai.onnx"
        if node.domain not in known_domains():
            near = did_you_mean(node.domain, known_domains() - {""})
            problem = f"unknown domain '{node.domain}'{near or _RULES}"
        elif version is None:
            problem = f"domain '{node.domain}' is not in opset_import"
        elif node.op_type in ops:
            problem = f"operator is not in version {version} of domain '{domain}'"
        else:
            near = did_you_mean(node.op_type, ops)
            problem = f"unknown operator in domain '{domain}'{near or _RULES}"
        raise self._error(node, problem)

    def _attributes(self, node: onnx.NodeProto) -> None:
        for attribute in node.attribute:
            if attribute.type in _SPARSE:
                raise self._error(
                    node, f"attribute '{attribute.name}' is sparse, expected dense tensors"
                )
            if attribute.type in _UNSUPPORTED:
                what = _UNSUPPORTED[attribute.type]
                raise self._error(
                    node, f"attribute '{attribute.name}' contains {what}, expected one value"
                )
            if attribute.type == Attribute.TENSOR:
                self._element(f"node '{node.name}' ({node.op_type})", attribute.t.data_type)
        if node.op_type == "Constant" and not node.domain:
            self._constant(node)
        self._schema(node)

    def _constant(self, node: onnx.NodeProto) -> None:
        """Check the properties of a Constant that are read before the standard's own checks run."""
        for what, count in (("attribute", len(node.attribute)), ("result", len(node.output))):
            if count != 1:
                raise self._error(node, f"expected exactly one {what}, got: {count}")
        attribute = node.attribute[0]
        if _CONSTANTS.get(attribute.name) != attribute.type:
            kind = Attribute.AttributeType.Name(attribute.type)
            raise self._error(
                node,
                f"attribute '{attribute.name}' of type {kind} is not an attribute of Constant, "
                f"expected one of: {', '.join(_CONSTANTS)}",
            )

    def _schema(self, node: onnx.NodeProto) -> None:
        """Check the attributes against the schema, except for checks that need ranks."""
        found = schema(node.domain, node.op_type, self.versions[node.domain])
        assert found is not None, "checked by _operator"
        problem = kind_problem(
            found, {attribute.name: _kind(attribute) for attribute in node.attribute}
        )
        if problem is None:
            problem = value_problem(_without_ranks(node))
        if problem is not None:
            raise self._error(node, problem)

    def _sort(self, graph: onnx.GraphProto) -> None:
        """Sort the nodes topologically, unless they are already in order."""
        position = {name: i for i, node in enumerate(graph.node) for name in node.output}
        needs = {
            i: [position[name] for name in _used_names(node) if name in position]
            for i, node in enumerate(graph.node)
        }
        if all(before < i for i, befores in needs.items() for before in befores):
            return
        try:
            order = list(graphlib.TopologicalSorter(needs).static_order())
        except graphlib.CycleError as error:
            nodes = [graph.node[i] for i in error.args[1]]
            names = " -> ".join(f"'{node.name}'" for node in nodes)
            raise self._error(nodes[0], f"is part of a cycle: {names}") from None
        copies = [onnx.NodeProto.FromString(graph.node[i].SerializeToString()) for i in order]
        del graph.node[:]
        graph.node.extend(copies)


_LISTS = ("floats", "ints", "strings", "tensors", "type_protos")


def _kind(attribute: onnx.AttributeProto) -> str:
    name = KINDS.get(attribute.type, "UNDEFINED")
    return "EMPTY" if name.lower() in _LISTS and not len(getattr(attribute, name.lower())) else name


def _without_ranks(node: onnx.NodeProto) -> Uses:
    """Return the numeric and text attributes of a node, with unknown operand ranks."""
    plain = (attribute for attribute in node.attribute if attribute.type in _PLAIN)
    values = {attribute.name: _value(attribute) for attribute in plain}
    op_type = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return Uses(op_type, values, [None] * len(node.input), len(node.output))


def _value(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _used_names(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node uses, including those captured by its subgraphs."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from _captured_names(attribute.g)


def _captured_names(graph: onnx.GraphProto) -> Iterator[str]:
    own = {value.name for value in graph.input} | {t.name for t in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    for node in graph.node:
        yield from (name for name in _used_names(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)
