"""Recognition of weight gradients of convolutions, to run them on our own kernel.

A plan computes them with standard operators: per element of the window, a product with the image,
channels last, shifted by the element's offset. Our kernel passes over image and gradient once
(`ConvWeightGradient`, decision 58).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensoropt.runtime.session.types import FLOAT32, attributes, names_read, tensor_types
from tensoropt.runtime.support.collectives import DOMAIN, import_domain

if TYPE_CHECKING:
    import onnx

__all__ = ["use_own_weight_gradients"]

_DIMS = 4
_STACK = 3
_PIXELS = 256
"""With fewer windows in all images, matrix products are as fast."""
_NARROW = 128
"""With more channels of the image, matrix products are as fast too."""
_SWAPPED = [1, 0, 2, 3]
_CHANNELS_LAST = [0, 2, 3, 1]
_SPACE = (1, 2)
"""Height and width of a channels-last image."""

_Pair = tuple[int, int]


@dataclass(frozen=True)
class _Found:
    """A gradient of weights: its image, the result's gradient ``dy``, and the windows."""

    image: str
    dy: str
    strides: _Pair
    dilations: _Pair
    pads: _Pair


@dataclass(frozen=True)
class _Tap:
    """The pixels of an image under one window element, over all windows.

    ``first`` is the first pixel, ``step`` the distance between pixels. Pixels outside of the image
    are zero.
    """

    image: str
    first: _Pair
    step: _Pair


def use_own_weight_gradients(model: onnx.ModelProto) -> bool:
    """Compute gradients of weights by our kernel, in place; return True if any is replaced.

    Applies to two-dimensional convolutions of one group in float32.
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
        graph.nodes[place] = _make_node(node, gradient, graph.shape(node.output[0])[2:])
    kept = _remove_dead(graph.nodes, model.graph)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    import_domain(model)
    return True


def _make_node(node: onnx.NodeProto, found: _Found, taps: Sequence[int]) -> onnx.NodeProto:
    from onnx import helper

    return helper.make_node(
        "ConvWeightGradient",
        [found.image, found.dy],
        node.output,
        name=node.name,
        domain=DOMAIN,
        strides=found.strides,
        dilations=found.dilations,
        pads=found.pads,
        sizes=taps,
    )


def _remove_dead(nodes: Sequence[onnx.NodeProto], graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes without the parts of replaced gradients that are now dead."""
    needed, kept = {value.name for value in graph.output}, list[Any]()
    for node in reversed(nodes):
        if node.domain or node.op_type not in _PARTS or needed.intersection(node.output):
            kept.append(node)
            needed.update(names_read(node))
    return kept[::-1]


