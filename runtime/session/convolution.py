"""Our own kernels for convolutions with weights that change between runs.

ONNX Runtime packs weights for its fast kernels when a session is created. If weights are inputs, as
in training, it cannot: it unfolds every image and multiplies it separately. This is slow if the
products are small (decision 53).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensoropt.runtime.session.types import FLOAT32, Type, attributes, tensor_types
from tensoropt.runtime.support.collectives import DOMAIN, import_domain

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

__all__ = ["use_own_convolutions"]

_KINDS = ("Conv", "ConvTranspose")
_DIMS = 4
_FEW = {"Conv": 4, "ConvTranspose": 16}
"""Up to this number of windows per image, our kernel is faster, because it joins images."""
_NARROW = 32
"""Up to this number of channels, overlapping windows cost more to unfold than to multiply."""


def use_own_convolutions(model: onnx.ModelProto, given: onnx.ModelProto) -> bool:
    """Replace convolutions by our kernels where these are faster; return True if any is replaced.

    Applies to convolutions of one group, without bias, of float32 images. Changes ``model`` in
    place; ``given`` has the types of tensors.
    """
    types = tensor_types(given.graph)
    nodes = [node for node in model.graph.node if _fits(node, types)]
    for node in nodes:
        _replace(node, types[node.output[0]])
    if nodes:
        import_domain(model)
    return bool(nodes)


def _fits(node: onnx.NodeProto, types: Mapping[str, Type]) -> bool:
    if node.domain or node.op_type not in _KINDS or len(node.input) != 2:
        return False
    kind, shape = types.get(node.output[0], (0, ()))
    held = attributes(node)
    return (
        kind == FLOAT32
        and len(shape) == _DIMS
        and held.get("group", 1) == 1
        and held.get("auto_pad", b"NOTSET") == b"NOTSET"
        and "output_shape" not in held
        and all(name in types for name in node.input)
        and _pays(node, types, held)
    )


def _pays(node: onnx.NodeProto, types: Mapping[str, Type], held: Mapping[str, Any]) -> bool:
    _, (*channels, down, across) = types[node.input[1]]
    windowed = node.output[0] if node.op_type == "Conv" else node.input[0]
    rows, columns = types[windowed][1][2:]
    is_dense = down * across > 1 and max(held.get("strides", [1])) == 1
    return rows * columns <= _FEW[node.op_type] or (is_dense and max(channels) <= _NARROW)


def _replace(node: onnx.NodeProto, result: Type) -> None:
    from onnx import helper

    held = attributes(node)
    own = {
        "strides": held.get("strides", [1, 1]),
        "dilations": held.get("dilations", [1, 1]),
        "pads": held.get("pads", [0] * 4)[:2],
        "sizes": result[1][2:],
    }
    node.domain = DOMAIN
    del node.attribute[:]
    node.attribute.extend(helper.make_attribute(name, value) for name, value in own.items())
