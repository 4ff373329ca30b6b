"""Gradients of the weights of convolutions, found again in the products that a plan has of them.

A plan has standard operators: per element of the window the image, channels last, shifted to where
that lies, and a product. Our kernel goes over image and gradient once (`ConvWeightGradient`,
decision 58).
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
_STACK = 3
_PIXELS = 256
"""With fewer windows in all images products of matrices are as fast."""
_NARROW = 128
"""And with more channels of the image."""
_SWAPPED = [1, 0, 2, 3]
_CHANNELS_LAST = [0, 2, 3, 1]
_SPACE = (1, 2)
"""Height and width of what has its channels last."""

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
    """What one element of all windows meets in an image: the places of the first, and how far
    others lie apart. Before the image and behind it are zeros."""

    image: str
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
        top, left = places[0]
        dilations = (
            places[across][0] - top if down > 1 else 1,
            places[1][1] - left if across > 1 else 1,
        )
        taps = itertools.product(range(down), range(across))
        wanted = [(top + i * dilations[0], left + j * dilations[1]) for i, j in taps]
        alike = {(one.image, one.step) for one in met if one is not None}
        if places != wanted or min(dilations) < 1 or len(alike) != 1 or max(top, left) > 0:
            return None
        return _Found(first.image, dy, first.step, dilations, (-top, -left))

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
            node, is_sum = self._maker(self._as_it_lies(node.input[0])), True
        if node is None or not self._multiplies(node):
            return None
        rank = len(self.shape(node.output[0]))
        return node if rank == 2 or (is_sum and rank == _STACK) else None

    def _multiplies(self, node: onnx.NodeProto) -> bool:
        """Say whether ``node`` is a product of matrices as they lie."""
        if node.op_type == "Gemm":
            kept = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}
            given = {name: value for name, value in _attributes(node).items() if name in kept}
            return len(node.input) == 2 and {**kept, **given} == kept
        return node.op_type == "MatMul"

    def _dy(self, product: onnx.NodeProto | None) -> str | None:
        """Return the gradient that is the left operand, images first or channels first."""
        node = self._maker(product.input[0]) if product is not None else None
        if node is None or node.op_type != "Reshape":
            return None
        name, shape = node.input[0], self.shape(node.output[0])
        source = self._maker(name)
        if len(shape) == 2 and source is not None and _perm(source) == _SWAPPED:
            name = source.input[0]
            images, channels, *counts = self.shape(name) or (0, 0)
            wanted = channels, images * math.prod(counts)
        else:
            images, channels, *counts = self.shape(name) or (0, 0)
            stack = (images,) if images > 1 else ()
            wanted = *stack, channels, math.prod(counts)
        return name if len(counts) == 2 and shape == wanted else None

    def _met(self, name: str) -> _Met | None:
        """Return where the elements lie of which ``name`` is made by slices and padding."""
        node, first, step, padded = self._through(name, "Reshape"), [0, 0], [1, 1], set[int]()
        while node is not None and node.op_type in ("Slice", "Pad"):
            moved = self._sliced(node) if node.op_type == "Slice" else self._padded(node)
            if moved is None or (node.op_type == "Pad" and padded & moved.keys()):
                return None
            for dim, (start, stride) in moved.items():
                first[dim], step[dim] = start + stride * first[dim], stride * step[dim]
            padded |= moved.keys() if node.op_type == "Pad" else set()
            node = self._maker(node.input[0])
        if node is None or _perm(node) != _CHANNELS_LAST:
            return None
        return _Met(node.input[0], (first[0], first[1]), (step[0], step[1]))

    def _sliced(self, node: onnx.NodeProto) -> dict[int, _Pair] | None:
        """Return, per dimension of the image, where a Slice begins and its step."""
        starts, _, axes, steps = (self._integers(one) for one in node.input[1:])
        rows = list(zip(axes, starts, steps, strict=True))
        if any(axis not in _SPACE or start < 0 or stride < 1 for axis, start, stride in rows):
            return None
        return {_SPACE.index(axis): (start, stride) for axis, start, stride in rows}

    def _padded(self, node: onnx.NodeProto) -> dict[int, _Pair] | None:
        """Return, per dimension that a Pad pads with zeros or cuts, where its result begins."""
        from onnx import numpy_helper

        counts = self._integers(node.input[1])
        if len(node.input) != 3 or len(counts) != 2 * _DIMS:  # with several groups there are more
            return None
        ends = list(zip(counts[:_DIMS], counts[_DIMS:], strict=True))
        if any(any(ends[d]) for d in (0, 3)):
            return None
        fill = self._held.get(node.input[2])
        if fill is None or numpy_helper.to_array(fill).any():
            return None
        return {at: (-ends[d][0], 1) for at, d in enumerate(_SPACE) if any(ends[d])}

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
    {"Reshape", "Transpose", "Concat", "ReduceSum", "MatMul", "Gemm", "Slice", "Pad", "Conv"}
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