class _Graph:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self.nodes = list(graph.node)
        self._types = tensor_types(graph)
        self._held = {tensor.name: tensor for tensor in graph.initializer}
        self._given = list(graph.node)
        self._places = {name: at for at, node in enumerate(self._given) for name in node.output}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a float32 tensor; empty for other types."""
        kind, shape = self._types.get(name, (0, ()))
        return shape if kind == FLOAT32 else ()

    def gradient(self, node: onnx.NodeProto) -> _Found | None:
        """Return the gradient of weights that ``node`` returns, or None."""
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
        """Return True if our kernel is faster; a window of one element is a plain product."""
        images, _, *counts = self.shape(found.dy)
        is_one_tap = math.prod(shape[2:]) == 1
        return not is_one_tap and shape[1] <= _NARROW and images * math.prod(counts) >= _PIXELS

    def _by_convolution(self, node: onnx.NodeProto) -> _Found | None:
        """Match the form for few channels: a convolution of the image with ``dy`` as weights."""
        conv = self._maker(node.input[0])
        if conv is None or conv.op_type != "Conv" or conv.domain or len(conv.input) != 2:
            return None
        image, dy = (self._maker(name) for name in conv.input)
        held = attributes(conv)
        if held.get("group", 1) != 1 or held.get("auto_pad", b"NOTSET") != b"NOTSET":
            return None
        if not all(n is not None and _perm(n) == _SWAPPED for n in (node, image, dy)):
            return None
        assert image is not None and dy is not None
        strides, dilations, pads = (
            _pair(held, name) for name in ("dilations", "strides", "pads")
        )  # strides and dilations swap roles in this convolution
        if len(self.shape(image.input[0])) != _DIMS or len(self.shape(dy.input[0])) != _DIMS:
            return None
        return _Found(image.input[0], dy.input[0], strides, dilations, pads)

    def _by_products(self, node: onnx.NodeProto, shape: Sequence[int]) -> _Found | None:
        """Match the form for many channels: a product for each element of the window."""
        parts = self._parts(node)
        down, across = shape[2:]
        if len(parts) != down * across:
            return None
        dys = {self._dy(part) for part in parts}
        taps = [self._tap(part.input[1]) if part is not None else None for part in parts]
        if len(dys) != 1 or None in dys or None in taps:
            return None
        (dy,), first = dys, taps[0]
        assert dy is not None and first is not None
        places = [tap.first for tap in taps if tap is not None]
        top, left = places[0]
        dilations = (
            places[across][0] - top if down > 1 else 1,
            places[1][1] - left if across > 1 else 1,
        )
        offsets = itertools.product(range(down), range(across))
        wanted = [(top + i * dilations[0], left + j * dilations[1]) for i, j in offsets]
        sources = {(tap.image, tap.step) for tap in taps if tap is not None}
        if places != wanted or min(dilations) < 1 or len(sources) != 1 or max(top, left) > 0:
            return None
        return _Found(first.image, dy, first.step, dilations, (-top, -left))

    def _parts(self, node: onnx.NodeProto) -> list[onnx.NodeProto | None]:
        """Return the products that form the gradient, in order of window elements."""
        name = self._skip_reshapes(node.input[0])
        last = self._maker(name)
        if last is not None and last.op_type == "Transpose":
            joined, perm = self._maker(last.input[0]), _perm(last)
            if joined is None or joined.op_type != "Concat" or attributes(joined)["axis"] != 0:
                return []
            if perm != [*range(1, len(perm)), 0]:
                return []
            return [self._product(operand) for operand in joined.input]
        return [self._product(name)]

    def _product(self, name: str) -> onnx.NodeProto | None:
        """Return the product that computes ``name``, possibly followed by a sum over images."""
        node, is_sum = self._maker(self._skip_reshapes(name)), False
        if node is not None and node.op_type == "ReduceSum":
            if len(node.input) != 2 or self._integers(node.input[1]) != [0]:
                return None
            node, is_sum = self._maker(self._skip_reshapes(node.input[0])), True
        if node is None or not self._multiplies(node):
            return None
        rank = len(self.shape(node.output[0]))
        return node if rank == 2 or (is_sum and rank == _STACK) else None

    def _multiplies(self, node: onnx.NodeProto) -> bool:
        """Return True if ``node`` is a plain matrix product, without transposition or scaling."""
        if node.op_type == "Gemm":
            kept = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}
            given = {name: value for name, value in attributes(node).items() if name in kept}
            return len(node.input) == 2 and {**kept, **given} == kept
        return node.op_type == "MatMul"

    def _dy(self, product: onnx.NodeProto | None) -> str | None:
        """Return the gradient in the left operand, with images or channels first."""
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

    def _tap(self, name: str) -> _Tap | None:
        """Return the pixels that slices and padding select for ``name``, or None."""
        node, first, step, padded = self._through(name, "Reshape"), [0, 0], [1, 1], set[int]()
        while node is not None and node.op_type in ("Slice", "Pad"):
            moved = self._match_slice(node) if node.op_type == "Slice" else self._match_pad(node)
            if moved is None or (node.op_type == "Pad" and padded & moved.keys()):
                return None
            for dim, (start, stride) in moved.items():
                first[dim], step[dim] = start + stride * first[dim], stride * step[dim]
            padded |= moved.keys() if node.op_type == "Pad" else set()
            node = self._maker(node.input[0])
        if node is None or _perm(node) != _CHANNELS_LAST:
            return None
        return _Tap(node.input[0], (first[0], first[1]), (step[0], step[1]))

    def _match_slice(self, node: onnx.NodeProto) -> dict[int, _Pair] | None:
        """Return the start and step of a Slice, per dimension of the image."""
        starts, _, axes, steps = (self._integers(name) for name in node.input[1:])
        rows = list(zip(axes, starts, steps, strict=True))
        if any(axis not in _SPACE or start < 0 or stride < 1 for axis, start, stride in rows):
            return None
        return {_SPACE.index(axis): (start, stride) for axis, start, stride in rows}

    def _match_pad(self, node: onnx.NodeProto) -> dict[int, _Pair] | None:
        """Return the start of a Pad's result, per dimension that it pads with zeros or crops."""
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

    def _skip_reshapes(self, name: str) -> str:
        """Return the earliest value with the elements of ``name`` in the same order."""
        while (node := self._maker(name)) is not None:
            shape = self.shape(node.input[0]) if node.input else ()
            moved = [at for at in _perm(node) or () if at < len(shape) and shape[at] > 1]
            keeps = bool(_perm(node)) and bool(shape) and moved == sorted(moved)
            if node.op_type != "Reshape" and not keeps:
                break
            name = node.input[0]
        return name

    def _integers(self, name: str) -> list[int]:
        """Return a constant integer vector; empty if ``name`` is not constant."""
        from onnx import numpy_helper

        tensor = self._held.get(name)
        if tensor is None or tensor.external_data:
            return []
        return [int(number) for number in numpy_helper.to_array(tensor).reshape(-1)]


_PARTS = frozenset(
    {"Reshape", "Transpose", "Concat", "ReduceSum", "MatMul", "Gemm", "Slice", "Pad", "Conv"}
)


def _pair(held: dict[str, Any], name: str) -> _Pair:
    """Return the first two numbers of a convolution's attribute."""
    down, across, *_ = held.get(name) or ((0, 0) if name == "pads" else (1, 1))
    return down, across


def _perm(node: onnx.NodeProto) -> list[int]:
    """Return the permutation of a Transpose; empty for other nodes."""
    return list(attributes(node).get("perm", [])) if node.op_type == "Transpose" else []
