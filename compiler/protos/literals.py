"""Selection of the tensors that are stored in the module: those that determine how an op works."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import onnx

from tensoropt.dialects.elements import element_of

__all__ = ["LITERAL_ELEMENTS", "is_literal", "settings"]

LITERAL_ELEMENTS = 1024
"""Largest number of elements of a literal."""

# Operands that are floats but configure the operator, by operator.
_SETTINGS = {"OneHot": (2,), "Resize": (1, 2), "Upsample": (1,)}


def is_literal(tensor: onnx.TensorProto, *, setting: bool) -> bool:
    """Return whether a tensor is stored in the module: integers, single numbers and settings."""
    element = element_of(tensor.data_type)
    if element is None or element.is_complex:
        return False
    elements = math.prod(tensor.dims)
    return elements == 1 or ((element.is_integer or setting) and elements <= LITERAL_ELEMENTS)


def settings(graph: onnx.GraphProto) -> set[str]:
    """Return the names that nodes of ``graph`` read only as settings, such as scales."""
    uses = Counter(name for read in _reads(graph) for name in read)
    setting_uses = Counter(
        node.input[i]
        for node in graph.node
        for i in _SETTINGS.get(node.op_type, ())
        if not node.domain and i < len(node.input) and node.input[i]
    )
    outputs = {value.name for value in graph.output}
    return {n for n, count in setting_uses.items() if count == uses[n] and n not in outputs}


def _reads(graph: onnx.GraphProto) -> Iterator[list[str]]:
    """Yield the operands of the nodes of ``graph`` and of the graphs inside it."""
    for node in graph.node:
        yield list(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _reads(attribute.g)
                yield [value.name for value in attribute.g.output]
