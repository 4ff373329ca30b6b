"""Pins of Megatron's plan by the modules of exporters, and the costs that it is compared by."""

from __future__ import annotations

import math
from collections import Counter

import onnx
import pytest
from megatron.compare import Plan, Row, megatron_pins
from onnx import TensorProto, helper, parser

_WEIGHTS = {"e": (32, 8), "q": (8, 8), "o": (8, 8), "r": (8, 2), "w": (2, 8, 12), "d": (2, 6, 8)}
_MODULES = {
    "words": "model.embed_tokens",
    "q": "layers.0.self_attn.q_proj",
    "scores": "layers.0.self_attn",
    "o": "layers.0.self_attn.o_proj",
    "router": "layers.0.mlp.gate",
    "pick": "layers.0.mlp.experts",
    "first": "layers.0.mlp.experts",
    "pick2": "layers.0.mlp.experts",
    "second": "layers.0.mlp.experts",
    "head": "lm_head",
}


@pytest.fixture
def exported() -> onnx.ModelProto:
    """A layer with experts, whose nodes name their modules."""
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (int64[5] ids, float[1, 4, 3, 2] past, int64[5, 1] chosen, float[5, 8] k) => (y) {
            [words] x = Gather (e, ids)
            [q] queries = MatMul (x, q)
            [scores] s = MatMul (queries, k)
            turned = Transpose (o)
            [o] a = MatMul (s, turned)
            [router] gates = MatMul (a, r)
            [pick] first = GatherND (w, chosen)
            [first] h = MatMul (a, first)
            [pick2] second = GatherND (d, chosen)
            [second] z = MatMul (h, second)
            [head] y = MatMul (z, e)
        }"""
    )
    for name, shape in _WEIGHTS.items():
        data = bytes(4 * math.prod(shape))
        made = helper.make_tensor(name, TensorProto.FLOAT, shape, data, raw=True)
        model.graph.initializer.append(made)
    for node in model.graph.node:
        if node.name in _MODULES:
            scopes = str(["", _MODULES[node.name], node.name])
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    return model


def test_columns_come_before_rows(exported: onnx.ModelProto) -> None:
    assert megatron_pins(exported, 2) == [
        "node:words=row",
        "node:q=column",
        "node:scores=heads",
        "node:o=row",
        "w=S(2)",
        "d=S(1)",
        "node:head=column",
        "past=S(1)",
    ]


def test_caches_of_heads_that_do_not_divide_are_free(exported: onnx.ModelProto) -> None:
    assert "past=S(1)" not in megatron_pins(exported, 3)


def test_megatron_sends_all_reduces_alone() -> None:
    pinned = Plan(1.0, 0.4, 100, 70.0, Counter(all_reduce=3, all_gather=2))
    megatron = pinned.without_others(3, 0.1, 20.0)
    assert (megatron.time_s, megatron.sent_bytes) == (pytest.approx(0.9), 60.0)
    row = Row(megatron, pinned, Plan(0.6, 0.1, 120, 30.0, Counter(all_reduce=1)), 1.01)
    assert row.cells() == ["3a 2g", "900.00", "33%", "0.667", "1.010", "0.50"]
