"""Change of a decoder's graph so that a step reads parts of several texts, of any sizes.

The tokens of all parts are packed into one row, so that products compute no padding. Only
`GroupQueryAttention` reads a row per text, padded on the right; its input `query_seqlens`, of ONNX
Runtime 1.32 and later, has the numbers of tokens.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from tensoropt.runtime.device.provider import Provider
from tensoropt.runtime.session.session import made_session
from tensoropt.runtime.support.collectives import DOMAIN
from tensoropt.runtime.support.dtypes import Array
from tensoropt.runtime.support.errors import UserError
from tensoropt.runtime.text.scoring import SCORED, constants_of

if TYPE_CHECKING:
    import onnx

__all__ = ["COUNTS", "PLACES", "ROWS", "can_count", "pack_tokens"]

ROWS = "tensoropt.rows"
"""The added input, int64 [texts, longest part, 2]: the packed place of each token of a text."""

PLACES = "tensoropt.places"
"""The added input, int64 [1, tokens, 2]: text and place in its part of each packed token."""

COUNTS = "tensoropt.counts"
"""The added input, int32 [texts]: the tokens of each part."""

_ATTENTION = "GroupQueryAttention"
_LENGTHS = 5, 6  # its operands that derive from the mask: lengths of the texts
_BY_TOKEN = 0, 1, 2, 9  # its operands with a value per token: query, key, value, position
_BIAS, _COUNTS = 10, 16
_FEATURES = 2  # the dimension of packed tensors that collectives may join

_TOKEN_WISE = {
    "Add", "Cast", "Div", "Erf", "Gelu", "Identity", "Mul", "QuickGelu", "Relu", "Sigmoid", "Sub",
    "Tanh", "FastGelu", "BiasGelu", "LayerNormalization", "RMSNormalization",
    "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    "AllReduce",
}  # fmt: skip
_WEIGHTED = {"MatMul", "FusedMatMul", "MatMulNBits"}


def pack_tokens(model: onnx.ModelProto, mask: str, caches: Collection[str]) -> bool:
    """Let ``model`` read packed tokens, in place; ``mask`` is its input with the mask.

    ``caches`` are its inputs with caches. Returns False, without a change, unless attention is the
    only operator that joins several tokens, and learns the lengths of texts from the mask alone.
    """
    from onnx import TensorProto, helper

    graph = model.graph
    lengths = _derived(graph, {mask})
    constants = constants_of(graph)
    for node in graph.node:
        if not _can_pack(node, lengths, constants, caches):
            return False
    packed = []
    for node in graph.node:
        if node.op_type != _ATTENTION:
            packed.append(node)
            continue
        for index in _BY_TOKEN:
            if index < len(node.input) and node.input[index]:
                name = f"{node.output[0]}.rows{index}"
                packed.append(helper.make_node("GatherND", [node.input[index], ROWS], [name], name))
                node.input[index] = name
        node.input.extend([""] * (_COUNTS - len(node.input)) + [COUNTS])
        name, own = node.output[0], f"{node.output[0]}.rows"
        node.output[0] = own
        packed += [node, helper.make_node("GatherND", [own, PLACES], [name], f"{name}.places")]
    del graph.node[:]
    graph.node.extend(packed)
    del graph.value_info[:]
    added: tuple[tuple[str, int, list[str | int | None]], ...] = (
        (ROWS, TensorProto.INT64, ["tensoropt.texts", "tensoropt.longest", 2]),
        (PLACES, TensorProto.INT64, [1, "tensoropt.tokens", 2]),
        (COUNTS, TensorProto.INT32, ["tensoropt.texts"]),
    )
    for name, kind, shape in added:
        graph.input.append(helper.make_tensor_value_info(name, kind, shape))
    return True


def _derived(graph: onnx.GraphProto, names: Collection[str]) -> set[str]:
    """Return the values that depend on ``names``, other than by attention."""
    found = {*names}
    for node in graph.node:
        if node.op_type != _ATTENTION and found.intersection(node.input):
            found.update(node.output)
    return found


def _can_pack(
    node: onnx.NodeProto,
    lengths: Collection[str],
    constants: Collection[str],
    caches: Collection[str],
) -> bool:
    """Return True if a node works on each token alone, or only on lengths, or is attention."""
    names = [name for name in node.input if name and name not in constants]
    if node.op_type == _ATTENTION:
        is_plain = len(node.input) <= _BIAS and len([name for name in node.output if name]) <= 3
        return is_plain and all(
            (name in lengths) == (index in _LENGTHS)
            for index, name in enumerate(node.input)
            if name and name not in constants
        )
    if not {*names}.isdisjoint(caches):
        return False
    if not {*names}.isdisjoint(lengths):
        return {*names} <= {*lengths}
    if not names:
        return True
    attributes = {own.name: own for own in node.attribute}
    if node.op_type in _TOKEN_WISE:
        return "axis" not in attributes or attributes["axis"].i in (-1, _FEATURES)
    if node.op_type in _WEIGHTED:
        return names == [node.input[0]]
    if node.op_type == "Gather":  # the embedding
        return names == [node.input[1]] and not ("axis" in attributes and attributes["axis"].i)
    if node.op_type == "GatherND":  # of `score_asked`
        return node.input[1] == SCORED
    return (
        node.domain == DOMAIN and node.op_type == "AllGather" and (attributes["dim"].i == _FEATURES)
    )


@cache
def can_count(provider: Provider) -> bool:
    """Return True if attention of this ONNX Runtime can count the tokens of each row.

    Runs a small graph: two texts read two tokens and one token, after one and two tokens.
    """
    random = np.random.default_rng(0)
    feeds = {
        "q": random.normal(size=(2, 2, 8)).astype(np.float32),
        "k": random.normal(size=(2, 1, 4, 8)).astype(np.float32),
        "v": random.normal(size=(2, 1, 4, 8)).astype(np.float32),
        "lengths": np.array([2, 2], np.int32),
        "counts": np.array([2, 1], np.int32),
    }
    try:
        both = _attend(provider, feeds)
        alone = _attend(
            provider,
            {
                **{name: feeds[name][1:] for name in ("k", "v", "lengths")},
                "q": feeds["q"][1:, :1],
            },
        )
    except UserError:
        return False
    return bool(np.allclose(both[1, 0], alone[0, 0], atol=1e-5))


def _attend(provider: Provider, feeds: dict[str, Array]) -> Array:
    """Return the attention of one head, of size 8, over three tokens."""
    from onnx import helper, numpy_helper

    inputs = ["q", "q", "q", "k", "v", "lengths", "total"]
    if "counts" in feeds:
        inputs += [""] * (_COUNTS - len(inputs)) + ["counts"]
    node = helper.make_node(
        _ATTENTION, inputs, ["y", "k+", "v+"], domain="com.microsoft", num_heads=1, kv_num_heads=1
    )
    total = numpy_helper.from_array(np.array(3, np.int32), "total")
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in feeds.items()
    ]
    made = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "attention", given, [made], [total])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = made_session(model.SerializeToString(), provider)
    for name, array in feeds.items():
        session.feed(name, np.ascontiguousarray(array))
    session.run()
    return session.fetch()["y"]
