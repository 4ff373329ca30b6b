"""Gradients of the weights of convolutions, found again in the products that a plan has of them.

A plan has standard operators: per element of the window a slice of the image, channels last, and a
product. Our kernel goes over image and gradient once (`ConvWeightGradient`, decision 58).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensoropt.runtime.session.types import FLOAT32, tensor_types

if TYPE_CHECKING:
    import onnx

__all__ = ["use_own_weight_gradients"]

_DIMS = 4
_PIXELS = 256
"""With fewer windows in all images products of matrices are as fast."""
_NARROW = 128
"""And with more channels of the image."""
_SWAPPED = [1, 0, 2, 3]
_CHANNELS_LAST = [0, 1, 3, 4, 2]

_Pair = tuple[int, int]


@dataclass(frozen=True)
class _Found:
    """A gradient of weights: of which image, from which gradient, and how the windows lie."""

    image: str
    dy: str
    strides: _Pair
    dilations: _Pair
    pads: _Pair


@dataclass(frozen=True)
class _Met:
    """What one element of all windows meets in an image with ``pads`` in front."""

    image: str
    pads: _Pair
    first: _Pair
    step: _Pair


def use_own_weight_gradients(model: onnx.ModelProto) -> bool:
    """Let gradients of weights be computed by our kernel, in place; say whether any is.

    Those of convolutions of one group, over two dimensions, in float32.
    """
    graph = _Graph(model.graph)
    found = {
        place: gradient
        for place, node in enumerate(graph.nodes)
        if (gradient := graph.gradient(node)) is not None
    }
    if not found:
        return False
    for place, gradient in found.items():
        node = graph.nodes[place]
        graph.nodes[place] = _own(node, gradient, graph.shape(node.output[0])[2:])
    kept = _without_dead(graph.nodes, model.graph)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    if all(one.domain != "tensoropt" for one in model.opset_import):
        model.opset_import.add(domain="tensoropt", version=1)
    return True


def _own(node: onnx.NodeProto, found: _Found, taps: Sequence[int]) -> onnx.NodeProto:
    from onnx import helper

    return helper.make_node(
        "ConvWeightGradient",
        [found.image, found.dy],
        node.output,
        name=node.name,
        domain="tensoropt",
        strides=found.strides,
        dilations=found.dilations,
        pads=found.pads,
        sizes=taps,
    )


def _without_dead(nodes: Sequence[onnx.NodeProto], graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes but those that gradients were made of and nothing reads any more."""
    needed, kept = {value.name for value in graph.output}, list[Any]()
    for node in reversed(nodes):
        if node.domain or node.op_type not in _PARTS or needed.intersection(node.output):
            kept.append(node)
            needed.update(_reads(node))
    return kept[::-1]


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, also inside its bodies."""
    yield from node.input
    for attribute in node.attribute:
        for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
            for inner in body.node:
                yield from _reads(inner)
            yield from (value.name for value in body.output)


class _Graph:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self.nodes = list(graph.node)
        self._types = tensor_types(graph)
        self._held = {tensor.name: tensor for tensor in graph.initializer}
        self._given = list(graph.node)
        self._places = {name: at for at, node in enumerate(self._given) for name in node.output}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor of float32; nothing of another one."""
        kind, shape = self._types.get(name, (0, ()))
        return shape if kind == FLOAT32 else ()

    def gradient(self, node: onnx.NodeProto) -> _Found | None:
        """Return what ``node`` gives the result of, None where that is no gradient of weights."""
        shape = self.shape(node.output[0]) if node.output else ()
        if node.domain or len(shape) != _DIMS:
            return None
        if node.op_type == "Transpose":
            found = self._by_convolution(node)
        else:
            found = self._by_products(node, shape) if node.op_type == "Reshape" else None
        if found is None or not self._pays(found, shape):
            return None
        (images, channels, *_), (count, outputs, *_) = self.shape(found.image), self.shape(found.dy)
        return found if (images, outputs, channels) == (count, *shape[:2]) else None

    def _pays(self, found: _Found, shape: Sequence[int]) -> bool:
        """Say whether our kernel is faster: one tap is a product by itself."""
        images, _, *counts = self.shape(found.dy)
        is_one_tap = math.prod(shape[2:]) == 1
        return not is_one_tap and shape[1] <= _NARROW and images * math.prod(counts) >= _PIXELS

    def _by_convolution(self, node: onnx.NodeProto) -> _Found | None:
        """Few channels: the image is the batch, the gradient the weights of a convolution."""
        conv = self._maker(node.input[0])
        if conv is None or conv.op_type != "Conv" or conv.domain or len(conv.input) != 2:
            return None
        image, dy = (self._maker(name) for name in conv.input)
        held = _attributes(conv)
        if held.get("group", 1) != 1 or held.get("auto_pad", b"NOTSET") != b"NOTSET":
            return None
        if not all(one is not None and _perm(one) == _SWAPPED for one in (node, image, dy)):
            return None
        assert image is not None and dy is not None
        strides, dilations, pads = (
            _pair(held, name) for name in ("dilations", "strides", "pads")
        )  # the steps of these windows are the gaps of those
        if len(self.shape(image.input[0])) != _DIMS or len(self.shape(dy.input[0])) != _DIMS:
            return None
        return _Found(image.input[0], dy.input[0], strides, dilations, pads)

    def _by_products(self, node: onnx.NodeProto, shape: Sequence[int]) -> _Found | None:
        """Many channels: a product for each element of the window."""
        parts = self._parts(node)
        down, across = shape[2:]
        if len(parts) != down * across:
            return None
        dys = {self._dy(part) for part in parts}
        met = [self._met(part.input[1]) if part is not None else None for part in parts]
        if len(dys) != 1 or None in dys or None in met:
            return None
        (dy,), first = dys, met[0]
        assert dy is not None and first is not None
        places = [one.first for one in met if one is not None]
        dilations = places[across][0] if down > 1 else 1, places[1][1] if across > 1 else 1
        taps = itertools.product(range(down), range(across))
        wanted = [(i * dilations[0], j * dilations[1]) for i, j in taps]
        alike = {(one.image, one.pads, one.step) for one in met if one is not None}
        if places != wanted or min(dilations) < 1 or len(alike) != 1:
            return None
        return _Found(first.image, dy, first.step, dilations, first.pads)

    def _parts(self, node: onnx.NodeProto) -> list[onnx.NodeProto | None]:
        """Return the products of which the gradient is made, element after element."""
        name = self._as_it_lies(node.input[0])
        last = self._maker(name)
        if last is not None and last.op_type == "Transpose":
            joined, perm = self._maker(last.input[0]), _perm(last)
            if joined is None or joined.op_type != "Concat" or _attributes(joined)["axis"] != 0:
                return []
            if perm != [*range(1, len(perm)), 0]:
                return []
            return [self._product(one) for one in joined.input]
        return [self._product(name)]

    def _product(self, name: str) -> onnx.NodeProto | None:
        """Return the product behind ``name``, summed over images unless it sums over them."""
        node, is_sum = self._maker(self._as_it_lies(name)), False
        if node is not None and node.op_type == "ReduceSum":
            if len(node.input) != 2 or self._integers(node.input[1]) != [0]:
                return None
            node, is_sum = self._maker(node.input[0]), True
        if node is None or node.op_type != "MatMul":
            return None
        rank = len(self.shape(node.output[0]))
        return node if rank == (_DIMS if is_sum else 2) else None

    def _dy(self, product: onnx.NodeProto | None) -> str | None:
        """Return the gradient that is the left operand, images first or channels first."""
        node = self._maker(product.input[0]) if product is not None else None
        if node is None or node.op_type != "Reshape":
            return None
        source, shape = self._maker(node.input[0]), self.shape(node.output[0])
        is_joint = len(shape) == 2
        name = node.input[0]
        if is_joint:
            if source is None or _perm(source) != _SWAPPED:
                return None
            name = source.input[0]
        held = self.shape(name)
        if len(held) != _DIMS:
            return None
        images, channels, windows = held[0], held[1], math.prod(held[2:])
        wanted = (channels, images * windows) if is_joint else (images, 1, channels, windows)
        return name if shape == wanted else None

    def _met(self, name: str) -> _Met | None:
        node = self._through(name, "Reshape")
        first, step, pads = [0, 0], [1, 1], (0, 0)
        if node is not None and node.op_type == "Slice":
            starts, _, axes, steps = (self._integers(one) for one in node.input[1:])
            for axis, start, stride in zip(axes, starts, steps, strict=True):
                if axis not in (2, 3) or start < 0 or stride < 1:
                    return None
                first[axis - 2], step[axis - 2] = start, stride
            node = self._maker(node.input[0])
        if node is not None and node.op_type == "Pad":
            counts = self._integers(node.input[1])
            if min(counts) < 0 or any(counts[i] for i in (0, 1, 4, 5, 6, 9)):
                return None
            pads = counts[2], counts[3]
            node = self._maker(node.input[0])
        if node is None or _perm(node) != _CHANNELS_LAST:
            return None
        inner = self._maker(node.input[0])
        if inner is None or inner.op_type != "Reshape":
            return None
        images, channels, *sizes = self.shape(inner.input[0]) or (0, 0)
        if self.shape(inner.output[0]) != (images, 1, channels, *sizes) or len(sizes) != 2:
            return None
        return _Met(inner.input[0], pads, (first[0], first[1]), (step[0], step[1]))

    def _maker(self, name: str) -> onnx.NodeProto | None:
        place = self._places.get(name)
        node = None if place is None else self._given[place]
        return None if node is None or node.domain else node

    def _through(self, name: str, kind: str) -> onnx.NodeProto | None:
        node = self._maker(name)
        while node is not None and node.op_type == kind:
            node = self._maker(node.input[0])
        return node

    def _as_it_lies(self, name: str) -> str:
        """Return the first value whose elements lie as those of ``name``."""
        while (node := self._maker(name)) is not None:
            shape = self.shape(node.input[0]) if node.input else ()
            moved = [at for at in _perm(node) or () if at < len(shape) and shape[at] > 1]
            keeps = bool(_perm(node)) and bool(shape) and moved == sorted(moved)
            if node.op_type != "Reshape" and not keeps:
                break
            name = node.input[0]
        return name

    def _integers(self, name: str) -> list[int]:
        """Return a constant vector; nothing for what is none."""
        from onnx import numpy_helper

        tensor = self._held.get(name)
        if tensor is None or tensor.external_data:
            return []
        return [int(one) for one in numpy_helper.to_array(tensor).reshape(-1)]


_PARTS = frozenset(
    {"Reshape", "Transpose", "Concat", "ReduceSum", "MatMul", "Slice", "Pad", "Conv"}
)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    from onnx import helper

    return {one.name: helper.get_attribute_value(one) for one in node.attribute}


def _pair(held: dict[str, Any], name: str) -> _Pair:
    """Return the first two numbers of an attribute of a convolution, in front of all others."""
    down, across, *_ = held.get(name) or ((0, 0) if name == "pads" else (1, 1))
    return down, across


def _perm(node: onnx.NodeProto) -> list[int]:
    """Return how a node transposes; nothing for what does not."""
    return list(_attributes(node).get("perm", [])) if node.op_type == "Transpose" else []
