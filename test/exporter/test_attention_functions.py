"""Attention in plans has a body of standard operators, for runtimes without our library."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from attention_reference import Case, Options, arrays_of, gradient_model, operands, reference
from budgets import examples
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.compiler.exporter.attention_functions import add_attention_functions
from tensoropt.runtime.ops import library_path

TOLERANCE = 1e-4


def run(model: onnx.ModelProto, arrays: dict[str, Any], library: bool) -> dict[str, Any]:
    options = ort.SessionOptions()
    if library:
        options.register_custom_ops_library(str(library_path()))
    kinds = ["CPUExecutionProvider"]
    session = ort.InferenceSession(model.SerializeToString(), options, providers=kinds)
    feeds = {value.name: arrays[value.name] for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    batch, keys = draw(st.integers(1, 2)), draw(st.integers(1, 40))
    bias = draw(st.none() | st.tuples(*[st.booleans()] * 3))
    return Case(
        batch,
        draw(st.integers(1, 2)),
        draw(st.sampled_from([1, 3])),
        draw(st.integers(1, 40)),
        keys,
        8,
        16,
        Options(
            draw(st.sampled_from([0.3, -0.3])),
            draw(st.booleans()),
            draw(st.sampled_from([0, 1, 9])),
            draw(st.sampled_from([0.0, 3.0])),
            draw(st.sampled_from([0, -10, 20])),
        ),
        bias,
        draw(st.none() | st.tuples(*[st.integers(0, keys)] * batch)),
        bias is not None and draw(st.booleans()),
        ratio=draw(st.sampled_from([0.0, 0.0, 0.3])),
    )


@examples(60)
@given(cases(), st.integers(0, 9))
def test_bodies_compute_results_and_gradients(case: Case, seed: int) -> None:
    model, tensors = gradient_model(case), operands(case, seed)
    add_attention_functions(model)
    y, lse, gradients = reference(case, tensors)
    arrays = arrays_of(case, tensors)
    results = run(model, arrays, library=False)
    for name, expected in {
        "y": y,
        "lse": lse,
        **{f"d{n}": g for n, g in gradients.items()},
    }.items():
        finite = expected[torch.isfinite(expected)].abs()
        most = max([1.0, *finite.flatten().tolist()])
        np.testing.assert_allclose(
            results[name], expected.numpy(), rtol=0, atol=TOLERANCE * most, err_msg=name
        )


def test_our_kernels_replace_the_bodies() -> None:
    case = Case(1, 1, 1, 4, 4, 8, 8, Options(causal=True))
    model, tensors = gradient_model(case), operands(case)
    add_attention_functions(model)
    for function in model.functions:  # wrong on purpose
        for node in function.node:
            if node.op_type == "CastLike":
                node.op_type = "Mul"
                node.input[1] = node.input[0]
    arrays = arrays_of(case, tensors)
    y = reference(case, tensors)[0].numpy()
    np.testing.assert_allclose(run(model, arrays, library=True)["y"], y, atol=TOLERANCE)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(run(model, arrays, library=False)["y"], y, atol=TOLERANCE)


def test_forms_of_one_graph_have_a_body_each() -> None:
    plain, causal = (gradient_model(Case(options=Options(causal=flag))) for flag in (False, True))
    for node in causal.graph.node:
        node.output[:] = [f"causal_{name}" for name in node.output]
        node.input[:] = [f"causal_{n}" if n in ("y", "lse") else n for n in node.input]
    plain.graph.node.extend(causal.graph.node)
    add_attention_functions(plain)
    assert len({(one.name, one.overload) for one in plain.functions}) == 4
    assert {n.overload for n in plain.graph.node} == {one.overload for one in plain.functions}


def test_graphs_of_other_operators_stay() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 20]>
        g (float[2] x) => (float[2] y) { y = Relu (x) }"""
    )
    before = model.SerializeToString()
    add_attention_functions(model)
    assert model.SerializeToString() == before
